"""What moves in the end, what that means for the decisions, and where scores would end if they follow traffic."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_rebalancer.reasons import REASONS
from pulsar_rebalancer.state import HitCount
from pulsar_rebalancer.strategies.caps import CAPPED
from pulsar_rebalancer.strategies.view import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

REFUSED = {
    *("policy_unknown", "policy_forbids", "namespace_policy", "anti_affinity"),
    *("too_many_topics", "no_destination", "same_broker"),
}
"""Reasons of the bundles that policies or placement keep where they are."""

HELD_BACK = {*CAPPED, *REFUSED}
"""Reasons of the bundles that would move but for caps, policies and placement."""


class Prediction(NamedTuple):
    """Smallest and largest score after the moves, percent; None when no broker was judged."""

    smallest: float | None
    largest: float | None


def reasons_by_pair(moves: Iterable[Mapping[str, Any]]) -> dict[int, Counter[str]]:
    """How many rows of the moves table of one cluster have which reason, by pair."""
    found: dict[int, Counter[str]] = {}
    for row in moves:
        found.setdefault(row["pair"], Counter())[row["reason"]] += 1
    return found


def complete(
    decisions: Iterable[Mapping[str, Any]],
    taken: Iterable[Mapping[str, Any]],
    reasons: Mapping[int, Mapping[str, int]],
) -> list[dict[str, Any]]:
    """Decisions with what their pairs move in the end; a fired pair that moves nothing says so.

    Args:
        decisions: rows of the decisions table of one cluster.
        taken: taken rows of its moves table.
        reasons: as `reasons_by_pair` gives them, over all rows of that table.
    """
    of_pair: dict[int, list[Mapping[str, Any]]] = {}
    for row in sorted(taken, key=lambda row: (row["pair"], row["rank"])):
        of_pair.setdefault(row["pair"], []).append(row)
    return [_completed(row, of_pair.get(row["pair"], []), reasons.get(row["pair"], {})) for row in decisions]


def _completed(
    decision: Mapping[str, Any], taken: Sequence[Mapping[str, Any]], reasons: Mapping[str, int]
) -> dict[str, Any]:
    reason = decision["reason"]
    if reason == "fired" and not reasons.keys() & {"taken", *CAPPED}:
        reason = "no_allowed_bundle" if reasons.keys() & REFUSED else "no_fitting_bundle"
    row = {
        **decision,
        "reason": reason,
        "bundles_taken": len(taken),
        # fsum does not depend on the order in which the rows come.
        "traffic_taken": math.fsum(move["traffic"] for move in taken),
    }
    explanation = decision["explanation"] or explain(row)
    moving = decision["measure"] is not None
    return row | {"explanation": f"{explanation.rstrip('.')}. {told(taken, reasons)}" if moving else explanation}


def told(taken: Sequence[Mapping[str, Any]], reasons: Mapping[str, int]) -> str:
    """What moves in the end and what is passed over, in two sentences.

    Args:
        taken: taken rows of the moves table, by pair and rank.
        reasons: how many rows of it have which reason.
    """
    source_of_pair = {row["pair"]: row["source"] for row in reversed(taken)}
    there = [row for row in taken if row["source"] == source_of_pair[row["pair"]]]
    back = [row for row in taken if row["source"] != source_of_pair[row["pair"]]]
    words = f"Taken: {amount_of(there)}" + (f", {amount_of(back)} in return" if back else "")
    passed_over = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()) if reason != "taken")
    return f"{words}. Passed over: {passed_over}." if passed_over else f"{words}."


def explain(decision: Mapping[str, Any]) -> str:
    """What AvgShedder found about a broker or pair, in a sentence.

    Args:
        decision: a row of the decisions table.
    """
    if decision["gap"] is None:
        return f"{decision['source']} is left out. {REASONS[decision['reason']].meaning}"
    pair = f"{decision['source']} is {decision['gap']:.1f} points above {decision['destination']}"
    hits = f"{decision['low_hits']} low and {decision['high_hits']} high hits"
    return f"{pair}, {hits}. {REASONS[decision['reason']].meaning}"


def predict(
    scores: Mapping[str, float], moves: Iterable[Mapping[str, Any]], source_traffic: Mapping[str, float]
) -> Prediction:
    """Scores after the moves: what leaves a source takes its share of the score along.

    Args:
        scores: of the judged brokers, percent.
        moves: taken rows of the moves table of one cluster.
        source_traffic: current traffic of each source that gives bundles, in the measure of its moves.
    """
    carried: dict[str, dict[str, list[float]]] = {}
    for row in moves:
        carried.setdefault(row["source"], {}).setdefault(row["destination"], []).append(row["traffic"])
    after = dict(scores)
    for source in sorted(carried):
        flows = {destination: math.fsum(figures) for destination, figures in sorted(carried[source].items())}
        # The bundles' means may exceed what the broker reports now.
        whole = max(source_traffic[source], math.fsum(flows.values()))
        for destination, traffic in flows.items():
            moved = scores[source] * traffic / whole if whole > 0 else 0.0
            after[source] -= moved
            after[destination] = after.get(destination, 0.0) + moved
    return Prediction(min(after.values(), default=None), max(after.values(), default=None))


def hits_after(decisions: Iterable[Mapping[str, Any]]) -> dict[str, HitCount]:
    """Counts that the decisions leave behind, by broker, zero counts left out.

    Every broker that the cluster lists is in exactly one decision, so the counts of brokers that are gone end here;
    Pulsar keeps them until no pair is above the low threshold.
    """
    found = {}
    for row in decisions:
        if row["source_high"] is None:
            continue
        found[row["source"]] = HitCount(row["source_high"], row["source_low"])
        if row["destination"] is not None:
            found[row["destination"]] = HitCount(row["destination_high"], row["destination_low"])
    return {broker: hit for broker, hit in sorted(found.items()) if hit != HitCount()}
