"""Brokers of a simulation by the minute: its rules and events, what brokers can carry, and what they report."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from pulsar_simulator.load import NOBODY, Cost, Flags, Floats, Ints, Rates, sum_by_broker
from pulsar_simulator.minutes.workload import BLOCK_MINUTES, Workload


class EventKind(StrEnum):
    """The kinds of events that can happen to a broker."""

    STOP = "stop"  # its process ends without deregistering
    START = "start"  # it starts or restarts: empty


class Event(NamedTuple):
    """Something that happens to a broker at the start of a minute."""

    minute: int
    broker: int
    event_kind: EventKind


class CpuSpike(NamedTuple):
    """CPU used by other processes on a broker, in percent of one core."""

    minute: int
    minutes: int
    broker: int
    cpu: float


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """The rules that govern the cluster's behaviour; docs/simulation.md gives the source of each value.

    Attributes:
        assigns_at_once: True if a bundle is assigned a new broker as soon as it is unloaded or loses its broker
            (extensible load manager); False if only when a client looks it up (modular load manager).
        unload_seconds: how long an unloaded bundle is unavailable.
        unload_cpu_seconds: CPU time for each bundle that moves, on the old broker and on the new broker.
        reconnect_seconds: mean time between the detection of a stopped broker and the lookup of its bundles; not used
            if `assigns_at_once`.
        session_seconds: time until a stopped broker is detected.
        reconnect_cpu_seconds: CPU time on the new broker for each client that reconnects.
        busy_cpu: additional CPU usage of a broker that has any traffic, in percent of one core.
        cpu_noise: relative standard deviation of a CPU sample.
        late: share of reports that are outdated.
        late_minutes: age of outdated reports in minutes.
        missing: share of reports that do not arrive.
        cost: CPU time per message and per byte.
    """

    assigns_at_once: bool = False
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
class RunSpec:
    """The specification of a run; `initial_owner` is each bundle's initial owner, or `NOBODY`."""

    brokers: BrokerColumns
    workload: Workload
    initial_owner: Ints
    is_started: Flags
    rules: ClusterRules = field(default_factory=ClusterRules)
    events: tuple[Event, ...] = ()
    cpu_spikes: tuple[CpuSpike, ...] = ()
    seed: int = 1


KBIT_PER_BYTE = 8 / 1000
"""Kbit in a byte. NIC speeds are in Kbit/s, as Pulsar reports them."""

_MIN_DIVISOR = 1e-9  # instead of a divisor of 0


@dataclass(frozen=True, slots=True)
class BrokerColumns:
    """All brokers, with one entry per broker.

    Attributes:
        names: brokerIds.
        cpu_limit: CPU limit in percent of one core, 100 for each core.
        nic: speed of the network interface in each direction in Kbit/s.
        base_cpu: CPU usage without any traffic, in percent of one core; higher if other processes share the machine.
        slowness: CPU cost of traffic in multiples of the normal cost; brokers do not report it.
    """

    names: tuple[str, ...]
    cpu_limit: Floats
    nic: Floats
    base_cpu: Floats
    slowness: Floats | float = 1.0


@dataclass(frozen=True, slots=True)
class Demand:
    """The traffic that brokers carry in one minute, and the resources that they use; one entry per broker.

    Attributes:
        traffic: msg/s and bytes/s that get through.
        cpu: CPU usage in percent of one core, never above the limit.
        bandwidth_in: incoming traffic in Kbit/s, never above the NIC's speed.
        bandwidth_out: outgoing traffic in Kbit/s, with the same limit.
        served_share: share of the offered traffic that gets through.
    """

    traffic: Rates
    cpu: Floats
    bandwidth_in: Floats
    bandwidth_out: Floats
    served_share: Floats

    def score(self, brokers: BrokerColumns) -> Floats:
        """Return the usage of each broker's most used resource in percent."""
        shares = (self.cpu / brokers.cpu_limit, self.bandwidth_in / brokers.nic, self.bandwidth_out / brokers.nic)
        return np.asarray(100 * np.maximum.reduce(shares))


def demand(brokers: BrokerColumns, cost: Cost, rates: Rates, owner: Ints, factor: Floats, extra_cpu: Floats) -> Demand:
    """Return the brokers' traffic and usage; an overloaded broker serves the same share of each bundle's traffic.

    Args:
        rates: offered traffic per bundle.
        owner: owner of each bundle.
        factor: cost of each bundle's traffic in multiples of `cost`.
        extra_cpu: CPU usage not caused by traffic, in percent of one core, per broker.
    """
    count = len(brokers.names)
    seconds = (rates.msg_rate_in + rates.msg_rate_out) * cost.per_message
    seconds += (rates.msg_throughput_in + rates.msg_throughput_out) * cost.per_byte
    wanted = brokers.slowness * sum_by_broker(100 * seconds * factor, owner, count)
    offered = rates.sum_by_broker(owner, count)
    room = np.maximum(brokers.cpu_limit - extra_cpu, 0.0)
    into, out = offered.msg_throughput_in * KBIT_PER_BYTE, offered.msg_throughput_out * KBIT_PER_BYTE
    served = np.minimum.reduce([_share_met(room, wanted), _share_met(brokers.nic, into), _share_met(brokers.nic, out)])
    return Demand(
        traffic=offered.scaled(served),
        cpu=np.minimum(wanted * served + extra_cpu, brokers.cpu_limit),
        bandwidth_in=into * served,
        bandwidth_out=out * served,
        served_share=served,
    )


