"""Predict whether the other brokers can take the bundles of a broker that a rolling restart drains."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.decide.sources import requested
from pulsar_rebalancer.decide.sources.drains import NEVER
from pulsar_rebalancer.decide.sources.wanted import candidates_of, placed
from pulsar_rebalancer.decide.spare_capacity import SpareCapacity
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from pulsar_rebalancer.run.snapshot import Snapshot


class Removal(NamedTuple):
    """The predicted effect of removing a broker.

    Attributes:
        bundles: number of bundles that have to move.
        limit: highest score that a remaining broker may reach, in percent.
        stay: number of bundles that cannot move to any other broker, by reason.
    """

    bundles: int
    limit: float
    stay: Counter[Reason]


def sample_of(snapshot: Snapshot) -> PlanningSample:
    """Return the input for `removal`, without the grace period, which only slows a drain down.

    Raises:
        SnapshotError, StateError: one of the run's files cannot be read.
    """
    return PlanningSample.read(snapshot, {Overrule.GRACE_PERIOD}).of_roll()


def removal(sample: PlanningSample, broker: str) -> Removal:
    """Predict the effect of removing a broker: its bundles are placed on the others as a drain would place them.

    Bundles that never move, such as bundles without topics, are ignored.

    Raises:
        PlanError: `unknown_destination`, `last_broker`, or the reason why the removal cannot be predicted.
        SnapshotError: one of the run's files cannot be read.
    """
    sample = sample.draining([broker])
    room, ends = SpareCapacity({broker: sample}), Counter[Reason]()
    for wanted in placed(sample, candidates_of(sample, requested.drain(sample, [broker]))):
        move = room.fitted([wanted])[0] if wanted.taken else wanted
        if move.taken:
            room.take([move])
        if move.reason not in NEVER:
            ends[move.reason] += 1
    # Callers ask about many brokers, whose bundles together would not fit into memory.
    sample.bundles.forget(broker)
    bundles = ends.total()
    del ends[Reason.TAKEN]
    return Removal(bundles, sample.settings.overloaded_threshold, ends)
