"""LeastLongTermMessageRate: choose the broker whose bundles have the lowest long-term message rate."""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from pulsar_rebalancer.run.sums import one_by_one
from pulsar_rebalancer.strategies.kept import PlacementState
from pulsar_rebalancer.strategies.placement.others import split
from pulsar_rebalancer.strategies.placement.selector import PerCandidates

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pulsar_rebalancer.run.bundle_columns import BundleSample


class LeastLongTermMessageRate:
    """Choose the broker with the lowest rate, overloaded brokers last (LeastLongTermMessageRate.selectBroker).

    Args:
        rates: long-term message rate of each broker, msg/s: the sum over its bundles, inbound plus outbound
            (TimeAverageBrokerData).
        overloaded: brokers above the overload threshold.
    """

    def __init__(self, rates: Mapping[str, float], overloaded: Collection[str]) -> None:
        self._reported = rates
        self._rates = dict(rates)
        self._overloaded = overloaded
        self._preallocated: dict[str, dict[str, float]] = defaultdict(dict)
        self._queues = PerCandidates(lambda candidates: _Queue(candidates, self._rates, self._overloaded))

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return the candidates with the lowest rate; all candidates if all are overloaded."""
        brokers, without = split(candidates)
        return self._queues.of(brokers).least(without) or candidates

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Add the bundle's rate to its broker's rate (BrokerData.preallocatedBundleData)."""
        given = self._preallocated[broker]
        rate = bundle.long_term_msg_rate
        given[bundle.bundle] = bundle.msg_rate if rate is None else rate
        self._rates[broker] = self._reported.get(broker, 0.0) + one_by_one(given.values())
        for queue in self._queues:
            queue.changed(broker)

    def kept(self) -> PlacementState:
        """Return an empty state, because brokers will report the placed bundles before the next run."""
        return PlacementState()


class _Queue:
    """Candidates ordered by rate, to find the broker with the lowest rate quickly.

    Args:
        candidates: brokerIds.
        rates: rate by broker, 0 for missing brokers. The caller must call `changed` after every change.
        overloaded: brokers that may be chosen only if all are overloaded.
    """

    def __init__(self, candidates: Sequence[str], rates: Mapping[str, float], overloaded: Collection[str]) -> None:
        self._rates = rates
        self._waiting = {broker for broker in candidates if broker not in overloaded}
        self._heap = [(rates.get(broker, 0.0), broker) for broker in self._waiting]
        heapify(self._heap)
        self._least: list[tuple[float, str]] = []

    def least(self, without: Collection[str]) -> list[str]:
        """Return the brokers with the lowest rate, sorted by name; empty if all are overloaded or left out.

        Args:
            without: a few candidates to exclude.
        """
        # Placing a bundle only raises rates: brokers that had the smallest rate come first while any still has it.
        self._least = self._next([entry for entry in self._least if self._is_present(entry)])
        brokers = [broker for _, broker in self._least if broker not in without]
        passed_over: list[tuple[float, str]] = []
        while not brokers and self._heap:
            following = self._next([])
            brokers = [broker for _, broker in following if broker not in without]
            passed_over += following
        for entry in passed_over:
            heappush(self._heap, entry)
        return sorted(brokers)

    def _next(self, found: list[tuple[float, str]]) -> list[tuple[float, str]]:
        """Remove the next brokers with equal rates from the heap, append them to `found`, and return the result."""
        while self._heap and (not found or self._heap[0][0] <= found[0][0]):
            entry = heappop(self._heap)
            if self._is_present(entry) and entry not in found[-1:]:
                found.append(entry)
        return found

    def _is_present(self, entry: tuple[float, str]) -> bool:
        """Return whether an entry is up to date, that is, has its broker's current rate.

        Outdated entries are not removed from the heap when a rate changes.
        """
        return entry[0] == self._rates.get(entry[1], 0.0)

    def changed(self, broker: str) -> None:
        """Record a broker's new rate."""
        entry = (self._rates.get(broker, 0.0), broker)
        if broker in self._waiting and entry not in self._least:
            heappush(self._heap, entry)
