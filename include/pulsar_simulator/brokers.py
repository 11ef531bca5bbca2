"""The brokers of a simulated cluster: which are registered, and which answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pulsar_simulator.faults import FaultKind, Faults, Refusal


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """A broker's identity and size.

    Attributes:
        broker_id: `host:port` of the broker's web service.
        cores: number of CPU cores. The CPU limit in percent of one core is 100 times this number.
        memory: heap size in MiB.
        direct_memory: direct memory size in MiB.
        nic: speed of the network interface in each direction in Kbit/s; 0 if Pulsar cannot read it.
        base_cpu: CPU usage without any traffic, in percent of one core.
        uptime: seconds for which the broker has been running at the start of the simulation.
    """

    broker_id: str
    cores: float = 4.0
    memory: float = 2048.0
    direct_memory: float = 4096.0
    nic: float = 1_000_000.0
    base_cpu: float = 6.0
    uptime: float = 3600.0

    @property
    def cpu_limit(self) -> float:
        """Return the CPU limit in percent of one core."""
        return 100.0 * self.cores


@dataclass(slots=True)
class Broker:
    """The current state of a broker.

    Attributes:
        index: position in the cluster.
        spec: identity and size of the broker.
        broker_id: `host:port`.
        started_at: start time of the process in seconds since 1970.
        is_alive: True if the process is running.
        is_registered: True if the broker is listed as active. A dead broker remains listed until its metadata session
            expires.
        session_ends_at: when the metadata session of a dead broker expires, in seconds since 1970.
    """

    index: int
    spec: BrokerSpec
    broker_id: str
    started_at: float
    is_alive: bool = True
    is_registered: bool = True
    session_ends_at: float = float("inf")


class Membership:
    """The registered brokers and the leader."""

    def __init__(self, specs: list[BrokerSpec], now: float, session_timeout: float) -> None:
        self.brokers = [Broker(i, spec, spec.broker_id, now - spec.uptime) for i, spec in enumerate(specs)]
        self.leader: int | None = 0
        self._session_timeout = session_timeout

    def find(self, broker_id: str) -> Broker:
        """Return the broker with this id, registered or not.

        Raises:
            Refusal: 404 if there is no such broker.
        """
        for broker in self.brokers:
            if broker.broker_id == broker_id:
                return broker
        raise Refusal(404, f"Broker {broker_id} not found", broker_id)

    def registered_brokers(self) -> list[Broker]:
        """Return the registered brokers."""
        return [broker for broker in self.brokers if broker.is_registered]

    def registered_index(self, broker_id: str) -> int | None:
        """Return the index of a registered broker; None if it is unknown or not registered."""
        indices = [broker.index for broker in self.registered_brokers() if broker.broker_id == broker_id]
        return indices[0] if indices else None

    def kill_broker(self, broker: Broker, now: float) -> None:
        """Kill a broker's process. The broker remains registered until its metadata session expires."""
        if broker.is_alive:
            broker.is_alive = False
            broker.session_ends_at = now + self._session_timeout

    def deregister_broker(self, broker: Broker) -> bool:
        """Deregister a broker; return whether this changed the leader."""
        broker.is_registered = False
        broker.session_ends_at = float("inf")
        if self.leader != broker.index:
            return False
        self.leader = next((other.index for other in self.registered_brokers() if other.is_alive), None)
        return True

    def register_broker(self, broker: Broker, now: float) -> None:
        """Start a broker's process, and register the broker. It becomes the leader only if there is none."""
        broker.is_alive = broker.is_registered = True
        broker.started_at = now
        broker.session_ends_at = float("inf")
        if self.leader is None:
            self.leader = broker.index

    def next_expiry(self) -> float:
        """Return when the next session of a dead broker expires, in seconds since 1970; infinity if there is none."""
        return min((broker.session_ends_at for broker in self.brokers), default=float("inf"))

    def rename_brokers(self, broker_ids: list[str]) -> None:
        """Replace the brokerIds with the addresses at which the brokers listen."""
        for broker, broker_id in zip(self.brokers, broker_ids, strict=True):
            broker.broker_id = broker_id


class Reachability:
    """The brokers that accept connections.

    Changes caused by faults are noticed automatically; call `notify_changes` after any other change.
    """

    def __init__(self, membership: Membership, faults: Faults) -> None:
        self._membership = membership
        self._faults = faults
        self._reachable = [True] * len(membership.brokers)
        self._lock = threading.Lock()
        faults.changed = self.notify_changes
        self.changed: Callable[[], None] = lambda: None
        """Called when a broker may have started or stopped accepting connections."""

    def accepts_connections(self, index: int) -> bool:
        """Return whether a broker accepts connections."""
        broker = self._membership.brokers[index]
        return broker.is_alive and self._faults.find_fault(FaultKind.DEAD, broker=broker.broker_id) is None

    def notify_changes(self) -> None:
        """Call `changed` if any broker has started or stopped accepting connections since the last call."""
        with self._lock:
            reachable = [self.accepts_connections(i) for i in range(len(self._reachable))]
            changed = reachable != self._reachable
            self._reachable = reachable
        if changed:
            self.changed()
