"""Compute statistics of the brokers' loads, and choose the next pair of brokers (TransferShedder)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies.wording import amount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.config.settings import Settings


class BrokerLoad(NamedTuple):
    """The load of one broker.

    Attributes:
        broker: the broker's name.
        load: moving average of the broker's highest weighted resource usage; 1 is 100 percent.
        throughput_average: moving average of the broker's throughput in bytes/s.
        throughput: the broker's current throughput in bytes/s.
        age: seconds since the broker's report; None if unknown.
    """

    broker: str
    load: float
    throughput_average: float
    throughput: float
    age: float | None = None


class Imbalance(NamedTuple):
    """The reason why two brokers should exchange bundles.

    `value` is above `bound` for the kind `overloaded`, else below it.
    """

    kind: str
    value: float
    bound: float
    sentence: str


class LoadStats:
    """Brokers sorted from the least to the most loaded. Brokers from `least` to `most` have not been paired yet.

    The algorithm follows `TransferShedder.LoadStats`. A broker with an outdated report is excluded from the mean and
    the standard deviation, but can still exchange bundles.

    Attributes:
        mean: mean of the loads.
        std: standard deviation of the loads, including the effect of moves recorded with `move`.
    """

    def __init__(self, loads: Iterable[BrokerLoad], settings: Settings) -> None:
        """Sort the brokers by load, and compute the mean and the standard deviation."""
        self._settings = settings
        self._ordered = sorted(loads, key=lambda load: (load.load, load.broker))
        self._least, self._most = 0, len(self._ordered) - 1
        counted = [load.load for load in self._ordered if not is_outdated(load, settings)]
        self.counted = len(counted)
        self.mean = math.fsum(counted) / self.counted if counted else 0.0
        self._squares = math.fsum(load * load for load in counted)
        self.std = math.sqrt(max(0.0, self._squares / self.counted - self.mean * self.mean)) if counted else 0.0

    @property
    def least(self) -> BrokerLoad:
        """Return the least loaded broker that has not received bundles yet."""
        return self._ordered[self._least]

    @property
    def most(self) -> BrokerLoad:
        """Return the most loaded broker that has not been paired yet."""
        return self._ordered[self._most]

    @property
    def has_pair(self) -> bool:
        """Return whether at least two brokers remain to be paired."""
        return self._least < self._most

    def imbalance(self) -> Imbalance | None:
        """Return the imbalance between the most and the least loaded brokers; None if the loads are balanced."""
        target = self._settings.target_std
        if self.std > target:
            words = f"standard deviation of the loads {self.std:.3f}, above {target:g}"
            return Imbalance("overloaded", self.std, target, words)
        return self._underloaded(min(0.5, max(0.0, target / 2))) or self._overloaded(target)

    def _underloaded(self, share: float) -> Imbalance | None:
        least, most = self.least, self.most
        bound = self.mean * share
        if least.load < bound:
            words = f"load of {least.broker} {least.load:.1%}, below {share:.0%} of the mean {self.mean:.1%}"
            return Imbalance("underloaded", least.load, bound, words)
        bound = most.throughput_average * share
        if least.throughput_average < bound:
            carried = amount(Measure.THROUGHPUT, least.throughput_average)
            words = f"{least.broker} carries {carried}, below {share:.0%} of what {most.broker} carries"
            return Imbalance("underloaded", least.throughput_average, bound, words)
        return None

    def _overloaded(self, target: float) -> Imbalance | None:
        bound = max(self._settings.overloaded_threshold / 100, self.mean + target)
        if self.most.load > bound:
            words = f"load of {self.most.broker} {self.most.load:.1%}, above {bound:.1%}"
            return Imbalance("overloaded", self.most.load, bound, words)
        return None

    def take_pair(self) -> tuple[BrokerLoad, BrokerLoad]:
        """Return the most and the least loaded of the remaining brokers, and remove the most loaded broker."""
        pair = self.most, self.least
        self._most -= 1
        return pair

    def move(self, source: BrokerLoad, destination: BrokerLoad, load: float) -> None:
        """Record that load moves from the source to the destination.

        The destination then receives no more bundles.
        """
        self._squares -= source.load * source.load + destination.load * destination.load
        self._squares += max(0.0, source.load - load) ** 2 + (destination.load + load) ** 2
        self.std = math.sqrt(abs(self._squares / self.counted - self.mean * self.mean))
        self._least += 1


def is_outdated(load: BrokerLoad, settings: Settings) -> bool:
    """Return whether a broker's report is too old to be included in the mean and the standard deviation."""
    return load.age is not None and load.age > settings.load_data_ttl_seconds
