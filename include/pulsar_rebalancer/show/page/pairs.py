"""Pairs and hits on the page: how many more hits each pair, or the whole cluster, needs to fire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import RebalancerError, SnapshotError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import read_decisions, read_state
from pulsar_rebalancer.show.page.page_model import HitsView, PairView
from pulsar_rebalancer.strategies.kept import KeptState, ShedderState
from pulsar_rebalancer.strategies.shedders.registry import profile_shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import Row
    from pulsar_rebalancer.show.page.recent_runs import Run
    from pulsar_rebalancer.strategies.shedders.profile import Threshold

SHOWN = 40
"""Maximum number of pairs listed, or of brokers for a strategy without pairs."""


def pair_views(run: Run) -> list[PairView]:
    """Return all pairs in a run's decisions, the largest gap first. The run must have a plan."""
    try:
        rows = read_decisions(run.folder)
    except SnapshotError:
        return []
    settings = run.request.resolved.settings
    # A broker that is left out is in no pair; under a strategy without pairs it has no value.
    views = [_view_of(row, settings) for row in rows if row["pair"] is not None or row["value"] is not None]
    return sorted(views, key=lambda view: (-(view.gap or 0.0), view.number, view.source))


def worth_listing(pairs: Sequence[PairView]) -> list[PairView]:
    """Return the pairs to list: pairs with a gap that reaches a threshold, and pairs that have fired or are waiting."""
    return [pair for pair in pairs if pair.band != "calm" or pair.fired or _waits(pair)][:SHOWN]


def _waits(view: PairView) -> bool:
    reason = Reason.get(view.reason)
    return reason is not None and reason.has(Trait.WAITING | Trait.STUCK)


def _view_of(row: Row, settings: Settings) -> PairView:
    """Convert one row of a run's decisions table for the page."""
    reason, gap = Reason.get(row["reason"]), row["gap"]
    counts = row["low_hits"] is not None and reason is not Reason.MIDDLE
    thresholds = profile_shown(settings).thresholds(settings) if counts else {}
    hits = {kind: HitsView(have=row[f"{kind}_hits"] or 0, need=limit.hits) for kind, limit in thresholds.items()}
    band = _band(gap, thresholds)
    return PairView(
        number=row["pair"] if row["pair"] is not None else -1,
        source=row["source"],
        destination=row["destination"] or "",
        gap=None if gap is None else round(gap, 2),
        band=band,
        hits=hits,
        fired=bool(row["fired"]),
        seconds_to_fire=None if row["fired"] else _seconds_to_fire(hits, band, settings),
        reason=row["reason"],
        meaning=reason.meaning if reason else "",
        explanation=row["explanation"] or "",
    )


def _band(gap: float | None, thresholds: Mapping[str, Threshold]) -> str:
    """Return the highest threshold that a gap reaches, `low` or `high`; else `calm`."""
    reached = [kind for kind, threshold in thresholds.items() if gap is not None and gap >= threshold.gap]
    return reached[-1] if reached else "calm"


def _seconds_to_fire(hits: Mapping[str, HitsView], band: str, settings: Settings) -> float | None:
    """Return the seconds from the sample until the pair fires, assuming that the gap does not change.

    Each further hit needs another sample.
    """
    if band == "calm":
        return None
    sample = max(settings.interval_seconds, settings.host_usage_interval_minutes * 60)
    missing = [max(0, hit.need - hit.have) for kind, hit in hits.items() if kind == "low" or band == "high"]
    return round(min(missing) * sample, 1)


def kept_by(run: Run) -> ShedderState:
    """Return the strategy's state after a run; empty if it cannot be read."""
    try:
        state = read_state(run.folder)
        if run.opened or (run.outcome and run.outcome.verdict is Reason.OPEN):
            state = state.carried_out()
        return KeptState.parse(state.hits, state.kept).shedder
    except (RebalancerError, AttributeError, TypeError):
        return ShedderState()


def cluster_hits(run: Run, kept: ShedderState) -> HitsView | None:
    """Return the whole cluster's hits; None if the strategy does not count such hits."""
    settings = run.request.resolved.settings
    need = profile_shown(settings).cluster_hits(settings)
    return None if need is None or run.summary is None else HitsView(have=kept.cluster_hits, need=need)
