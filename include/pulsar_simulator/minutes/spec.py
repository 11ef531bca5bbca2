"""The specification of a cluster that is simulated minute by minute, and the events that happen to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from pulsar_simulator.load import Cost

if TYPE_CHECKING:
    from pulsar_simulator.load import Flags, Ints
    from pulsar_simulator.minutes.machines import BrokerColumns
    from pulsar_simulator.minutes.workload import Workload


class Happening(StrEnum):
    """The kinds of events that can happen to a broker."""

    STOP = "stop"  # its process ends without deregistering
    START = "start"  # it starts or restarts: empty


class Event(NamedTuple):
    """Something that happens to a broker at the start of a minute."""

    minute: int
    broker: int
    happening: Happening


class CpuSpike(NamedTuple):
    """CPU used by other processes on a broker, in percent of one core."""

    minute: int
    minutes: int
    broker: int
    cpu: float


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that govern the cluster's behaviour; docs/simulation.md gives the source of each value.

    Attributes:
        direct: True if a bundle is assigned a new broker as soon as it is unloaded or loses its broker (extensible load
            manager); False if it is assigned one only when a client looks it up (modular load manager).
        unload_seconds: how long an unloaded bundle is unavailable.
        unload_cpu_seconds: CPU time for each bundle that moves, on the old broker and on the new broker.
        reconnect_seconds: mean time between the detection of a stopped broker and the lookup of its bundles; not used
            if `direct`.
        session_seconds: time until a stopped broker is detected.
        reconnect_cpu_seconds: CPU time on the new broker for each client that reconnects.
        busy_cpu: additional CPU usage of a broker that has any traffic, in percent of one core.
        cpu_noise: relative standard deviation of a CPU sample.
        late: share of reports that are outdated.
        late_minutes: age of outdated reports in minutes.
        missing: share of reports that do not arrive.
        cost: CPU time per message and per byte.
    """

    direct: bool = False
    unload_seconds: float = 0.12
    unload_cpu_seconds: float = 0.01
    reconnect_seconds: float = 2.0
    session_seconds: float = 30.0
    reconnect_cpu_seconds: float = 0.002
    busy_cpu: float = 0.0
    cpu_noise: float = 0.02
    late: float = 0.0
    late_minutes: int = 1
    missing: float = 0.0
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True)
class Spec:
    """The specification of a run; `owner` is each bundle's initial owner, or `NOBODY`."""

    brokers: BrokerColumns
    workload: Workload
    owner: Ints
    started: Flags
    rules: Rules = field(default_factory=Rules)
    events: tuple[Event, ...] = ()
    cpu_spikes: tuple[CpuSpike, ...] = ()
    seed: int = 1
