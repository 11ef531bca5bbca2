"""What a source of a plan wants: moves, perhaps with destinations, and the decisions that explain them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.request import DrainProgress
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state import PlacementState, StrategyState
from pulsar_rebalancer.strategies.caps import CapacityCheck
from pulsar_rebalancer.strategies.placement import assignment
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision
from pulsar_rebalancer.texts import one_line

MEASURE = Measure.THROUGHPUT

_NAMES = 500
"""Maximum length of a broker list in a sentence, in characters."""


class RequestedMove(NamedTuple):
    """A bundle that a source wants to move.

    Attributes:
        destination: brokerId of the new owner; None if placement chooses it.
        reason: why the bundle must not be moved, if this is already known; else None.
        source: broker whose report is used, as two can report a bundle; None to use the owner's.
    """

    bundle: str
    destination: str | None = None
    reason: Reason | None = None
    source: str | None = None


class SourceReport(NamedTuple):
    """What a source says of its moves once the caps are applied; for the fields, see `planning.Plan`."""

    decisions: list[Decision]
    sentence: str = ""
    traffic: Mapping[str, float] = {}
    samples: Mapping[str, float] = {}
    drains: Mapping[str, DrainProgress] = {}


@dataclass(frozen=True)
class Wanted:
    """What one source wants.

    Attributes:
        moves: candidates with destinations, before the caps, each taken or with the reason why it stays.
        report: returns what the source says of its moves after the caps.
        state: the strategy's state for the next run; None if the source does not change it.
        room: returns a new check against moves that would overload a broker; None for no check.
        regrouped: gives the moves their pairs if the caps needed another order; None if the pairs stay.
    """

    moves: list[CandidateMove]
    report: Callable[[Sequence[CandidateMove]], SourceReport]
    state: StrategyState | None = None
    room: Callable[[], CapacityCheck] | None = None
    regrouped: Callable[[Sequence[CandidateMove]], list[CandidateMove]] | None = None


def candidates_of(
    sample: PlanningSample, requested: Iterable[RequestedMove], first_pair: int = 0
) -> list[CandidateMove]:
    """Convert requested moves to candidates, a pair number for each source, most traffic first."""
    of_source: dict[str, list[RequestedMove]] = {}
    for move in requested:
        source = sample.owners.get(move.bundle, "") if move.source is None else move.source
        of_source.setdefault(source, []).append(move)
    candidates = []
    # Bundles that no broker reports come last.
    for pair, source in enumerate(sorted(of_source, key=lambda name: (not name, name)), first_pair):
        known = [
            (move, sample.bundles.find(source, move.bundle) if source else BundleSample("", move.bundle))
            for move in of_source[source]
        ]
        ordered = sorted(known, key=lambda item: (-item[1].mean(MEASURE), item[1].bundle))
        candidates += [
            CandidateMove.of(
                bundle,
                pair=pair,
                rank=rank,
                measure=MEASURE,
                reason=move.reason or sample.stays(bundle) or Reason.TAKEN,
                destination=move.destination,
            )
            for rank, (move, bundle) in enumerate(ordered)
        ]
    return candidates


def placed(sample: PlanningSample, moves: Iterable[CandidateMove]) -> list[CandidateMove]:
    """Return the moves with their destinations, passed over if policies allow none."""
    seed = sample.snapshot.folder.name
    return assignment.place(sample.cluster_sample, moves, sample.policy_filter(), PlacementState(), seed)[0]


def giving(
    sample: PlanningSample, moves: Sequence[CandidateMove], reason: Reason, explanation: str, sentence: str
) -> SourceReport:
    """Report a source whose brokers give bundles to others that need them; no decisions if nothing moves.

    Args:
        moves: candidates after the caps, with one negative pair number for each source.
        explanation: what each source does; the names of the receiving brokers are appended.
        sentence: what the plan does; `{}` is replaced with the names of the receiving brokers.
    """
    receiving = sorted({str(move.destination) for move in moves if move.taken})
    if not receiving:
        return SourceReport([])
    named = one_line(", ".join(receiving), _NAMES)
    pairs = {move.source: move.pair for move in moves}
    decisions = [
        Decision(
            source=source,
            reason=reason,
            pair=pair,
            source_score=sample.scores.get(source),
            fired=True,
            explanation=f"{source} {explanation} {named}",
            measure=MEASURE,
            target=math.fsum(move.traffic for move in moves if move.source == source),
        )
        for source, pair in pairs.items()
    ]
    return SourceReport(decisions, sentence.format(named), {source: sample.traffic[source] for source in pairs})
