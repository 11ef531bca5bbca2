"""The state of a cluster at the end of a minute, simulated or recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.columns import NOBODY, Flags, Floats, Ints, Roster
from pulsar_rebalancer.run.tables import AVERAGES, RESOURCES, BrokerSample, ResourceUsage
from pulsar_rebalancer.state.state_documents import Counting
from pulsar_rebalancer.strategies.sample import COUNTED
from pulsar_rebalancer.strategies.scoring import SCORED, percents, weighted_usages

NO_POLICIES = Policies()


@dataclass(frozen=True)
class BrokerLoads:
    """The values for all brokers at one time, a column per broker.

    Attributes:
        registered: brokers that the cluster lists.
        reported: brokers with a valid load report.
        age: age of each broker's load report in seconds.
        usage, limits: a row for each resource, in `run.tables`' unit; NaN where nothing was measured.
        traffic: a row for each of `columns.LOADS`.
        averages: a row for each of `run.tables.AVERAGES`, NaN if missing; None if no broker has any.
    """

    registered: Flags
    reported: Flags
    age: Floats
    usage: Floats
    limits: Floats
    traffic: Floats
    averages: Floats | None = None
    versions: tuple[str | None, ...] = ()

    @cached_property
    def percents(self) -> Floats:
        """Return each broker's usage in percent of its limits, with a row for each resource."""
        return percents(self.usage, self.limits)


@dataclass(frozen=True)
class Minute:
    """The state of a cluster at the end of a minute.

    Attributes:
        number: the minute's number; for a recorded minute, the minutes since 1970.
        owner: position of each bundle's broker; `NOBODY` if no broker reports the bundle.
        bundles: a row for each of `columns.LOADS`, a column per bundle.
        resources: names of the rows in `brokers.usage`.
        reserved: the isolation policy that reserves a broker, by broker position.
        counting: rules for the hit counters; `Balancer` adds the values that count as repeated.
        stays: why a bundle must stay in this minute, by bundle position.
    """

    number: int
    brokers: BrokerLoads
    owner: Ints
    bundles: Floats
    resources: tuple[str, ...]
    policies: Policies = NO_POLICIES
    reserved: Mapping[int, str] = field(default_factory=dict)
    counting: Counting = COUNTED
    stays: Mapping[int, Reason] = field(default_factory=dict)

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(60 * self.number, UTC)

    @property
    def seen(self) -> Flags:
        return np.asarray(self.brokers.reported[self.owner] & (self.owner != NOBODY))


def broker_samples(
    minute: Minute, roster: Roster, settings: Settings, left_out: Mapping[int, Reason]
) -> list[BrokerSample]:
    brokers = minute.brokers
    held = np.bincount(minute.owner[minute.owner != NOBODY], minlength=len(roster.brokers)).tolist()
    scored, of_all = (
        weighted_usages(brokers.percents, minute.resources, settings, looked_at).tolist()
        for looked_at in (SCORED, RESOURCES)
    )
    traffic, age = brokers.traffic.T.tolist(), brokers.age.tolist()
    averages = _averages(brokers.averages, len(age))
    versions: Sequence[str | None] = brokers.versions or (None,) * len(age)
    return [
        BrokerSample(
            roster.brokers[i],
            left_out.get(i),
            _Resources(minute, i),
            msg_rate_in=rate_in,
            msg_rate_out=rate_out,
            msg_throughput_in=throughput_in,
            msg_throughput_out=throughput_out,
            topics=int(topics),
            bundles=held[i],
            version=versions[i],
            reserved_by=minute.reserved.get(i),
            report_age_seconds=age[i],
            weighted={SCORED: scored[i], RESOURCES: of_all[i]},
            **averages[i],
        )
        for i in np.flatnonzero(brokers.registered).tolist()
        for rate_in, rate_out, throughput_in, throughput_out, topics in (traffic[i],)
    ]


def _averages(values: Floats | None, count: int) -> list[dict[str, Any]]:
    if values is None:
        return [{}] * count
    return [
        {name: value for name, value in zip(AVERAGES, of_broker, strict=True) if value == value}
        for of_broker in values.T.tolist()
    ]


class _Resources(Mapping[str, ResourceUsage]):
    """One broker's resources, built on demand: most strategies need only its weighted usage."""

    __slots__ = ("_broker", "_minute")

    def __init__(self, minute: Minute, broker: int) -> None:
        self._minute = minute
        self._broker = broker

    def __getitem__(self, name: str) -> ResourceUsage:
        try:
            row = self._minute.resources.index(name)
        except ValueError:
            raise KeyError(name) from None
        brokers = self._minute.brokers
        usage, limit = (float(column[row, self._broker]) for column in (brokers.usage, brokers.limits))
        return ResourceUsage(None if np.isnan(usage) else usage, None if np.isnan(limit) else limit)

    def __iter__(self) -> Iterator[str]:
        return iter(self._minute.resources)

    def __len__(self) -> int:
        return len(self._minute.resources)
