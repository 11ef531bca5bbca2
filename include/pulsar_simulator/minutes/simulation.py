"""A cluster minute by minute: who owns which bundle, what brokers carry, and what they report of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pulsar_simulator.load import NOBODY, Cost, Floats, Ints, Rates
from pulsar_simulator.minutes.machines import BrokerColumns, Demand, demand, scaled
from pulsar_simulator.minutes.workload import BLOCK

if TYPE_CHECKING:
    from pulsar_simulator.minutes.workload import Workload

Flags = npt.NDArray[np.bool_]

MINUTE = 60.0
_REPORTS, _RECONNECTS, _CPU = 21, 22, 23  # one random stream each


class Happening(StrEnum):
    """What can become of a broker."""

    STOP = "stop"  # its process ends without a farewell
    START = "start"  # it starts, anew or for the first time: empty


class Event(NamedTuple):
    """Something that happens to a broker at the start of a minute."""

    minute: int
    broker: int
    happening: Happening


class CpuSpike(NamedTuple):
    """CPU that something else takes on a broker, percent of one core."""

    minute: int
    minutes: int
    broker: int
    cpu: float


class Unload(NamedTuple):
    """A bundle that is to leave its broker; without a destination the cluster places it."""

    bundle: int
    destination: int | None = None


Place = Callable[[int, list[int]], int | None]
"""Where the load manager puts a bundle, among the registered brokers; None: nowhere."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How the cluster behaves; docs/simulation.md has the source of each figure.

    Attributes:
        direct: destinations are named when a bundle is unloaded or loses its broker (extensible load manager). Else
            the bundle is placed when a client looks it up (modular load manager).
        unload_seconds: how long an unloaded bundle serves nobody until its clients may look it up.
        reconnect_seconds: mean of the time that the first client takes to do so; none when `direct`.
        session_seconds: until a stopped broker is noticed.
        reconnect_cpu_seconds: CPU on the new broker for each client that connects anew.
        cpu_noise: relative standard deviation of a CPU sample.
        late: share of reports that are a minute old.
        missing: share of reports that do not come.
        cost: CPU of a message and of a byte.
    """

    direct: bool = False
    unload_seconds: float = 0.2
    reconnect_seconds: float = 2.0
    session_seconds: float = 30.0
    reconnect_cpu_seconds: float = 0.05
    cpu_noise: float = 0.02
    late: float = 0.0
    missing: float = 0.0
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True)
class Spec:
    """All that a run is made of; `owner` is that of each bundle at the start, `NOBODY` for none yet."""

    brokers: BrokerColumns
    workload: Workload
    owner: Ints
    started: Flags
    rules: Rules = field(default_factory=Rules)
    events: tuple[Event, ...] = ()
    cpu_spikes: tuple[CpuSpike, ...] = ()
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """What the load manager knows at the end of a minute.

    Attributes:
        minute: counted from 0.
        registered: brokers that the cluster lists.
        reported: brokers whose report came.
        age: seconds of each report, 0 or 60.
        brokers: what brokers say of themselves, CPU as it was sampled; entries of other brokers mean nothing.
        owner: of each bundle.
        rates: msg/s and bytes/s per bundle, from the report of its broker.
    """

    minute: int
    registered: Flags
    reported: Flags
    age: Floats
    brokers: Demand
    owner: Ints
    rates: Rates


class Simulation:
    """A cluster with a clock of its own, which `step` moves by a minute; the same spec and calls give the same run.

    Args:
        spec: what it is made of.
        place: who places a bundle that has no destination; the broker with the fewest messages if not given.
    """

    def __init__(self, spec: Spec, place: Place | None = None) -> None:
        self.spec = spec
        self.minute = 0
        self.owner = spec.owner.copy()
        self.alive = spec.started.copy()
        self.registered = spec.started.copy()
        self.truth: Demand | None = None
        """What brokers really carried in the last minute."""
        self._place: Place = place or self._fewest_messages
        self._due: dict[int, float] = {int(bundle): 0.0 for bundle in np.flatnonzero(self.owner == NOBODY)}
        self._down = np.zeros(len(self.owner))  # seconds of the present minute in which a bundle serves nobody
        self._landed: list[int] = []
        self._session_ends: dict[int, float] = {}
        self._events: dict[int, list[Event]] = {}
        for event in spec.events:
            self._events.setdefault(event.minute, []).append(event)
        self._reconnects = np.random.default_rng((spec.seed, _RECONNECTS))
        self._drawn: tuple[int, Floats, Floats] | None = None
        self._before: tuple[Demand, Rates] | None = None

    def unload(self, moves: Iterable[Unload]) -> None:
        """Take bundles off their brokers at the start of the coming minute, as an unload through the admin API does.

        With a destination the bundle is there as soon as it is looked up, which whoever unloads does at once. A
        destination that is not registered refuses the unload, and a bundle that nobody owns is left alone.
        """
        rules, start = self.spec.rules, self.minute * MINUTE
        for bundle, destination in moves:
            if self.owner[bundle] == NOBODY or (destination is not None and not self.registered[destination]):
                continue
            ready = start + rules.unload_seconds
            if destination is None and rules.direct:
                destination = self._place(bundle, self._candidates())
            if destination is None:
                self._lose([bundle], ready)
            elif self.alive[destination]:
                self._land(bundle, destination, ready)
            else:
                self.owner[bundle] = destination

    def step(self) -> Report:
        """Let a minute pass and return what brokers report at its end."""
        start = self.minute * MINUTE
        for event in self._events.get(self.minute, ()):
            self._happen(event, start)
        self._end_sessions(start + MINUTE)
        self._look_up(start + MINUTE)
        truth, rates = self._carry()
        report = self._report(truth, rates)
        self.truth = truth
        self.minute += 1
        self._down[:] = 0.0
        self._landed.clear()
        return report

    # ownership

    def _happen(self, event: Event, now: float) -> None:
        broker = event.broker
        if event.happening is Happening.STOP and self.alive[broker]:
            self.alive[broker] = False
            self._session_ends[broker] = now + self.spec.rules.session_seconds
        elif event.happening is Happening.START and not self.alive[broker]:
            if broker in self._session_ends:  # its old session ends with the new one
                self._session_ends[broker] = now
                self._end_sessions(now + 1)
            self.alive[broker] = self.registered[broker] = True

    def _end_sessions(self, until: float) -> None:
        for broker, ends in [item for item in self._session_ends.items() if item[1] < until]:
            del self._session_ends[broker]
            self.registered[broker] = False
            self._lose([int(bundle) for bundle in np.flatnonzero(self.owner == broker)], ends)

    def _lose(self, bundles: list[int], ready: float) -> None:
        """Take the owner of bundles away; they are placed at once, or once a client looks them up."""
        rules = self.spec.rules
        for bundle in bundles:
            self.owner[bundle] = NOBODY
            wait = 0.0 if rules.direct else float(self._reconnects.exponential(rules.reconnect_seconds))
            looked_up = rules.direct or self.spec.workload.bundles.clients[bundle] > 0
            self._due[bundle] = ready + wait if looked_up else float("inf")

    def _look_up(self, until: float) -> None:
        """Place what is looked up within the minute, in the order of the look-ups."""
        for bundle in sorted(self._due, key=lambda bundle: (self._due[bundle], bundle)):
            due = self._due[bundle]
            chosen = self._place(bundle, self._candidates()) if due < until else None
            if chosen is not None and self.alive[chosen]:
                del self._due[bundle]
                self._land(bundle, chosen, due)

    def _land(self, bundle: int, broker: int, at: float) -> None:
        self.owner[bundle] = broker
        self._down[bundle] = min(max(at - self.minute * MINUTE, 0.0), MINUTE)
        self._landed.append(bundle)

    def _candidates(self) -> list[int]:
        return [int(broker) for broker in np.flatnonzero(self.registered)]

    def _fewest_messages(self, bundle: int, candidates: list[int]) -> int | None:
        rates = self.spec.workload.at(self.minute).per_broker(self.owner, len(self.alive))
        carried = rates.msg_rate_in + rates.msg_rate_out
        return min(candidates, key=lambda broker: (carried[broker], broker), default=None)

    # what is carried, and what is told of it

    def _carry(self) -> tuple[Demand, Rates]:
        """Return what brokers and bundles carry in the present minute."""
        spec, rules = self.spec, self.spec.rules
        offered = spec.workload.at(self.minute)
        if self._landed or self._due or not self.alive.all():
            online = 1 - self._down / MINUTE
            online[(self.owner == NOBODY) | ~self.alive[self.owner]] = 0.0
            offered = scaled(offered, online)
        extra = np.where(self.alive, spec.brokers.base_cpu, 0.0)
        columns = spec.workload.bundles
        if self._landed:
            cpu = 100 * rules.reconnect_cpu_seconds / MINUTE * columns.clients[self._landed]
            np.add.at(extra, self.owner[self._landed], cpu)
        for spike in spec.cpu_spikes:
            if spike.minute <= self.minute < spike.minute + spike.minutes:
                extra[spike.broker] += spike.cpu
        truth = demand(spec.brokers, rules.cost, offered, self.owner, columns.cost, extra)
        return truth, offered if truth.served.min() == 1 else scaled(offered, truth.served[self.owner])

    def _report(self, truth: Demand, rates: Rates) -> Report:
        noise, draw = self._draw()
        rules = self.spec.rules
        cpu = np.minimum(truth.cpu * noise, self.spec.brokers.cpu_limit)
        said = Demand(truth.traffic, cpu, truth.bandwidth_in, truth.bandwidth_out, truth.served)
        fresh = (said, rates)
        missing = draw < rules.missing
        late = ~missing & (draw < rules.missing + rules.late) & (self._before is not None)
        if self._before is not None and late.any():
            said, rates = _of_before(self._before, fresh, late, self.owner)
        self._before = fresh
        return Report(
            minute=self.minute,
            registered=self.registered.copy(),
            reported=self.registered & self.alive & ~missing,
            age=np.where(late, MINUTE, 0.0),
            brokers=said,
            owner=self.owner.copy(),
            rates=rates,
        )

    def _draw(self) -> tuple[Floats, Floats]:
        """Return the factor on each broker's CPU sample, and a number of 0 to 1 that decides over its report."""
        number, row = divmod(self.minute, BLOCK)
        if self._drawn is None or self._drawn[0] != number:
            size = (BLOCK, len(self.alive))
            deviation = np.random.default_rng((self.spec.seed, _CPU, number)).standard_normal(size).clip(-3, 3)
            reports = np.random.default_rng((self.spec.seed, _REPORTS, number)).random(size)
            self._drawn = (number, (1 + self.spec.rules.cpu_noise * deviation).clip(0), reports)
        return self._drawn[1][row], self._drawn[2][row]


def _of_before(
    before: tuple[Demand, Rates], now: tuple[Demand, Rates], late: Flags, owner: Ints
) -> tuple[Demand, Rates]:
    """Return the figures of now, those of late brokers and of their bundles being a minute old."""
    old_brokers, old_rates = before
    brokers, rates = now
    of_late = (owner != NOBODY) & late[owner]
    mixed = Demand(
        _mixed(old_brokers.traffic, brokers.traffic, late),
        np.where(late, old_brokers.cpu, brokers.cpu),
        np.where(late, old_brokers.bandwidth_in, brokers.bandwidth_in),
        np.where(late, old_brokers.bandwidth_out, brokers.bandwidth_out),
        brokers.served,
    )
    return mixed, _mixed(old_rates, rates, of_late)


def _mixed(old: Rates, new: Rates, late: Flags) -> Rates:
    return Rates(
        *(
            np.where(late, getattr(old, name), getattr(new, name))
            for name in ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
        )
    )
