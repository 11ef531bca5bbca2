"""Complete a run's decisions: add the number of bundles that move after policies and caps."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.strategies.wording import gap_and_hits, moving

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_rebalancer.strategies.sample import CandidateMove, Decision

CAPPED, KEPT_IN_PLACE = Reason.having(Trait.CAP), Reason.having(Trait.KEPT_IN_PLACE)
HELD_BACK = CAPPED | KEPT_IN_PLACE
"""Reasons why caps, policies or placement hold back a bundle that would otherwise move."""


def reasons_by_pair(moves: Iterable[CandidateMove]) -> dict[int, Counter[Reason]]:
    """Return, for each pair, the number of candidates with each reason. All candidates belong to one cluster."""
    counts: dict[int, Counter[Reason]] = {}
    for (pair, reason), count in Counter(map(attrgetter("pair", "reason"), moves)).items():
        counts.setdefault(pair, Counter())[reason] = count
    return counts


def complete(
    decisions: Iterable[Decision], taken: Iterable[CandidateMove], reasons: Mapping[int, Mapping[Reason, int]]
) -> list[Decision]:
    """Return the decisions with the number and traffic of the bundles that move after policies and caps.

    If a pair fired but none of its bundles moves, the decision also gets the reason.

    Args:
        decisions: one cluster's decisions.
        taken: the cluster's accepted candidates.
        reasons: the result of `reasons_by_pair` for all candidates of the cluster.
    """
    of_pair: dict[int | None, list[CandidateMove]] = {}
    for move in sorted(taken, key=lambda move: (move.pair, move.rank)):
        of_pair.setdefault(move.pair, []).append(move)
    return [
        _completed(
            decision, of_pair.get(decision.pair, []), {} if decision.pair is None else reasons.get(decision.pair, {})
        )
        for decision in decisions
    ]


def _completed(decision: Decision, taken: Sequence[CandidateMove], reasons: Mapping[Reason, int]) -> Decision:
    reason = decision.reason
    if reason is Reason.FIRED and not reasons.keys() & {Reason.TAKEN, *CAPPED}:
        reason = Reason.NO_ALLOWED_BUNDLE if reasons.keys() & KEPT_IN_PLACE else Reason.NO_FITTING_BUNDLE
    completed = replace(
        decision,
        reason=reason,
        bundles_taken=len(taken),
        # fsum does not depend on the order of the moves.
        traffic_taken=math.fsum(move.traffic for move in taken),
    )
    explanation = decision.explanation or explain(completed)
    if decision.measure is not None:
        explanation = f"{explanation.rstrip('.')}. {taken_and_passed_over(taken, reasons)}"
    return replace(completed, explanation=explanation)


def taken_and_passed_over(taken: Sequence[CandidateMove], reasons: Mapping[Reason, int]) -> str:
    """Return two sentences: one about the bundles that move, one about those passed over and the reasons.

    Args:
        taken: accepted candidates, sorted by pair and rank.
        reasons: number of candidates with each reason.
    """
    destination_of_pair = {move.pair: move.destination for move in reversed(taken)}
    there = [move for move in taken if move.source != destination_of_pair[move.pair]]
    back = [move for move in taken if move.source == destination_of_pair[move.pair]]
    words = f"Taken: {moving(there)}" + (f", {moving(back)} in return" if back else "")
    passed_over = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()) if reason != Reason.TAKEN)
    return f"{words}. Passed over: {passed_over}." if passed_over else f"{words}."


def explain(decision: Decision) -> str:
    """Return a sentence that states AvgShedder's result for a broker or pair."""
    if decision.gap is None:
        return f"{decision.source} is left out. {decision.reason.meaning}"
    return f"{gap_and_hits(decision)}. {decision.reason.meaning}"
