"""Predict the effect of removing a broker: where a complete drain would place the broker's bundles."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.decide.sources import requested
from pulsar_rebalancer.decide.sources.drains import NEVER, of_broker
from pulsar_rebalancer.decide.sources.wanted import candidates_of, placed
from pulsar_rebalancer.decide.spare_capacity import SpareCapacity
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.scoring import scores_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.run.snapshot import Snapshot
    from pulsar_rebalancer.strategies.sample import CandidateMove


class Removal(NamedTuple):
    """The predicted effect of removing a broker.

    Attributes:
        bundles: number of bundles that have to move.
        highest: highest predicted score among the remaining brokers, in percent.
        limit: highest score that a remaining broker may reach, in percent.
        stay: number of bundles that cannot move to any other broker, by reason.
    """

    broker: str
    bundles: int
    highest: float
    limit: float
    stay: Counter[Reason]

    @property
    def fits(self) -> bool:
        """Return whether the other brokers can take all bundles."""
        return not self.stay


def sample_of(snapshot: Snapshot) -> PlanningSample:
    """Return the input for `removal`, without caps and the grace period, which only slow a drain down.

    Raises:
        SnapshotError, StateError: one of the run's files cannot be read.
    """
    return PlanningSample.read(snapshot, {Overrule.CAPS, Overrule.GRACE_PERIOD})


def removal(sample: PlanningSample, broker: str, limit: float | None = None) -> Removal:
    """Predict the effect of removing a broker: its bundles are placed on the others as a drain would place them.

    Bundles that never move, such as bundles without topics, are ignored. Bundles still on other drained brokers need
    capacity as well.

    Args:
        sample: the result of `sample_of`, for a rolling restart with its rules (`PlanningSample.of_roll`).
        limit: highest score that a remaining broker may reach, in percent; None for `overloaded_threshold`.

    Raises:
        PlanError: `unknown_destination`, `last_broker`, or the reason why the removal cannot be predicted.
        SnapshotError: one of the run's files cannot be read.
    """
    sample = sample.draining([broker])
    if limit is not None:
        sample = sample.with_settings(overloaded_threshold=limit)
    drained = [name for name, why in sample.left_out.items() if why is Reason.DRAINING and name != broker]
    moves = _fitted(sample, broker, drained)
    # Callers ask about many brokers, whose bundles together would not fit into memory.
    sample.bundles.forget(broker)
    after = scores_after(sample.scores, [move for move in moves if move.taken], sample.traffic)
    mine = Counter(move.reason for move in moves if move.source == broker and move.reason not in NEVER)
    bundles = mine.total()
    del mine[Reason.TAKEN]
    highest = max(after[name] for name in after.keys() - sample.left_out.keys())
    return Removal(broker, bundles, highest, sample.settings.overloaded_threshold, mine)


def _fitted(sample: PlanningSample, broker: str, drained: Sequence[str]) -> list[CandidateMove]:
    """Return the moves of bundles off brokers already being drained, then the moves of this broker's bundles."""
    mine = candidates_of(sample, requested.drain(sample, [broker]))
    before = [move for name in drained for move in of_broker(sample, name)]
    leaving, moves = [*drained, broker], []
    room = SpareCapacity(dict.fromkeys(leaving, sample), dict.fromkeys(leaving, ()))
    for wanted in placed(sample, [*candidates_of(sample, before, -len(drained)), *mine]):
        move = room.fitted([wanted])[0] if wanted.taken else wanted
        if move.taken:
            room.take([move])
        moves.append(move)
    return moves
