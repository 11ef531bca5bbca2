"""A control that must lose: AvgShedder's trigger, and as many bundles as it would move, but drawn at random."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from random import Random
from typing import TYPE_CHECKING

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.shedders import avg_shedder

if TYPE_CHECKING:
    from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, SheddingResult

_BY_SIZE = (Reason.TAKEN, Reason.OVER_REMAINING, Reason.BELOW_SHARE)
"""Reasons of bundles that AvgShedder takes or passes over for their size."""


@dataclass(frozen=True, slots=True)
class Turn(ShedderState):
    """AvgShedder's state, and the number of runs so far, which seeds the draws."""

    runs: int = 0


def shed(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """Decide one run."""
    runs = kept.runs if isinstance(kept, Turn) else 0
    result = avg_shedder.shed(sample, kept)
    after = Turn(**{name.name: getattr(result.kept, name.name) for name in fields(ShedderState)}, runs=runs + 1)
    return result._replace(moves=drawn(result.moves, Random(runs)), kept=after)


def drawn(moves: list[CandidateMove], random: Random) -> list[CandidateMove]:
    """Return the candidates with as many of each pair taken as before, drawn from those that may move."""
    wanted = Counter(move.pair for move in moves if move.taken)
    taken: set[str] = set()
    for pair, count in sorted(wanted.items()):
        taken |= set(
            random.sample([move.bundle for move in moves if move.pair == pair and move.reason in _BY_SIZE], count)
        )
    return [
        move._replace(reason=Reason.TAKEN if move.bundle in taken else Reason.OVER_REMAINING)
        if move.reason in _BY_SIZE
        else move
        for move in moves
    ]


PROFILE = replace(avg_shedder.PROFILE, shed=shed)
