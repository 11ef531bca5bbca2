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
    """Placement for bundles without a planned destination (AvgShedder.selectBroker, Pulsar 5.0.1)."""

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        return candidates


def selector(sample: ClusterSample, state: PlacementState) -> Selector:
    """Return the placement for bundles to which the shedder assigns no destination."""
    name = placement_of(sample.settings)
    if name is Placement.ROUND_ROBIN:
        return RoundRobin(state)
    if name is Placement.AVG:
        return AvgPlacement()
    if name is Placement.LEAST_RATE:
        return LeastLongTermMessageRate(sample.bundles.long_term_msg_rates(), overloaded(sample))
    if any(broker.load_average is not None for broker in sample.taking_part):
        return ExtensibleLeastResourceUsageWithWeight(sample)
    return LeastResourceUsageWithWeight(sample, state)


def place(
    sample: ClusterSample, moves: Iterable[CandidateMove], policies: PolicyFilter, state: PlacementState, seed: str
) -> tuple[list[CandidateMove], PlacementState]:
    """Choose destinations for moves without a destination, and check those that the shedder planned.

    Return the moves, sorted by pair and rank, and the placement's new state. Every accepted move has a
    destination; a refused one has a `reason` with `Trait.KEPT_IN_PLACE`. Bundles of a swap are placed
    together or not at all.

    A placed bundle counts as owned by its destination for later ones, although its move could still fail; so
    `caps.apply` allows only one bundle per anti-affinity group. This follows
    ModularLoadManagerImpl.doLoadShedding and selectBroker, but Pulsar does not check planned destinations.
    The same `seed` gives the same plan.
    """
    chooser = selector(sample, state)
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
    return in_order(placed), chooser.state()


def _destination(
    move: CandidateMove, policies: PolicyFilter, chooser: Selector, hot: Collection[str], seed: str
) -> str | Reason:
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
    """Return the placement's choice; if that is overloaded, choose again from all permitted brokers."""
    first = choose(seed, bundle, chooser.eligible(bundle, policies.candidates(bundle)))
    if first not in hot:
        return first
    return choose(seed, bundle, chooser.eligible(bundle, policies.policy_set(bundle))) or first
