"""The outcome of a stopped run: results for the bundles in progress, and the number of bundles not started."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, TypedDict

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
    """The outcome of a stop.

    Attributes:
        finished: reason code by bundle, for bundles that were in progress and have been completed.
        unfinished: bundles of the current wave that have no outcome. Those not yet started will not be started.
        not_begun: number of bundles that the run will not move or split, including later waves.
    """

    finished: dict[str, Reason]
    unfinished: tuple[str, ...]
    not_begun: int


class UnderWay(TypedDict):
    """The last recorded plan, its bundles in progress, and the number of its bundles without an outcome."""

    plan: str
    bundles: list[str]
    without_outcome: int


def under_way(store: StateStore, storage: ClusterStorage) -> UnderWay:
    """Return the last recorded plan, and its bundles that are in progress.

    Raises:
        StateError: `state_version`.
        SnapshotError: one of the run's files cannot be read.
    """
    plan = store.get(DecisionState).plan_id
    run, begun = storage.run(plan), _without_outcome(store, plan)
    to_do = _to_do(run) | begun if run else begun
    return UnderWay(plan=plan, bundles=sorted(begun), without_outcome=len(to_do))


def wait(store: StateStore, storage: ClusterStorage, found: UnderWay, longest_seconds: float) -> Stopped:
    """Wait until no bundle is in progress, and return the outcome of the stop.

    The task that carries out the plan checks for a stop before each bundle. Until this task ends, it is unknown which
    bundles it had started.

    Args:
        store: the cluster's store, in which the stop is already stored.
        found: the plan in progress when the stop was stored.
        longest_seconds: maximum time to wait. Bundles that have no outcome by then are `unfinished`.
    """
    until, begun = time.monotonic() + longest_seconds, set(found["bundles"])
    left = begun & _without_outcome(store, found["plan"])
    while left and time.monotonic() < until:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        left &= _without_outcome(store, found["plan"])
    run = storage.run(found["plan"])
    ended = {bundle: reason for bundle, reason in _reasons(run).items() if bundle in begun - left} if run else {}
    finished = {bundle: reason for bundle, reason in ended.items() if not reason.has(Trait.NOT_BEGUN)}
    return Stopped(finished, tuple(sorted(left)), found["without_outcome"] - len(finished) - len(left))


def in_progress(storage: ClusterStorage, plan: str, now: datetime) -> bool:
    """Return whether a plan's run is still in progress."""
    at, run = time_of(plan), storage.run(plan)
    return at is not None and run is not None and now - at <= LONGEST_RUN and not (run / "outcome.json").exists()


def _to_do(run: StoragePath) -> set[str]:
    """Return a plan's bundles without an outcome; empty once the run has ended."""
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
