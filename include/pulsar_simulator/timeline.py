"""Time in the simulated cluster: its clock, and what happens at which minute."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from pulsar_simulator.brokers import Broker, Membership
from pulsar_simulator.ownership import BundlePlacement, Ownership
from pulsar_simulator.sampling import Samples, Timing

EPOCH = 1_800_000_000.0
"""Start time of a manual clock in seconds since 1970. It is fixed so that equal seeds give equal reports."""


class Clock(Protocol):
    """Interface for clocks that give the current time and can be advanced."""

    def now(self) -> float:
        """Return the current time in seconds since 1970 (UTC)."""
        ...

    def advance(self, seconds: float) -> None:
        """Move the clock ahead by `seconds`."""
        ...


class ManualClock:
    """A clock that changes only when it is advanced."""

    def __init__(self) -> None:
        self._now = EPOCH

    def now(self) -> float:
        """Return the current time in seconds since 1970 (UTC)."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`, which must not be negative."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} seconds")
        self._now += seconds


class RealClock:
    """The clock of this machine, plus the seconds by which it has been advanced."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Return the current time in seconds since 1970 (UTC)."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`. Calls add up."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} seconds")
        self._ahead += seconds


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
        self.samples.end_stats_period(self.start, self.ownership.owner)
        self.samples.measure_host_usage(self.start, list(range(brokers)), self.ownership.owner)

    def process_until(self, now: float) -> None:
        """Process all events that are due at `now`."""
        while (due := self._next_event_at()) <= now:
            self._process_events(due)

    def start_broker(self, broker: Broker, now: float) -> None:
        """Start or restart a broker.

        The broker starts without bundles, reports no load, and becomes the leader only if there is none.
        """
        if broker.is_registered:
            self._deregister(broker, now)
        self.membership.register_broker(broker, now)
        self._next_host_check[broker.index] = now + self.timing.host_check_period
        self.samples.forget_broker(broker, now)

    def _next_statistics(self) -> float:
        return self.start + (self._statistics_taken + 1) * self.timing.stats_period

    def _next_event_at(self) -> float:
        return min(
            self._next_statistics(),
            *self._next_host_check,
            self.ownership.next_reconnect(),
            self.membership.next_expiry(),
        )

    def _process_events(self, until: float) -> None:
        brokers, owner = self.membership.brokers, self.ownership.owner
        for broker in brokers:
            if broker.session_ends_at <= until:
                self._deregister(broker, until)
        self.ownership.reconnect_clients(until)
        if self._next_statistics() <= until:
            self._statistics_taken += 1
            self.samples.end_stats_period(until, owner)
        due = [i for i, check in enumerate(self._next_host_check) if check <= until]
        if due:
            self.samples.measure_host_usage(until, [i for i in due if brokers[i].is_alive], owner)
            for i in due:
                self._next_host_check[i] += self.timing.host_check_period

    def _deregister(self, broker: Broker, now: float) -> None:
        if self.membership.deregister_broker(broker):
            self.placement.affinities.clear()
        self.ownership.release_all(broker.index, now)
