"""The brokers' load reports for each minute. CPU values are noisy; reports can be late or missing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pulsar_simulator.load import NOBODY, Rates
from pulsar_simulator.minutes.machines import Demand
from pulsar_simulator.minutes.workload import BLOCK

if TYPE_CHECKING:
    from pulsar_simulator.load import Flags, Floats, Ints
    from pulsar_simulator.minutes.spec import Spec

MINUTE = 60.0
_REPORTS, _CPU = 21, 23  # one random stream each


@dataclass(frozen=True, slots=True)
class Report:
    """What the load manager knows at the end of a minute.

    Attributes:
        minute: counted from 0.
        registered: brokers that the cluster lists.
        reported: brokers whose report arrived.
        age: age of each report in seconds.
        brokers: values of the brokers that reported, CPU as sampled; the entries for other brokers are meaningless.
        owner: position of each bundle's broker.
        rates: msg/s and bytes/s per bundle, from the report of its broker.
    """

    minute: int
    registered: Flags
    reported: Flags
    age: Floats
    brokers: Demand
    owner: Ints
    rates: Rates


class Reports:
    """Simulates the brokers' reports, minute by minute; the same seed gives the same reports."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._drawn: tuple[int, Floats, Floats] | None = None
        self._before: deque[tuple[Demand, Rates]] = deque(maxlen=spec.rules.late_minutes)

    def of(self, minute: int, truth: Demand, rates: Rates, owner: Ints, registered: Flags, alive: Flags) -> Report:
        """Return the reports for a minute.

        Args:
            minute: counted from 0; call this once for each minute, in order.
            truth: the brokers' actual traffic and usage.
            rates: the bundles' actual traffic.
            owner: position of each bundle's broker.
            registered: brokers that the cluster lists.
            alive: brokers that can answer.
        """
        noise, draw = self._draw(minute)
        rules = self._spec.rules
        cpu = np.minimum(truth.cpu * noise, self._spec.brokers.cpu_limit)
        said = Demand(truth.traffic, cpu, truth.bandwidth_in, truth.bandwidth_out, truth.served)
        fresh = (said, rates)
        missing = draw < rules.missing
        minutes = len(self._before)
        late = ~missing & (draw < rules.missing + rules.late) & (minutes > 0)
        if late.any():
            said, rates = _of_before(self._before[0], fresh, late, owner)
        self._before.append(fresh)
        return Report(
            minute=minute,
            registered=registered.copy(),
            reported=registered & alive & ~missing,
            age=np.where(late, minutes * MINUTE, 0.0),
            brokers=said,
            owner=owner.copy(),
            rates=rates,
        )

    def _draw(self, minute: int) -> tuple[Floats, Floats]:
        """Return, for each broker, a noise factor for its CPU sample and a random number from 0 to 1 for its report.

        If this number is low, the report is missing or late (`Rules.missing`, `Rules.late`).
        """
        number, row = divmod(minute, BLOCK)
        if self._drawn is None or self._drawn[0] != number:
            # Draw broker by broker, so that additional brokers do not change the reports of these.
            size = (len(self._spec.started), BLOCK)
            deviation = np.random.default_rng((self._spec.seed, _CPU, number)).standard_normal(size).T.clip(-3, 3)
            reports = np.random.default_rng((self._spec.seed, _REPORTS, number)).random(size).T
            self._drawn = (number, (1 + self._spec.rules.cpu_noise * deviation).clip(0), reports)
        return self._drawn[1][row], self._drawn[2][row]


def _of_before(
    before: tuple[Demand, Rates], now: tuple[Demand, Rates], late: Flags, owner: Ints
) -> tuple[Demand, Rates]:
    """Return current values, but earlier values for brokers whose report is late and for their bundles."""
    old_brokers, old_rates = before
    brokers, rates = now
    of_late = (owner != NOBODY) & late[owner]
    mixed = replace(
        brokers,
        traffic=_mixed(old_brokers.traffic, brokers.traffic, late),
        cpu=np.where(late, old_brokers.cpu, brokers.cpu),
        bandwidth_in=np.where(late, old_brokers.bandwidth_in, brokers.bandwidth_in),
        bandwidth_out=np.where(late, old_brokers.bandwidth_out, brokers.bandwidth_out),
    )
    return mixed, _mixed(old_rates, rates, of_late)


def _mixed(old: Rates, new: Rates, late: Flags) -> Rates:
    return Rates(*(np.where(late, *columns) for columns in zip(old.columns, new.columns, strict=True)))
