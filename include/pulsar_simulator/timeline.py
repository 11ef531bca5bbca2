"""The events of a cluster over time: samples, reconnects, session ends and broker starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_simulator.brokers import Broker, Membership
    from pulsar_simulator.ownership import Ownership
    from pulsar_simulator.placement import BundlePlacement
    from pulsar_simulator.sampling import Samples, Timing


@dataclass
class Timeline:
    """The events of a cluster in chronological order. Times are seconds since 1970."""

    membership: Membership
    placement: BundlePlacement
    ownership: Ownership
    samples: Samples
    timing: Timing
    start: float

    def __post_init__(self) -> None:
        """Make the first measurements."""
        brokers = len(self.membership.brokers)
        self._statistics_taken = 0
        self._next_host_check = [self.start + self.timing.host_check_period] * brokers
        self.samples.take_statistics(self.start, self.ownership.owner)
        self.samples.take_host_usage(self.start, list(range(brokers)), self.ownership.owner)

    def catch_up(self, now: float) -> None:
        """Process all events that are due at `now`."""
        while (due := self._next()) <= now:
            self._happen(due)

    def start_broker(self, broker: Broker, now: float) -> None:
        """Start or restart a broker.

        The broker starts without bundles, reports no load, and becomes the leader only if there is none.
        """
        if broker.registered:
            self._deregister(broker, now)
        self.membership.join(broker, now)
        self._next_host_check[broker.index] = now + self.timing.host_check_period
        self.samples.forget(broker, now)

    def _next_statistics(self) -> float:
        return self.start + (self._statistics_taken + 1) * self.timing.stats_period

    def _next(self) -> float:
        return min(
            self._next_statistics(),
            *self._next_host_check,
            self.ownership.next_reconnect(),
            self.membership.next_expiry(),
        )

    def _happen(self, at: float) -> None:
        brokers, owner = self.membership.brokers, self.ownership.owner
        for broker in brokers:
            if broker.session_ends <= at:
                self._deregister(broker, at)
        self.ownership.reconnect(at)
        if self._next_statistics() <= at:
            self._statistics_taken += 1
            self.samples.take_statistics(at, owner)
        due = [i for i, check in enumerate(self._next_host_check) if check <= at]
        if due:
            self.samples.take_host_usage(at, [i for i in due if brokers[i].alive], owner)
            for i in due:
                self._next_host_check[i] += self.timing.host_check_period

    def _deregister(self, broker: Broker, now: float) -> None:
        if self.membership.leave(broker):
            self.placement.affinities.clear()
        self.ownership.release_all(broker.index, now)
