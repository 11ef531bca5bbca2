"""What selection means for the decisions, and where scores would end if they follow traffic."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_rebalancer.reasons import REASONS
from pulsar_rebalancer.state import HitCount
from pulsar_rebalancer.strategies.caps import CAPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SELECTED = ("taken", *CAPPED)
"""Reasons of the bundles that selection chose, whatever a cap said afterwards."""


class Prediction(NamedTuple):
    """Smallest and largest score after the moves, percent; None when no broker was judged."""

    smallest: float | None
    largest: float | None


def complete(decisions: Iterable[Mapping[str, Any]], moves: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Decisions with what their pairs move; a fired pair without a bundle is `no_fitting_bundle`.

    Args:
        decisions: rows of the decisions table of one cluster.
        moves: rows of its moves table; those that selection did not choose may be missing.
    """
    chosen = sorted((row for row in moves if row["reason"] in SELECTED), key=lambda row: row["pair"])
    of_pair = {pair: list(rows) for pair, rows in groupby(chosen, key=lambda row: row["pair"])}
    completed = []
    for decision in decisions:
        rows = of_pair.get(decision["pair"], []) if decision["measure"] is not None else []
        taken = [row["traffic"] for row in rows if row["taken"]]
        reason = "no_fitting_bundle" if decision["reason"] == "fired" and not rows else decision["reason"]
        # fsum does not depend on the order in which the rows come.
        completed.append({**decision, "reason": reason, "bundles_taken": len(taken), "traffic_taken": math.fsum(taken)})
        completed[-1]["explanation"] = decision.get("explanation") or explain(completed[-1])
    return completed


def explain(decision: Mapping[str, Any]) -> str:
    """What became of a broker or pair, in a sentence.

    Args:
        decision: a completed row of the decisions table.
    """
    if decision["gap"] is None:
        return f"{decision['source']} is left out. {REASONS[decision['reason']].meaning}"
    pair = f"{decision['source']} is {decision['gap']:.1f} points above {decision['destination']}"
    hits = f"{decision['low_hits']} low and {decision['high_hits']} high hits"
    moves = f" To move: {decision['bundles_taken']} bundles." if decision["fired"] else ""
    return f"{pair}, {hits}. {REASONS[decision['reason']].meaning}{moves}"


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
