"""LeastResourceUsageWithWeight: any of the brokers that are clearly below the candidates' average usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.strategies.placement.selector import Stateless, usages
from pulsar_rebalancer.strategies.scoring import smooth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.strategies.view import View


def below_average(candidates: Sequence[str], usage: Mapping[str, float], difference: float) -> list[str]:
    """Candidates below the average by a difference, or all of them where none is.

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
        view: the cluster.
        kept: `averages` by broker, 1 is 100 percent.
    """

    def __init__(self, view: View, kept: Mapping[str, Any]) -> None:
        self._settings = view.settings
        self._difference = view.settings.usage_difference / 100
        self._usage = usages(view)
        self._idle = {row["broker"] for row in view.judged if _is_idle(row)}
        listed = {row["broker"] for row in view.brokers}
        # Averages of brokers that are gone end here; Pulsar drops them when it is told of the active brokers.
        self._averages = {broker: e for broker, e in kept.get("averages", {}).items() if broker in listed}

    def eligible(self, bundle: str, candidates: Sequence[str]) -> list[str]:
        """Candidates below their average; every call moves their averages on."""
        for broker in candidates:
            before = None if broker in self._idle else self._averages.get(broker)
            self._averages[broker] = smooth(before, self._usage[broker], self._settings)
        return below_average(candidates, self._averages, self._difference)

    def placed(self, bundle: str, broker: str) -> None:
        """Nothing: only reports change the usage."""

    def document(self) -> dict[str, Any]:
        """The averages."""
        return {"averages": dict(sorted(self._averages.items()))}


class ExtensibleLeastResourceUsageWithWeight(Stateless):
    """The form of the extensible load manager: brokers report their moving averages themselves.

    (org.apache.pulsar.broker.loadbalance.extensions.strategy.LeastResourceUsageWithWeight.)

    Args:
        view: the cluster; `load_average` in its brokers' rows, 1 is 100 percent.
    """

    def __init__(self, view: View) -> None:
        self._difference = view.settings.usage_difference / 100
        self._usage = {row["broker"]: e for row in view.judged if (e := row.get("load_average")) is not None}

    def eligible(self, bundle: str, candidates: Sequence[str]) -> list[str]:
        """Candidates below their average; a broker without one is never the best."""
        return below_average(candidates, self._usage, self._difference)


def _is_idle(broker: Mapping[str, Any]) -> bool:
    """Whether the broker's past says nothing about it: it has no bundles or no messages."""
    return not broker.get("bundles") or not (broker.get("msg_rate_in") or broker.get("msg_rate_out"))
