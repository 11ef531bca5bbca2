"""The brokers: their size, which of them are alive, and which one leads."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_simulator.refusal import Refusal


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """A broker's identity and size.

    Attributes:
        broker_id: `host:port` of its web service.
        cores: CPU cores; the CPU limit is 100 times that.
        memory: heap, MiB.
        direct_memory: MiB.
        nic: NIC speed each way, Kbit/s; 0 where Pulsar cannot read it.
        base_cpu: CPU without any traffic, percent of one core.
        uptime: seconds it has been running when the simulation starts.
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
        """Return the limit in percent of one core."""
        return 100.0 * self.cores


@dataclass(slots=True)
class Broker:
    """The current state of a broker.

    Attributes:
        index: position in the cluster.
        spec: its size.
        broker_id: `host:port`.
        started_at: seconds since 1970.
        alive: whether its process runs.
        registered: whether the others still list it (its metadata session has not ended).
        session_ends: when the others notice that it is dead, seconds since 1970.
    """

    index: int
    spec: BrokerSpec
    broker_id: str
    started_at: float
    alive: bool = True
    registered: bool = True
    session_ends: float = float("inf")


class Membership:
    """Which brokers are registered, and which one leads."""

    def __init__(self, specs: list[BrokerSpec], now: float, session_timeout: float) -> None:
        self.brokers = [Broker(i, spec, spec.broker_id, now - spec.uptime) for i, spec in enumerate(specs)]
        self.leader: int | None = 0
        self._session_timeout = session_timeout

    def find(self, broker_id: str) -> Broker:
        """Return the broker with that id, registered or not.

        Raises:
            Refusal: 404, unknown.
        """
        for broker in self.brokers:
            if broker.broker_id == broker_id:
                return broker
        raise Refusal(404, f"Broker {broker_id} not found", broker_id)

    def registered(self) -> list[Broker]:
        """Return the brokers on the active list."""
        return [broker for broker in self.brokers if broker.registered]

    def registered_index(self, broker_id: str) -> int | None:
        """Return the index of an active broker; None if unknown or gone."""
        indices = [broker.index for broker in self.registered() if broker.broker_id == broker_id]
        return indices[0] if indices else None

    def kill(self, broker: Broker, now: float) -> None:
        """End the process without deregistering the broker: the others notice when its session ends."""
        if broker.alive:
            broker.alive = False
            broker.session_ends = now + self._session_timeout

    def leave(self, broker: Broker) -> bool:
        """Take a broker off the active list; return whether that changed the leader."""
        broker.registered = False
        broker.session_ends = float("inf")
        if self.leader != broker.index:
            return False
        self.leader = next((other.index for other in self.registered() if other.alive), None)
        return True

    def join(self, broker: Broker, now: float) -> None:
        """Start the process: the broker is registered at once, and leads only if there is no leader."""
        broker.alive = broker.registered = True
        broker.started_at = now
        broker.session_ends = float("inf")
        if self.leader is None:
            self.leader = broker.index

    def next_expiry(self) -> float:
        """Return when the next session ends, seconds since 1970; infinity if none does."""
        return min((broker.session_ends for broker in self.brokers), default=float("inf"))

    def rename(self, broker_ids: list[str]) -> None:
        """Give every broker the address it really listens on."""
        for broker, broker_id in zip(self.brokers, broker_ids, strict=True):
            broker.broker_id = broker_id
