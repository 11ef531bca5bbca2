"""The page's broker bars: scores by resource, recent range, predicted score, gap and drain."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import RebalancerError, SnapshotError
from pulsar_rebalancer.orders.manual_plans import Drain
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import read_decisions, read_plan_state
from pulsar_rebalancer.run.tables import BrokerSample, Row
from pulsar_rebalancer.show.page.page_model import BrokerView, HitsView, PairView
from pulsar_rebalancer.show.page.recent_runs import Run, known_scores, rounded_or_none, scores_are_cached
from pulsar_rebalancer.state import ShedderState, StrategyState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import Threshold
from pulsar_rebalancer.strategies.scoring import SCORED, percent, score
from pulsar_rebalancer.strategies.shedders.registry import safe_profile_of

RECENT_PERIOD = timedelta(minutes=30)
"""Period before a sample for which the page shows each broker's lowest and highest score."""

_MAX_PERCENT = 1000.0
"""Maximum load that the page draws: no real load is higher, and a longer bar would flatten all other bars."""

_SLOT_SECONDS = 15
"""Length of a time slot in seconds. One sample per slot is read: a broker measures its CPU only once a minute."""

_MAX_READ_SECONDS = 0.4
"""Maximum seconds spent reading files for one response; the next response reads the remaining files."""


def broker_views(
    storage: ClusterStorage,
    run: Run,
    predicted_scores: Mapping[str, float],
    pairs: Iterable[PairView],
    drains: Mapping[str, Drain],
    state: ShedderState,
) -> list[BrokerView]:
    """Return a run's brokers, the hottest first, those without a load report last; `predicted_scores` is in percent."""
    try:
        samples, silent = run.brokers, run.snapshot.silent_brokers
    except SnapshotError:
        return []
    settings = run.request.resolved.settings
    labels = short_name_by_broker([sample.broker for sample in samples])
    before = _score_range_by_broker(storage, run.request.collected_at)
    bands = {broker: pair.band for pair in pairs if pair.gap is not None for broker in (pair.destination, pair.source)}
    views = [
        BrokerView(
            name=name,
            label=labels[name],
            **_usage(sample, settings, before.get(name, ()), has_report=name not in silent),
            after=rounded_or_none(predicted_scores.get(name)),
            left_out=f"{sample.left_out}: {sample.left_out.meaning}" if sample.left_out else "",
            band=bands.get(name, "calm"),
            drained=drain_text(drains[name]) if name in drains else "",
            average=rounded_or_none(state.loads.get(name), 100),
            average_throughput=rounded_or_none(state.throughputs.get(name)),
            msg_throughput=rounded_or_none(sample.msg_throughput_in + sample.msg_throughput_out) or 0,
            bundles=sample.bundles,
        )
        for name, sample in ((sample.broker, sample) for sample in samples)
    ]
    return sorted(views, key=lambda view: (view.score is None, -(view.score or 0.0), view.name))


def drain_text(drain: Drain) -> str:
    """Return when a drain began, who ordered it and why."""
    return f"since {drain.at:%Y-%m-%d %H:%M %Z} by {drain.by or 'unknown'}: {drain.reason}"


def _usage(sample: BrokerSample, settings: Settings, scores: Collection[float], *, has_report: bool) -> dict[str, Any]:
    weights = {name: getattr(settings, f"{name}_weight") for name in SCORED}
    shares = {name: percent(*sample.resources[name][:2]) * weight for name, weight in weights.items() if weight}
    # A broker that reports NaN is quarantined, and shown without that value.
    used = {name: round(share, 2) for name, share in shares.items() if _is_valid_percent(share)} if has_report else {}
    value = score(sample, settings) if has_report else math.nan
    known = [value for value in (*scores, value) if _is_valid_percent(value)]
    return {
        "score": round(value, 2) if _is_valid_percent(value) else None,
        "resources": used,
        "deciding": max(used, key=lambda name: used[name], default=""),
        "lowest": rounded_or_none(min(known, default=None)),
        "highest": rounded_or_none(max(known, default=None)),
    }


def _is_valid_percent(value: float) -> bool:
    return abs(value) <= _MAX_PERCENT  # False for NaN


