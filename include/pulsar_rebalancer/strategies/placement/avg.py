"""AvgShedder as placement: the planned destination, any candidate for a bundle without a plan (5.0.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.strategies.placement.selector import Stateless

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class Plan(NamedTuple):
    """Where shedding wants a bundle to go."""

    source: str
    destination: str


class AvgPlacement(Stateless):
    """The placement half of AvgShedder (AvgShedder.selectBroker of Pulsar 5.0.1).

    Plans are those of one shedding run; up to 4.2 they were kept under the bundle's traffic figures and got lost when
    these changed, which is not followed.

    Args:
        plans: by bundle.
        overloaded: brokers above the overload threshold.
    """

    def __init__(self, plans: Mapping[str, Plan], overloaded: Collection[str]) -> None:
        self._plans = plans
        self._overloaded = overloaded

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return the planned destination, or what takes its place when it is no candidate or overloaded."""
        plan = self._plans.get(bundle)
        if plan is None:
            return candidates
        others = [broker for broker in candidates if broker not in plan]
        if plan.destination not in candidates:
            return others
        if plan.destination in self._overloaded:
            return [broker for broker in others if broker not in self._overloaded] or [plan.destination]
        return [plan.destination]
