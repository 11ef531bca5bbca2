"""Assign each accepted bundle a destination that policies allow, or refuse the bundle with a reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.caps import in_order, units
from pulsar_rebalancer.strategies.placement.least_loaded import (
    ExtensibleLeastResourceUsageWithWeight,
    LeastLongTermMessageRate,
    LeastResourceUsageWithWeight,
)
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.placement.selector import RoundRobin, Selector, Stateless, choose, overloaded
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample
from pulsar_rebalancer.strategies.shedders.registry import placement_of
from pulsar_rebalancer.strategies.strategy_state import PlacementState


class AvgPlacement(Stateless):
    """AvgShedder's placement for bundles without a planned destination. All candidates are eligible.

    As in AvgShedder.selectBroker of Pulsar 5.0.1.
    """

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return all candidates."""
        return candidates


def selector(sample: ClusterSample, kept: PlacementState) -> Selector:
    """Return the placement for bundles to which the shedder assigns no destination.

    Args:
        sample: the cluster, with its settings.
        kept: the placement's state after the last counted run.
    """
    name = placement_of(sample.settings)
    if name is Placement.ROUND_ROBIN:
        return RoundRobin(kept)
    if name is Placement.AVG:
        return AvgPlacement()
    if name is Placement.LEAST_RATE:
        return LeastLongTermMessageRate(sample.bundles.long_term_msg_rates(), overloaded(sample))
    if any(broker.load_average is not None for broker in sample.taking_part):
        return ExtensibleLeastResourceUsageWithWeight(sample)
    return LeastResourceUsageWithWeight(sample, kept)


def place(
    sample: ClusterSample, moves: Iterable[CandidateMove], policies: PolicyFilter, kept: PlacementState, seed: str
) -> tuple[list[CandidateMove], PlacementState]:
    """Choose destinations for moves without a destination, and check the destinations that the shedder planned.

    Bundles are placed one after another, in order of pair and rank; those of a swap are placed together or not at all.
    Once placed, a bundle counts as owned by its destination when later bundles are placed, although its move could
    still fail or be rejected by a cap. `caps.apply` therefore allows only one bundle per anti-affinity group to move.

    This follows ModularLoadManagerImpl.doLoadShedding and selectBroker. Planned destinations are checked here, although
    Pulsar does not check them.

    Args:
        policies: filter for the brokers that may receive a bundle; it keeps count of the bundles that are placed.
        kept: the placement's state after the last counted run.
        seed: seed for choosing between equal destinations; the same seed gives the same plan.

    Returns:
        The moves, sorted by pair and rank, and the placement's new state. Every accepted move has a destination. A
        refused move has a `reason` with `Trait.KEPT_IN_PLACE`.
    """
    chooser = selector(sample, kept)
    hot = overloaded(sample)
    taken, placed = units(moves)
    for unit in taken:
        destinations = [_destination(move, policies, chooser, hot, seed) for move in unit]
        refused = next((reason for reason in destinations if isinstance(reason, Reason)), None)
        if refused is not None:
            placed += [move._replace(reason=refused) for move in unit]
            continue
        for move, destination in zip(unit, destinations, strict=True):
            placed.append(move._replace(destination=destination))
            bundle = sample.bundles.find(move.source, move.bundle)
            chooser.placed(bundle, destination)
            policies.placed(bundle, destination)
    return in_order(placed), chooser.kept()


def _destination(
    move: CandidateMove, policies: PolicyFilter, chooser: Selector, hot: Collection[str], seed: str
) -> str | Reason:
    """Return the move's destination, or the reason why it has no destination."""
    if move.destination == move.source:
        return Reason.SAME_BROKER
    if move.destination is not None:
        return policies.forbids(move.bundle, move.source, move.destination) or move.destination
    held = policies.holds(move.bundle, move.source)
    if held is not None:
        return held
    chosen = _choose(move.bundle, policies, chooser, hot, seed)
    if chosen is None:
        return Reason.NO_DESTINATION
    return Reason.SAME_BROKER if chosen == move.source else chosen


def _choose(bundle: str, policies: PolicyFilter, chooser: Selector, hot: Collection[str], seed: str) -> str | None:
    """Return the broker that the placement chooses. If it is overloaded, choose again from all permitted brokers."""
    first = choose(seed, bundle, chooser.eligible(bundle, policies.candidates(bundle)))
    if first not in hot:
        return first
    return choose(seed, bundle, chooser.eligible(bundle, policies.policy_set(bundle))) or first
