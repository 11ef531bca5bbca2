"""The hits that a run of AvgShedder leaves, and the figures that gave them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.state.state_documents import HitCount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.state.counting import Counting
    from pulsar_rebalancer.strategies.sample import Decision


def used_samples(decisions: Iterable[Decision], counting: Counting) -> dict[str, float]:
    """Return the scores that gave a hit, or by which a run that counts nothing moves bundles, by broker.

    Args:
        decisions: of one cluster, with what moves in the end.
        counting: how the run treats the counters.
    """
    found: dict[str, float] = {}
    for decision in decisions:
        if decision.low_hits is None:
            continue
        before = max(decision.source_low_before or 0, decision.destination_low_before or 0)
        if decision.low_hits > before if counting.counts else decision.bundles_taken > 0:
            ends = {decision.source: decision.source_score, decision.destination: decision.destination_score}
            found |= {broker: score for broker, score in ends.items() if broker is not None and score is not None}
    return found


def hits_after(decisions: Iterable[Decision]) -> dict[str, HitCount]:
    """Return the counts that the decisions leave behind, by broker, zero counts left out.

    Every broker that the cluster lists is in exactly one decision, so the counts of brokers that are gone end here;
    Pulsar keeps them until no pair is above the low threshold.
    """
    found = {}
    for decision in decisions:
        if decision.source_high is None:
            continue
        found[decision.source] = HitCount(decision.source_high, decision.source_low or 0)
        if decision.destination is not None:
            found[decision.destination] = HitCount(decision.destination_high or 0, decision.destination_low or 0)
    return {broker: hit for broker, hit in sorted(found.items()) if hit != HitCount()}