def _share_met(capacity: Floats, wanted: Floats) -> Floats:
    return np.minimum(1.0, capacity / np.maximum(wanted, _MIN_DIVISOR))


MINUTE_SECONDS = 60.0
_REPORTS, _CPU = 21, 23  # one random stream each


@dataclass(frozen=True, slots=True)
class Report:
    """What the load manager knows at the end of a minute.

    Attributes:
        minute: counted from 0.
        is_registered: brokers that the cluster lists.
        is_reported: brokers whose report arrived.
        report_age_s: age of each report in seconds.
        brokers: values of the brokers that reported, CPU as sampled; the entries for other brokers are meaningless.
        owner: position of each bundle's broker.
        rates: msg/s and bytes/s per bundle, from the report of its broker.
    """

    minute: int
    is_registered: Flags
    is_reported: Flags
    report_age_s: Floats
    brokers: Demand
    owner: Ints
    rates: Rates


class Reports:
    """Simulates the brokers' reports, minute by minute; the same seed gives the same reports."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._drawn: tuple[int, Floats, Floats] | None = None
        self._before: deque[tuple[Demand, Rates]] = deque(maxlen=spec.rules.late_minutes)

    def report_of_minute(
        self, minute: int, demand: Demand, rates: Rates, owner: Ints, is_registered: Flags, is_alive: Flags
    ) -> Report:
        """Return the reports for a minute.

        Args:
            minute: counted from 0; call this once for each minute, in order.
            demand: the brokers' actual traffic and usage.
            rates: the bundles' actual traffic.
            owner: position of each bundle's broker.
            is_registered: brokers that the cluster lists.
            is_alive: brokers that can answer.
        """
        noise, draw = self._random_factors(minute)
        rules = self._spec.rules
        cpu = np.minimum(demand.cpu * noise, self._spec.brokers.cpu_limit)
        said = Demand(demand.traffic, cpu, demand.bandwidth_in, demand.bandwidth_out, demand.served_share)
        fresh = (said, rates)
        missing = draw < rules.missing
        minutes = len(self._before)
        late = ~missing & (draw < rules.missing + rules.late) & (minutes > 0)
        if late.any():
            said, rates = _with_late_reports(self._before[0], fresh, late, owner)
        self._before.append(fresh)
        return Report(
            minute=minute,
            is_registered=is_registered.copy(),
            is_reported=is_registered & is_alive & ~missing,
            report_age_s=np.where(late, minutes * MINUTE_SECONDS, 0.0),
            brokers=said,
            owner=owner.copy(),
            rates=rates,
        )

    def _random_factors(self, minute: int) -> tuple[Floats, Floats]:
        """Return, for each broker, a noise factor for its CPU sample and a random number from 0 to 1 for its report.

        If this number is low, the report is missing or late (`ClusterRules.missing`, `ClusterRules.late`).
        """
        number, row = divmod(minute, BLOCK_MINUTES)
        if self._drawn is None or self._drawn[0] != number:
            # Draw broker by broker, so that additional brokers do not change the reports of these.
            size = (len(self._spec.is_started), BLOCK_MINUTES)
            deviation = np.random.default_rng((self._spec.seed, _CPU, number)).standard_normal(size).T.clip(-3, 3)
            reports = np.random.default_rng((self._spec.seed, _REPORTS, number)).random(size).T
            self._drawn = (number, (1 + self._spec.rules.cpu_noise * deviation).clip(0), reports)
        return self._drawn[1][row], self._drawn[2][row]


def _with_late_reports(
    earlier_values: tuple[Demand, Rates], current_values: tuple[Demand, Rates], is_late: Flags, owner: Ints
) -> tuple[Demand, Rates]:
    """Return current values, but earlier values for brokers whose report is late and for their bundles."""
    old_brokers, old_rates = earlier_values
    brokers, rates = current_values
    of_late = (owner != NOBODY) & is_late[owner]
    mixed = replace(
        brokers,
        traffic=_mixed_rates(old_brokers.traffic, brokers.traffic, is_late),
        cpu=np.where(is_late, old_brokers.cpu, brokers.cpu),
        bandwidth_in=np.where(is_late, old_brokers.bandwidth_in, brokers.bandwidth_in),
        bandwidth_out=np.where(is_late, old_brokers.bandwidth_out, brokers.bandwidth_out),
    )
    return mixed, _mixed_rates(old_rates, rates, of_late)


def _mixed_rates(old_rates: Rates, new_rates: Rates, is_late: Flags) -> Rates:
    return Rates(*(np.where(is_late, *columns) for columns in zip(old_rates.columns, new_rates.columns, strict=True)))
