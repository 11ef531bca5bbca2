"""What became of the run that somebody stopped: which bundles came to their end, and how many were not begun."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.reasons import Trait
from pulsar_rebalancer.run.outcome import read_waves
from pulsar_rebalancer.run.plan import LONGEST_RUN, read_moves
from pulsar_rebalancer.run.splits import read_outcomes, read_splits
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState
from pulsar_rebalancer.storage.layout import time_of

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.reasons import Reason
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer_airflow.state_store import StateStore

_SECONDS_BETWEEN_LOOKS = 1.0


class Stopped(NamedTuple):
    """What a stop found.

    Attributes:
        finished: reason code by bundle that was under way and has come to its end.
        unfinished: bundles that are still under way; those of them that were not begun will not be.
        not_begun: how many bundles of the plan are left as they are, those of waves and splits to come among them.
    """

    finished: dict[str, Reason]
    unfinished: tuple[str, ...]
    not_begun: int


def wait(store: StateStore, storage: ClusterStorage, longest_seconds: float) -> Stopped:
    """Wait until the wave or the splits that are under way have come to their end; return what became of them.

    A task sees a stop before it begins a bundle, so only its end tells which bundles were under way.

    Args:
        store: of the cluster, where the stop is written already.
        storage: of the cluster.
        longest_seconds: after which those that are still under way are named as such.
    """
    plan, until = store.get(DecisionState).plan_id, time.monotonic() + longest_seconds
    planned = _without_outcome(store, plan)
    run = storage.run(plan)
    to_do = _to_do(run) | planned if run else planned
    left = planned
    while left and time.monotonic() < until:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        left = planned & _without_outcome(store, plan)
    ended = {bundle: reason for bundle, reason in _reasons(run).items() if bundle in planned - left} if run else {}
    finished = {bundle: reason for bundle, reason in ended.items() if not reason.has(Trait.NOT_BEGUN)}
    return Stopped(finished, tuple(sorted(left)), len(to_do - finished.keys() - left))


def under_way(storage: ClusterStorage, plan: str, now: datetime) -> bool:
    """Return whether the run of a plan has not come to its end yet."""
    at, run = time_of(plan), storage.run(plan)
    return at is not None and run is not None and now - at <= LONGEST_RUN and not (run / "outcome.json").exists()


def _to_do(run: StoragePath) -> set[str]:
    """Return the bundles of a plan that have no outcome yet; none once its run has come to its end."""
    if (run / "outcome.json").exists():
        return set()
    planned = {move.bundle for move in read_moves(run)} | {split.bundle for split in read_splits(run)}
    return planned - _reasons(run).keys()


def _reasons(run: StoragePath) -> dict[str, Reason]:
    moves = {bundle: outcome.reason for bundle, outcome in read_waves(run).items()}
    splits = {bundle: outcome.reason for bundle, outcome in read_outcomes(run).items()}
    return dict(sorted((moves | splits).items()))


def _without_outcome(store: StateStore, plan: str) -> set[str]:
    moves = store.get(MovesState)
    known = {bundle: (unload.plan_id, unload.outcome) for bundle, unload in moves.unloads.items()}
    known |= {bundle: (split.plan_id, split.outcome) for bundle, split in moves.splits.items()}
    return {bundle for bundle, (plan_id, outcome) in known.items() if plan_id == plan and not outcome}
