"""A broker's bundles in the newest run: the load of each bundle, and the cost of its messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.run.plan import read_state
from pulsar_rebalancer.show.page.plan_view import CostView
from pulsar_rebalancer.show.page.recent_runs import newest
from pulsar_rebalancer.strategies.kept import KeptState
from pulsar_rebalancer.strategies.scoring import relative_limits

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.state.learned import Learned
    from pulsar_rebalancer.state.state_documents import DecisionState
    from pulsar_rebalancer.storage.layout import ClusterStorage

LISTED = 20
"""Maximum number of bundles listed."""

_KNOWN = ["bundle", "quick_rate", "hour_rate", "cost", "cost_variance"]


def learned_in(state: DecisionState) -> Learned | None:
    """Return the figures that the strategy has learned; None if it has not learned anything."""
    learned = KeptState.parse(state.hits, state.kept).shedder.learned
    return learned if learned.samples else None


def bundle_costs(storage: ClusterStorage, broker: str, now: datetime) -> tuple[CostView, ...]:
    """Return a broker's bundles with the largest current load, largest first; empty if nothing was learned.

    Raises:
        SnapshotError: the newest sample or the costs cannot be read.
        StateError: the state of the newest run cannot be read.
    """
    run, _ = newest(storage, now)
    if run is None or run.summary is None:
        return ()
    state = read_state(run.folder)
    learned = learned_in(state)
    if learned is None or not state.costs:
        return ()
    owned = run.snapshot.table("bundles", ["bundle", "broker"])
    owned = owned.filter(pc.equal(owned["broker"], pa.scalar(broker)))
    known = (storage.state / state.costs).read_table(_KNOWN)
    known = known.filter(pc.is_in(known["bundle"], owned["bundle"]))
    points = learned.points / relative_limits(run.brokers, learned.bottleneck).get(broker, 1.0)
    views = (
        CostView(
            bundle=row["bundle"],
            now=round(points * row["cost"] * row["quick_rate"], 2),
            hour=round(points * row["cost"] * row["hour_rate"], 2),
            cost=round(row["cost"], 2),
            doubt=round(math.sqrt(row["cost_variance"]), 2),
        )
        for row in known.to_pylist()
    )
    return tuple(sorted(views, key=lambda view: (-view.now, view.bundle))[:LISTED])
