"""LeastLongTermMessageRate: the broker whose bundles carry the fewest messages in the long run."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Self

from pulsar_rebalancer.strategies.placement.selector import overloaded

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pulsar_rebalancer.strategies.view import View


class LeastLongTermMessageRate:
    """The smallest long-term message rate wins, overloaded brokers last (LeastLongTermMessageRate.selectBroker).

    Args:
        rates: long-term message rate by broker, msg/s in and out, over its bundles (TimeAverageBrokerData).
        of_bundle: long-term message rate by bundle, msg/s in and out.
        overloaded: brokers above the overload threshold.
    """

    def __init__(self, rates: Mapping[str, float], of_bundle: Mapping[str, float], overloaded: Collection[str]) -> None:
        self._reported = rates
        self._rates = dict(rates)
        self._of_bundle = of_bundle
        self._overloaded = overloaded
        self._preallocated: dict[str, dict[str, float]] = defaultdict(dict)

    @classmethod
    def of(cls, view: View) -> Self:
        """Over the bundles that brokers report."""
        rates = {row["broker"]: sum(map(_rate, view.bundles_of(row["broker"]))) for row in view.judged}
        return cls(rates, {row["bundle"]: _rate(row) for row in view.bundles}, overloaded(view))

    def eligible(self, bundle: str, candidates: Sequence[str]) -> list[str]:
        """Candidates with the smallest rate; all of them when all are overloaded."""
        rates = {broker: self._rates.get(broker, 0.0) for broker in candidates if broker not in self._overloaded}
        least = min(rates.values(), default=None)
        return [broker for broker in candidates if rates.get(broker) == least]

    def placed(self, bundle: str, broker: str) -> None:
        """Count the bundle's rate on its broker (BrokerData.preallocatedBundleData)."""
        given = self._preallocated[broker]
        given[bundle] = self._of_bundle.get(bundle, 0.0)
        self._rates[broker] = self._reported.get(broker, 0.0) + sum(given.values())

    def document(self) -> dict[str, Any]:
        """Nothing: by the next run the bundles are in the reports."""
        return {}


def _rate(bundle: Mapping[str, Any]) -> float:
    """Long-term mean; the short-term one where none is kept yet."""
    rate = bundle.get("long_term_msg_rate")
    return float(bundle["msg_rate"] if rate is None else rate)
