"""The placement that a cluster's settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.choices import Placement
from pulsar_rebalancer.strategies.placement.avg import AvgPlacement
from pulsar_rebalancer.strategies.placement.least_long_term_message_rate import LeastLongTermMessageRate
from pulsar_rebalancer.strategies.placement.least_resource_usage_with_weight import (
    ExtensibleLeastResourceUsageWithWeight,
    LeastResourceUsageWithWeight,
)
from pulsar_rebalancer.strategies.placement.round_robin import RoundRobin
from pulsar_rebalancer.strategies.placement.selector import overloaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.strategies.placement.selector import Selector
    from pulsar_rebalancer.strategies.view import View


def selector(view: View, kept: Mapping[str, Any]) -> Selector:
    """The placement for the bundles that shedding gives no destination.

    Args:
        view: the cluster, with its settings.
        kept: what the same placement kept from the last counted run, `{}` at first.
    """
    name = view.settings.names_destinations
    if name is Placement.ROUND_ROBIN:
        return RoundRobin(kept)
    if name is Placement.AVG:
        # Bundles that AvgShedder has a plan for do not come here.
        return AvgPlacement({}, overloaded(view))
    if name is Placement.LEAST_RATE:
        return LeastLongTermMessageRate.of(view)
    if any(row.get("load_average") is not None for row in view.judged):
        return ExtensibleLeastResourceUsageWithWeight(view)
    return LeastResourceUsageWithWeight(view, kept)
