"""Create the placement that a cluster's settings specify."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Placement
from pulsar_rebalancer.strategies.placement.least_long_term_message_rate import LeastLongTermMessageRate
from pulsar_rebalancer.strategies.placement.least_resource_usage_with_weight import (
    ExtensibleLeastResourceUsageWithWeight,
    LeastResourceUsageWithWeight,
)
from pulsar_rebalancer.strategies.placement.round_robin import RoundRobin
from pulsar_rebalancer.strategies.placement.selector import Stateless, overloaded
from pulsar_rebalancer.strategies.shedders.registry import placement_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.strategies.kept import PlacementState
    from pulsar_rebalancer.strategies.placement.selector import Selector
    from pulsar_rebalancer.strategies.sample import ClusterSample


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