def _score_range_by_broker(storage: ClusterStorage, until: datetime) -> dict[str, tuple[float, float]]:
    recent: dict[int, StoragePath] = {}
    for at, folder in takewhile(lambda dated: dated[0] >= until - RECENT_PERIOD, storage.dated_runs(until)):
        recent[int(at.timestamp()) // _SLOT_SECONDS] = folder  # the first of each slot, so that the choice is stable
    ranges: dict[str, tuple[float, float]] = {}
    end = time.monotonic() + _MAX_READ_SECONDS
    for folder in recent.values():
        if time.monotonic() > end and not scores_are_cached(folder):
            continue
        for broker, value in known_scores(folder).score_by_broker.items():
            lowest, highest = ranges.get(broker, (value, value))
            ranges[broker] = (min(lowest, value), max(highest, value))
    return ranges


def short_name_by_broker(brokers: Collection[str]) -> dict[str, str]:
    """Return a short unique name for each broker, without the port or domain if all brokers share it."""
    shorter = {broker: broker.rpartition(":")[0] or broker for broker in brokers}
    if len(set(shorter.values())) < len(shorter) or len({broker.rpartition(":")[2] for broker in brokers}) > 1:
        # On one machine, brokers differ only in their ports.
        hosts = {broker.rpartition(":")[0] for broker in brokers}
        return {broker: f":{broker.rpartition(':')[2]}" if len(hosts) == 1 else broker for broker in brokers}
    first = {broker: name.partition(".")[0] for broker, name in shorter.items()}
    one_domain = len({name.partition(".")[2] for name in shorter.values()}) == 1
    return first if one_domain and not any(name.isdecimal() for name in first.values()) else shorter


_ORDERED_REASONS = (Reason.DRAIN, Reason.FILL, Reason.GIVE_BACK, Reason.BY_HAND)

MAX_LISTED = 40
"""Maximum number of pairs that the page lists, or of brokers if the strategy has no pairs."""


def pair_views(run: Run) -> list[PairView]:
    """Return all pairs in the decisions of a run with a plan, the largest gap first."""
    try:
        rows = read_decisions(run.folder)
    except SnapshotError:
        return []
    settings = run.request.resolved.settings
    # A broker that is left out is in no pair; under a strategy without pairs it has no value.
    pace = run.seconds_per_sample(settings), run.seconds_to_act
    views = [_pair_view(row, settings, *pace) for row in rows if row["pair"] is not None or row["value"] is not None]
    return sorted(views, key=lambda view: (-(view.gap or 0.0), view.number, view.source))


def pairs_worth_listing(pairs: Sequence[PairView]) -> list[PairView]:
    """Return the pairs with a gap that reaches a threshold, or that have fired or are waiting."""
    return [pair for pair in pairs if pair.band != "calm" or pair.fired or _is_pair_waiting(pair)][:MAX_LISTED]


def judged_pairs(pairs: Iterable[PairView], drains: Mapping[str, Drain]) -> list[PairView]:
    """Return the pairs that the strategy has judged, without brokers that have been drained since.

    Sources of drains, fills and manual plans are no verdict of the strategy.
    """
    chosen = (pair for pair in pairs if pair.reason not in _ORDERED_REASONS)
    return [pair for pair in chosen if drains.keys().isdisjoint((pair.source, pair.destination))]


def _is_pair_waiting(view: PairView) -> bool:
    reason = Reason.get(view.reason)
    return reason is not None and reason.has(Trait.WAITING | Trait.STUCK)


def _pair_view(row: Row, settings: Settings, seconds_per_sample: float, seconds_to_act: float) -> PairView:
    reason, gap = Reason.get(row["reason"]), row["gap"]
    counts = row["low_hits"] is not None and reason is not Reason.NO_PARTNER
    thresholds = safe_profile_of(settings).thresholds(settings) if counts else {}
    hits = {kind: HitsView(have=row[f"{kind}_hits"] or 0, need=limit.hits) for kind, limit in thresholds.items()}
    band = _reached_band(gap, thresholds)
    missing = None if row["fired"] else _remaining_hits(hits, band)
    seconds = None if missing is None else round(missing * seconds_per_sample + seconds_to_act, 1)
    return PairView(
        number=row["pair"] if row["pair"] is not None else -1,
        source=row["source"],
        destination=row["destination"] or "",
        gap=None if gap is None else round(gap, 2),
        band=band,
        hits=hits,
        fired=bool(row["fired"]),
        seconds_to_fire=seconds,
        overdue="with the next run" if (missing or 0) <= 1 else f"after {missing} more samples",
        reason=row["reason"],
        meaning=reason.meaning if reason else "",
        explanation=_pair_detail(row["explanation"] or "", reason) if hits and reason else row["explanation"] or "",
    )


def _pair_detail(explanation: str, reason: Reason) -> str:
    """Return what the gap and the hits of a pair do not say; empty if they say all."""
    if reason.has(Trait.STUCK) and reason.meaning in explanation:
        return reason.meaning
    return "" if reason.has(Trait.WAITING) or reason.meaning in explanation else explanation


def _reached_band(gap: float | None, thresholds: Mapping[str, Threshold]) -> str:
    reached = [kind for kind, threshold in thresholds.items() if gap is not None and gap >= threshold.gap]
    return reached[-1] if reached else "calm"


def _remaining_hits(hits: Mapping[str, HitsView], band: str) -> int | None:
    """Return the hits until the pair fires if the gap stays, one for each sample; None if it would not fire."""
    if band == "calm":
        return None
    return min(max(0, hit.need - hit.have) for kind, hit in hits.items() if kind == "low" or band == "high")


def shedder_state_of(run: Run) -> ShedderState:
    try:
        state = read_plan_state(run.folder)
        if run.has_opened or (run.outcome and run.outcome.verdict is Reason.OPEN):
            state = state.with_hits_reset()
        return StrategyState.parse(state.hits, state.strategy_state).shedder
    except RebalancerError:
        return ShedderState()


def cluster_hits(run: Run, state: ShedderState) -> HitsView | None:
    settings = run.request.resolved.settings
    need = safe_profile_of(settings).cluster_hits(settings)
    return None if need is None or run.summary is None else HitsView(have=state.cluster_hits, need=need)
