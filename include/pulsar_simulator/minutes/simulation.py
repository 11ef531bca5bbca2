"""Simulate a cluster minute by minute: bundle ownership and broker traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from pulsar_simulator.load import NOBODY, Floats, Rates
from pulsar_simulator.minutes.machines import MINUTE_SECONDS, Demand, Event, EventKind, Report, Reports, RunSpec, demand

_RECONNECT_STREAM = 22  # a random stream of its own


class Unload(NamedTuple):
    """A bundle to unload. If `destination` is None, the load manager chooses the new broker."""

    bundle: int
    destination: int | None = None


ChooseBroker = Callable[[int, list[int]], int | None]
"""Returns the registered broker that a bundle gets, or None if no broker suits. Bundles and brokers are indexes."""


class Simulation:
    """A cluster with its own clock, which `run_minute` advances. Identical specs and calls give identical runs.

    Args:
        place: chooses a broker for a bundle without a destination; by default, the broker with the fewest messages.
    """

    def __init__(self, spec: RunSpec, place: ChooseBroker | None = None) -> None:
        self.spec = spec
        self.minute = 0
        self.owner = spec.initial_owner.copy()
        self.alive = spec.is_started.copy()
        self.registered = spec.is_started.copy()
        self.truth: Demand | None = None
        """The brokers' actual traffic and usage in the last minute; None before the first step."""
        self.down = np.zeros(len(self.owner))
        """Number of seconds for which each bundle was unavailable in the last minute."""
        self._place: ChooseBroker = place or self._least_loaded_broker
        self._due: dict[int, float] = {int(bundle): 0.0 for bundle in np.flatnonzero(self.owner == NOBODY)}
        self._down = np.zeros(len(self.owner))  # seconds of the current minute during which a bundle is unavailable
        self._landed: list[int] = []
        self._given_up = np.zeros(len(self.alive))  # bundles unloaded from each broker at the start of the minute
        self._session_ends: dict[int, float] = {}
        self._events: dict[int, list[Event]] = {}
        for event in spec.events:
            self._events.setdefault(event.minute, []).append(event)
        self._waits: tuple[int, Floats] | None = None
        self._reports = Reports(spec)

    def unload(self, moves: Iterable[Unload]) -> None:
        """Unload bundles from their brokers at the start of the next minute, as the admin API does.

        Clients that lose their broker look the bundle up immediately; a bundle with neither clients nor a destination
        is never looked up. An unload to an unregistered destination is refused. An unload of a bundle without an owner
        has no effect.
        """
        rules, start = self.spec.rules, self.minute * MINUTE_SECONDS
        for bundle, destination in moves:
            if self.owner[bundle] == NOBODY or (destination is not None and not self.registered[destination]):
                continue
            ready = start + rules.unload_seconds
            self._given_up[self.owner[bundle]] += self.alive[self.owner[bundle]]
            if destination is None and rules.assigns_at_once:
                destination = self._place(bundle, self._registered_brokers())
            if destination is None:
                self._remove_owner(bundle, ready)
            elif self.alive[destination]:
                self._set_owner(bundle, destination, ready)
            else:
                self.owner[bundle] = destination

    def run_minute(self) -> Report:
        """Simulate one minute, and return the brokers' reports at the end of this minute."""
        start = self.minute * MINUTE_SECONDS
        for event in self._events.get(self.minute, ()):
            self._apply_event(event, start)
        self._end_sessions(start + MINUTE_SECONDS)
        self._place_due_bundles(start + MINUTE_SECONDS)
        self.truth, rates = self._demand_and_rates()
        report = self._reports.report_of_minute(self.minute, self.truth, rates, self.owner, self.registered, self.alive)
        self.minute += 1
        self._down[:] = 0.0
        self._landed.clear()
        self._given_up[:] = 0.0
        return report

    # ownership

    def _apply_event(self, event: Event, now: float) -> None:
        broker = event.broker
        if event.event_kind is EventKind.STOP and self.alive[broker]:
            self.alive[broker] = False
            self._session_ends[broker] = now + self.spec.rules.session_seconds
        elif event.event_kind is EventKind.START and not self.alive[broker]:
            if broker in self._session_ends:  # its old session ends with the new one
                self._session_ends[broker] = now
                self._end_sessions(now + 1)
            self.alive[broker] = self.registered[broker] = True

    def _end_sessions(self, until: float) -> None:
        for broker, ends in [item for item in self._session_ends.items() if item[1] < until]:
            del self._session_ends[broker]
            self.registered[broker] = False
            wait = 0.0 if self.spec.rules.assigns_at_once else self.spec.rules.reconnect_seconds
            for bundle in np.flatnonzero(self.owner == broker):
                self._remove_owner(int(bundle), ends + wait * float(self._relative_waits()[bundle]))

    def _remove_owner(self, bundle: int, lookup_at: float) -> None:
        """Remove a bundle's owner, and schedule the lookup that places the bundle again.

        There is no lookup if the bundle has no clients, unless `direct` is set.
        """
        self.owner[bundle] = NOBODY
        anybody = self.spec.rules.assigns_at_once or self.spec.workload.bundles.clients[bundle] > 0
        self._due[bundle] = lookup_at if anybody else float("inf")

    def _relative_waits(self) -> Floats:
        """Return how long each bundle's clients wait if they lose their broker now, as a multiple of the mean.

        A bundle's waiting time does not depend on which other bundles lose their broker, so strategies can be compared.
        """
        if self._waits is None or self._waits[0] != self.minute:
            stream = np.random.default_rng((self.spec.seed, _RECONNECT_STREAM, self.minute))
            self._waits = (self.minute, stream.standard_exponential(len(self.owner)))
        return self._waits[1]

    def _place_due_bundles(self, until: float) -> None:
        """Place the bundles whose lookups are due before `until`, in the order of the lookups."""
        for bundle in sorted(self._due, key=lambda bundle: (self._due[bundle], bundle)):
            due = self._due[bundle]
            chosen = self._place(bundle, self._registered_brokers()) if due < until else None
            if chosen is not None and self.alive[chosen]:
                del self._due[bundle]
                self._set_owner(bundle, chosen, due)

    def _set_owner(self, bundle: int, broker: int, time: float) -> None:
        self.owner[bundle] = broker
        self._down[bundle] = min(max(time - self.minute * MINUTE_SECONDS, 0.0), MINUTE_SECONDS)
        self._landed.append(bundle)

    def _registered_brokers(self) -> list[int]:
        return [int(broker) for broker in np.flatnonzero(self.registered)]

    def _least_loaded_broker(self, bundle: int, candidates: list[int]) -> int | None:
        rates = self.spec.workload.rates_at(self.minute).sum_by_broker(self.owner, len(self.alive))
        carried = rates.msg_rate_in + rates.msg_rate_out
        return min(candidates, key=lambda broker: (carried[broker], broker), default=None)

    # what is carried

    def _demand_and_rates(self) -> tuple[Demand, Rates]:
        """Return the traffic of brokers and bundles in the current minute."""
        spec, rules = self.spec, self.spec.rules
        offered = spec.workload.rates_at(self.minute)
        self.down = self._down.copy()
        if self._landed or self._due or not self.alive.all():
            self.down[(self.owner == NOBODY) | ~self.alive[self.owner]] = MINUTE_SECONDS
            offered = offered.scaled(1 - self.down / MINUTE_SECONDS)
        extra = np.where(self.alive, spec.brokers.base_cpu, 0.0)
        columns = spec.workload.bundles
        if rules.busy_cpu:
            extra += rules.busy_cpu * (offered.sum_by_broker(self.owner, len(extra)).msg_rate_in > 0)
        extra += 100 * rules.unload_cpu_seconds / MINUTE_SECONDS * self._given_up
        if self._landed:
            seconds = rules.unload_cpu_seconds + rules.reconnect_cpu_seconds * columns.clients[self._landed]
            np.add.at(extra, self.owner[self._landed], 100 * seconds / MINUTE_SECONDS)
        for spike in spec.cpu_spikes:
            if spike.minute <= self.minute < spike.minute + spike.minutes:
                extra[spike.broker] += spike.cpu
        truth = demand(spec.brokers, rules.cost, offered, self.owner, columns.cost, extra)
        return truth, offered if truth.served_share.min() == 1 else offered.scaled(truth.served_share[self.owner])
