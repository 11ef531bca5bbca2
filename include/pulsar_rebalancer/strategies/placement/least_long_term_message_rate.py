"""LeastLongTermMessageRate: the broker whose bundles carry the fewest messages in the long run."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pulsar_rebalancer.strategies.kept import PlacementState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pulsar_rebalancer.strategies.sample import BundleSample


class LeastLongTermMessageRate:
    """The smallest long-term message rate wins, overloaded brokers last (LeastLongTermMessageRate.selectBroker).

    Args:
        rates: long-term message rate by broker, msg/s in and out, over its bundles (TimeAverageBrokerData).
        overloaded: brokers above the overload threshold.
    """

    def __init__(self, rates: Mapping[str, float], overloaded: Collection[str]) -> None:
        self._reported = rates
        self._rates = dict(rates)
        self._overloaded = overloaded
        self._preallocated: dict[str, dict[str, float]] = defaultdict(dict)

    def eligible(self, bundle: str, candidates: Sequence[str]) -> list[str]:
        """Return the candidates with the smallest rate; all of them when all are overloaded."""
        rates = {broker: self._rates.get(broker, 0.0) for broker in candidates if broker not in self._overloaded}
        least = min(rates.values(), default=None)
        return [broker for broker in candidates if rates.get(broker) == least]

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Count the bundle's rate on its broker (BrokerData.preallocatedBundleData)."""
        given = self._preallocated[broker]
        rate = bundle.long_term_msg_rate
        given[bundle.bundle] = bundle.msg_rate if rate is None else rate
        self._rates[broker] = self._reported.get(broker, 0.0) + sum(given.values())

    def kept(self) -> PlacementState:
        """Return nothing: by the next run the bundles are in the reports."""
        return PlacementState()
