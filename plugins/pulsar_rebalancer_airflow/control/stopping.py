"""What became of the run that somebody stopped: which bundles came to their end, and how many were not begun."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import read_waves
from pulsar_rebalancer.run.splits import read_outcomes

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer_airflow.state_store import StateStore

_SECONDS_BETWEEN_LOOKS = 1.0


class Stopped(NamedTuple):
    """What a stop found.

    Attributes:
        finished: reason code by bundle that was under way and has come to its end.
        unfinished: bundles that are still under way; those of them that were not begun will not be.
        not_begun: how many bundles were left where they are.
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
    plan, until = store.decision().plan_id, time.monotonic() + longest_seconds
    planned = _without_outcome(store, plan)
    left = planned
    while left and time.monotonic() < until:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        left = planned & _without_outcome(store, plan)
    run = storage.run(plan)
    outcomes = {**read_waves(run), **read_outcomes(run)} if run is not None else {}
    ended = {bundle: outcomes[bundle].reason for bundle in sorted(planned - left) if bundle in outcomes}
    finished = {bundle: reason for bundle, reason in ended.items() if not reason.has(Trait.NOT_BEGUN)}
    return Stopped(finished, tuple(sorted(left)), len(ended) - len(finished))


def _without_outcome(store: StateStore, plan: str) -> set[str]:
    moves = store.moves()
    return {
        bundle
        for bundle, known in (*moves.unloads.items(), *moves.splits.items())
        if known.plan_id == plan and not known.outcome
    }
