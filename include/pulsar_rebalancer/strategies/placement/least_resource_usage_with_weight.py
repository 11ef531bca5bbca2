"""LeastResourceUsageWithWeight: any of the brokers that are clearly below the candidates' average usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.strategies.kept import PlacementState
from pulsar_rebalancer.strategies.placement.selector import Stateless, usages
from pulsar_rebalancer.strategies.scoring import smooth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.strategies.sample import BrokerSample, BundleSample, ClusterSample


def below_average(candidates: Sequence[str], usage: Mapping[str, float], difference: float) -> list[str]:
    """Return the candidates below the average by a difference, or all of them where none is.

    Args:
        candidates: brokers.
        usage: usage by broker, 1 is 100 percent; candidates without one have no part in the average.
        difference: in the unit of usage.
    """
    known = [usage[broker] for broker in candidates if broker in usage]
    if not known:
        return list(candidates)
    average = sum(known) / len(known)
    best = [broker for broker in candidates if broker in usage and usage[broker] + difference <= average]
    return best or list(candidates)


class LeastResourceUsageWithWeight:
    """The form of the modular load manager: it keeps moving averages of its own.

    (org.apache.pulsar.broker.loadbalance.impl.LeastResourceUsageWithWeight.)

    Args:
        sample: the cluster.
        kept: `averages`.
    """

    def __init__(self, sample: ClusterSample, kept: PlacementState) -> None:
        self._settings = sample.settings
        self._difference = sample.settings.usage_difference / 100
        self._usage = usages(sample)
        self._idle = {broker.broker for broker in sample.taking_part if _is_idle(broker)}
        listed = {broker.broker for broker in sample.brokers}
        # Averages of brokers that are gone end here; Pulsar drops them when it is told of the active brokers.
        self._averages = {broker: average for broker, average in kept.averages.items() if broker in listed}

    def eligible(self, bundle: str, candidates: Sequence[str]) -> list[str]:
        """Return the candidates below their average; every call moves their averages on."""
        for broker in candidates:
            before = None if broker in self._idle else self._averages.get(broker)
            self._averages[broker] = smooth(before, self._usage[broker], self._settings)
        return below_average(candidates, self._averages, self._difference)

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing: only reports change the usage."""

    def kept(self) -> PlacementState:
        """Return the averages."""
        return PlacementState(averages=dict(sorted(self._averages.items())))


class ExtensibleLeastResourceUsageWithWeight(Stateless):
    """The form of the extensible load manager: brokers report their moving averages themselves.

    (org.apache.pulsar.broker.loadbalance.extensions.strategy.LeastResourceUsageWithWeight.)

    Args:
        sample: the cluster, with the brokers' `load_average`.
    """

    def __init__(self, sample: ClusterSample) -> None:
        self._difference = sample.settings.usage_difference / 100
        self._usage = {
            broker.broker: broker.load_average for broker in sample.taking_part if broker.load_average is not None
        }

    def eligible(self, bundle: str, candidates: Sequence[str]) -> list[str]:
        """Return the candidates below their average; a broker without one is never the best."""
        return below_average(candidates, self._usage, self._difference)


def _is_idle(broker: BrokerSample) -> bool:
    """Return whether the broker's past says nothing about it: it has no bundles or no messages."""
    return not broker.bundles or not (broker.msg_rate_in or broker.msg_rate_out)
