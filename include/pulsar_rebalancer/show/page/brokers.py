"""The page's broker bars: scores by resource, recent range, predicted score, pair and drain."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.show.page.page_model import BrokerView
from pulsar_rebalancer.show.page.recent_runs import known_scores, rounded, scores_are_known
from pulsar_rebalancer.strategies.scoring import SCORED, percent, score

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.show.page.page_model import PairView
    from pulsar_rebalancer.show.page.recent_runs import Run
    from pulsar_rebalancer.state.manual_plans import Drain
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer.strategies.kept import ShedderState

OF_LATE = timedelta(minutes=30)
"""The period before a sample for which each broker's lowest and highest score are shown."""

_MOST_PERCENT = 1000.0
"""Larger figures are not drawn: no real load exceeds this percentage, and such a bar would flatten all other bars."""

_SLOT = 15
"""Length of a time slot, in seconds. Only one sample per slot is read; a broker measures its CPU only once a minute."""

_READING = 0.4
"""Maximum seconds spent reading files for one response; the next response reads the remaining files."""


def broker_views(
    storage: ClusterStorage,
    run: Run,
    after: Mapping[str, float],
    pairs: Iterable[PairView],
    drains: Mapping[str, Drain],
    kept: ShedderState,
) -> list[BrokerView]:
    """Return a run's brokers, the hottest first; brokers without a load report come last.

    Args:
        after: predicted scores of the plan's sources and destinations, in percent, by broker.
        pairs: all pairs in the run's decisions.
    """
    try:
        samples, silent = run.brokers, run.snapshot.silent
    except SnapshotError:
        return []
    settings = run.request.resolved.settings
    labels = short_names([sample.broker for sample in samples])
    before, paired = _of_late(storage, run.request.collected_at), _paired(pairs)
    views = [
        BrokerView(
            name=name,
            label=labels[name],
            **_load(sample, settings, before.get(name, ()), reported=name not in silent),
            after=rounded(after.get(name)),
            left_out=f"{sample.left_out}: {sample.left_out.meaning}" if sample.left_out else "",
            **paired.get(name, {}),
            drained=drained(drains[name]) if name in drains else "",
            average=rounded(kept.loads.get(name), 100),
            average_throughput=rounded(kept.throughputs.get(name)),
            msg_throughput=rounded(sample.msg_throughput_in + sample.msg_throughput_out) or 0,
            bundles=sample.bundles,
        )
        for name, sample in ((sample.broker, sample) for sample in samples)
    ]
    return sorted(views, key=lambda view: (view.score is None, -(view.score or 0.0), view.name))


def _paired(pairs: Iterable[PairView]) -> dict[str, dict[str, Any]]:
    fields: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        if pair.gap is not None and pair.destination != pair.source:
            fields[pair.source] = {"band": pair.band, "partner": pair.destination, "gap": pair.gap}
            fields[pair.destination] = {"band": pair.band}
    return fields


def drained(drain: Drain) -> str:
    """Return text about a drain: when it began, who ordered it and why."""
    return f"since {drain.at:%Y-%m-%d %H:%M %Z} by {drain.by or 'unknown'}: {drain.reason}"


def _load(sample: BrokerSample, settings: Settings, before: Collection[float], *, reported: bool) -> dict[str, Any]:
    weights = {name: getattr(settings, f"{name}_weight") for name in SCORED}
    shares = {name: percent(*sample.resources[name][:2]) * weight for name, weight in weights.items() if weight}
    # A broker that reports NaN is quarantined, and shown without that figure.
    used = {name: round(share, 2) for name, share in shares.items() if _is_percent(share)} if reported else {}
    figure = score(sample, settings) if reported else math.nan
    recent = [value for value in (*before, figure) if _is_percent(value)]
    return {
        "score": round(figure, 2) if _is_percent(figure) else None,
        "resources": used,
        "deciding": max(used, key=lambda name: used[name], default=""),
        "lowest": rounded(min(recent, default=None)),
        "highest": rounded(max(recent, default=None)),
    }


def _is_percent(figure: float) -> bool:
    return abs(figure) <= _MOST_PERCENT  # False for NaN


def _of_late(storage: ClusterStorage, until: datetime) -> dict[str, tuple[float, float]]:
    """Return each broker's lowest and highest score in the half hour before a time."""
    recent: dict[int, StoragePath] = {}
    for at, folder in takewhile(lambda dated: dated[0] >= until - OF_LATE, storage.dated_runs(until)):
        recent[int(at.timestamp()) // _SLOT] = folder  # the first of each slot, so that the choice is stable
    ranges: dict[str, tuple[float, float]] = {}
    end = time.monotonic() + _READING
    for folder in recent.values():
        if time.monotonic() > end and not scores_are_known(folder):
            continue
        for broker, figure in known_scores(folder).by_broker.items():
            lowest, highest = ranges.get(broker, (figure, figure))
            ranges[broker] = (min(lowest, figure), max(highest, figure))
    return ranges


def short_names(brokers: Collection[str]) -> dict[str, str]:
    """Return a short unique name for each broker, without the port or domain if all brokers share it."""
    shorter = {broker: broker.rpartition(":")[0] or broker for broker in brokers}
    if len(set(shorter.values())) < len(shorter) or len({broker.rpartition(":")[2] for broker in brokers}) > 1:
        # On one machine, brokers differ only in their ports.
        hosts = {broker.rpartition(":")[0] for broker in brokers}
        return {broker: f":{broker.rpartition(':')[2]}" if len(hosts) == 1 else broker for broker in brokers}
    first = {broker: name.partition(".")[0] for broker, name in shorter.items()}
    one_domain = len({name.partition(".")[2] for name in shorter.values()}) == 1
    return first if one_domain and not any(name.isdecimal() for name in first.values()) else shorter
