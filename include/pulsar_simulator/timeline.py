"""What happens in a cluster as time passes: samples, reconnects, sessions that end, brokers that start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_simulator.brokers import Broker, Membership
    from pulsar_simulator.ownership import Ownership
    from pulsar_simulator.placement import BundlePlacement
    from pulsar_simulator.sampling import Samples, Timing


class Timeline:
    """The events of a cluster, in their order; times are seconds since 1970."""

    def __init__(
        self,
        membership: Membership,
        placement: BundlePlacement,
        ownership: Ownership,
        samples: Samples,
        timing: Timing,
        start: float,
    ) -> None:
        self._membership = membership
        self._placement = placement
        self._ownership = ownership
        self._samples = samples
        self._timing = timing
        self._start = start
        self._statistics_taken = 0
        self._next_host_check = [start + timing.host_check_period] * len(membership.brokers)
        samples.take_statistics(start, ownership.owner)
        samples.take_host_usage(start, list(range(len(membership.brokers))), ownership.owner)

    def catch_up(self, now: float) -> None:
        """Let everything happen that was due until `now`."""
        while (due := self._next()) <= now:
            self._happen(due)

    def start_broker(self, broker: Broker, now: float) -> None:
        """Start a broker anew: empty, idle by its own account, no leader unless there is none."""
        if broker.registered:
            self._deregister(broker, now)
        self._membership.join(broker, now)
        self._next_host_check[broker.index] = now + self._timing.host_check_period
        self._samples.forget(broker, now)

    def _next_statistics(self) -> float:
        return self._start + (self._statistics_taken + 1) * self._timing.stats_period

    def _next(self) -> float:
        return min(
            self._next_statistics(),
            *self._next_host_check,
            self._ownership.next_reconnect(),
            self._membership.next_expiry(),
        )

    def _happen(self, at: float) -> None:
        brokers, owner = self._membership.brokers, self._ownership.owner
        for broker in brokers:
            if broker.session_ends <= at:
                self._deregister(broker, at)
        self._ownership.reconnect(at)
        if self._next_statistics() <= at:
            self._statistics_taken += 1
            self._samples.take_statistics(at, owner)
        due = [i for i, check in enumerate(self._next_host_check) if check <= at]
        if due:
            self._samples.take_host_usage(at, [i for i in due if brokers[i].alive], owner)
            for i in due:
                self._next_host_check[i] += self._timing.host_check_period

    def _deregister(self, broker: Broker, now: float) -> None:
        if self._membership.leave(broker):
            self._placement.affinities.clear()
        self._ownership.release_all(broker.index, now)
