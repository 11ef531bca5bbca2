"""Time in the simulated cluster: samples, reconnects, brokers that die, start and lead."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import numpy as np

from pulsar_simulator.brokers import Broker, Membership
from pulsar_simulator.clock import Clock, ManualClock
from pulsar_simulator.configuration import Configuration
from pulsar_simulator.faults import FaultKind, Faults
from pulsar_simulator.ownership import Ownership
from pulsar_simulator.placement import BundlePlacement
from pulsar_simulator.refusal import Refusal
from pulsar_simulator.report import Reporter
from pulsar_simulator.sampling import Samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_simulator.load import Floats
    from pulsar_simulator.spec import ClusterSpec

P = ParamSpec("P")
T = TypeVar("T")
L = TypeVar("L", bound="Life")


def up_to_date(
    method: Callable[Concatenate[L, P], T],
) -> Callable[Concatenate[L, P], T]:
    """One caller at a time, and everything due until now has happened before it sees the cluster."""

    @functools.wraps(method)
    def wrapper(self: L, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            self._catch_up()
            self._depth += 1
            try:
                result = method(self, *args, **kwargs)
            finally:
                self._depth -= 1
            outermost = self._depth == 0
        if outermost:  # whoever is told may wait for another thread, which may want the lock
            self._tell_reachability()
        return result

    return wrapper


class Life:
    """A cluster whose brokers live and die and whose load changes as time passes; thread-safe.

    Args:
        spec: what it is made of.
        clock: a `ManualClock` if not given.
    """

    def __init__(self, spec: ClusterSpec, clock: Clock | None = None) -> None:
        self.spec = spec
        self.clock: Clock = clock or ManualClock()
        self.start = self.clock.now()
        self.faults = Faults()
        self.faults.changed = self._tell_reachability
        self.reachability_changed: Callable[[], None] = lambda: None
        """Called when a broker may have begun or ceased to accept connections."""
        self.topology = spec.topology
        self.traffic = spec.traffic
        self.configuration = Configuration(spec.name, spec.timing.stats_period, spec.configuration)
        self.membership = Membership(spec.brokers, self.start, spec.timing.session_timeout)
        self.placement = BundlePlacement(
            self.membership,
            self.topology,
            self.faults,
            strategy=spec.placement,
            by_range=spec.affinity_by_range,
            rates=self._broker_rates,
            seed=spec.seed,
        )
        self.ownership = Ownership(
            self.membership,
            self.topology,
            self.traffic,
            self.placement,
            spec.owner,
            spec.timing.reconnect_delay,
            self.start,
        )
        self.samples = Samples(spec.brokers, self.traffic, spec.timing, self.start)
        self.reporter = Reporter(
            spec.name,
            spec.version,
            self.topology,
            self.samples,
            spec.producers,
            spec.consumers,
            tls=spec.tls,
        )
        self._lock = threading.RLock()
        self._depth = 0
        self._reports: dict[int, tuple[int, bytes]] = {}
        self._reachable = [True] * len(spec.brokers)
        self._statistics_taken = 0
        self._next_host_check = [self.start + spec.timing.host_check_period] * len(spec.brokers)
        self.samples.take_statistics(self.start, self.ownership.owner)
        self.samples.take_host_usage(self.start, list(range(len(spec.brokers))), self.ownership.owner)

    # time

    @up_to_date
    def refresh(self) -> None:
        """Lets everything happen that was due until now."""

    @up_to_date
    def advance(self, seconds: float) -> None:
        """Lets `seconds` pass, with all samples, reconnects and ended sessions on the way."""
        self.clock.advance(seconds)
        self._catch_up()

    def _next_statistics(self) -> float:
        return self.start + (self._statistics_taken + 1) * self.spec.timing.stats_period

    def _catch_up(self) -> None:
        now = self.clock.now()
        while True:
            due = min(
                self._next_statistics(),
                min(self._next_host_check),
                self.ownership.next_reconnect(),
                self.membership.next_expiry(),
            )
            if due > now:
                return
            self._happen(due)

    def _happen(self, at: float) -> None:
        for broker in self.membership.brokers:
            if broker.session_ends <= at:
                self._deregister(broker, at)
        self.ownership.reconnect(at)
        if self._next_statistics() <= at:
            self._statistics_taken += 1
            self.samples.take_statistics(at, self.ownership.owner)
        due = [i for i, check in enumerate(self._next_host_check) if check <= at]
        if due:
            alive = [i for i in due if self.membership.brokers[i].alive]
            self.samples.take_host_usage(at, alive, self.ownership.owner)
            for i in due:
                self._next_host_check[i] += self.spec.timing.host_check_period

    # brokers

    @up_to_date
    def kill(self, broker_id: str) -> None:
        """Ends a broker's process at once; the others notice when its session ends."""
        self.membership.kill(self.membership.find(broker_id), self.clock.now())

    @up_to_date
    def start_broker(self, broker_id: str) -> None:
        """Starts a broker anew: empty, idle by its own account, no leader unless there is none."""
        broker = self.membership.find(broker_id)
        now = self.clock.now()
        if broker.registered:
            self._deregister(broker, now)
        self.membership.join(broker, now)
        self._next_host_check[broker.index] = now + self.spec.timing.host_check_period
        self.samples.forget(broker, now)

    def restart(self, broker_id: str) -> None:
        """Kills and starts a broker without a pause."""
        self.kill(broker_id)
        self.start_broker(broker_id)

    @up_to_date
    def change_leader(self, broker_id: str) -> None:
        """Another broker leads; the destinations that the old one remembered are lost.

        Raises:
            Refusal: 404 unknown or dead broker.
        """
        broker = self.membership.find(broker_id)
        if not broker.alive:
            raise Refusal(404, f"Broker {broker_id} is dead", broker_id)
        self.membership.leader = broker.index
        self.placement.affinities.clear()

    def accepts(self, index: int) -> bool:
        """Whether a broker accepts connections."""
        broker = self.membership.brokers[index]
        return broker.alive and self.faults.find(FaultKind.DEAD, broker=broker.broker_id) is None

    def rename(self, broker_ids: list[str]) -> None:
        """Gives the brokers the addresses they really listen on, before anything has happened."""
        with self._lock:
            self.membership.rename(broker_ids)
            self._reports.clear()

    def _deregister(self, broker: Broker, now: float) -> None:
        if self.membership.leave(broker):
            self.placement.affinities.clear()
        self.ownership.release_all(broker.index, now)

    def _tell_reachability(self) -> None:
        with self._lock:
            reachable = [self.accepts(i) for i in range(len(self._reachable))]
            changed = reachable != self._reachable
            self._reachable = reachable
        if changed:
            self.reachability_changed()

    def _broker_rates(self) -> Floats:
        rates = self.traffic.at(self.clock.now() - self.start)
        totals = rates.per_broker(self.ownership.owner, len(self.membership.brokers))
        return np.asarray(totals.msg_rate_in + totals.msg_rate_out)
