"""The state of a cluster at the end of a minute, simulated or recorded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import repeat

import numpy as np

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.columns import NOBODY, Flags, Floats, Ints, Roster
from pulsar_rebalancer.run.tables import AVERAGES, RESOURCES, TRAFFIC, BrokerSample, Measure, ResourceUsage
from pulsar_rebalancer.state import HitRules
from pulsar_rebalancer.strategies.sample import COUNTED
from pulsar_rebalancer.strategies.scoring import SCORED, Brokers, usage_percents, weighted_usages

NO_POLICIES = Policies()


@dataclass(frozen=True)
class BrokerLoads:
    """The values for all brokers at one time, a column per broker.

    Attributes:
        registered: brokers that the cluster lists.
        is_reported: brokers with a valid load report.
        report_age_s: age of each broker's load report in seconds.
        usage, limits: a row for each resource, in `run.tables`' unit; NaN where nothing was measured.
        traffic: a row for each of `columns.LOADS`.
        averages: a row for each of `run.tables.AVERAGES`, NaN if missing; None if no broker has any.
    """

    registered: Flags
    is_reported: Flags
    report_age_s: Floats
    usage: Floats
    limits: Floats
    traffic: Floats
    averages: Floats | None = None
    versions: tuple[str | None, ...] = ()

    @cached_property
    def percents(self) -> Floats:
        """Return each broker's usage in percent of its limits, with a row for each resource."""
        return usage_percents(self.usage, self.limits)


@dataclass(frozen=True)
class Minute:
    """The state of a cluster at the end of a minute.

    Attributes:
        number: the minute's number; for a recorded minute, the minutes since 1970.
        owner: position of each bundle's broker; `NOBODY` if no broker reports the bundle.
        bundle_loads: a row for each of `columns.LOADS`, a column per bundle.
        resources: names of the rows in `brokers.usage`.
        reserved_by: the isolation policy that reserves a broker, by broker position.
        hit_rules: rules for the hit counters; `Balancer` adds the values that count as repeated.
        stay_reasons: why a bundle must stay in this minute, by bundle position.
    """

    number: int
    broker_loads: BrokerLoads
    owner: Ints
    bundle_loads: Floats
    resources: tuple[str, ...]
    policies: Policies = NO_POLICIES
    reserved_by: Mapping[int, str] = field(default_factory=dict)
    hit_rules: HitRules = COUNTED
    stay_reasons: Mapping[int, Reason] = field(default_factory=dict)

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(60 * self.number, UTC)

    @property
    def reported_bundles(self) -> Flags:
        return np.asarray(self.broker_loads.is_reported[self.owner] & (self.owner != NOBODY))


class _ResourceUsages(Mapping[str, ResourceUsage]):
    """A broker's usage of each resource, read only on demand: a replay would make tens of millions of objects."""

    def __init__(self, minute: Minute, broker: int) -> None:
        self._minute, self._broker = minute, broker

    def __getitem__(self, name: str) -> ResourceUsage:
        if name not in self._minute.resources:
            raise KeyError(name)
        row, brokers = self._minute.resources.index(name), self._minute.broker_loads
        usage, limit = brokers.usage.item(row, self._broker), brokers.limits.item(row, self._broker)
        return ResourceUsage(usage if usage == usage else None, limit if limit == limit else None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._minute.resources)

    def __len__(self) -> int:
        return len(self._minute.resources)


class ColumnarBrokers(Brokers):
    """The brokers of a minute; they become objects only when a strategy reads them.

    Args:
        left_out: the brokers that can be neither source nor destination, by position.
    """

    def __init__(self, minute: Minute, roster: Roster, settings: Settings, left_out: Mapping[int, Reason]) -> None:
        self._minute = minute
        self._roster = roster
        self._settings = settings
        self._reasons = {i: reason for i, reason in left_out.items() if minute.broker_loads.registered[i]}

    @cached_property
    def _compared_indices(self) -> Ints:
        compared = self._minute.broker_loads.registered.copy()
        compared[list(self._reasons)] = False
        return self._roster.by_name[compared[self._roster.by_name]]

    @cached_property
    def _compared_names(self) -> list[str]:
        return [self._roster.brokers[i] for i in self._compared_indices.tolist()]

    @cached_property
    def names(self) -> Collection[str]:
        return {self._roster.brokers[i] for i in np.flatnonzero(self._minute.broker_loads.registered).tolist()}

    @cached_property
    def policy_by_reserved_broker(self) -> Mapping[str, str]:
        return {self._roster.brokers[i]: policy for i, policy in self._minute.reserved_by.items()}

    def usage_by_broker(self, settings: Settings) -> Mapping[str, float]:
        return self._usage_by_broker

    @cached_property
    def _usage_by_broker(self) -> dict[str, float]:
        usages = self._weighted_usages(SCORED)[self._compared_indices]
        return dict(zip(self._compared_names, usages.tolist(), strict=True))

    def traffic_by_broker(self, measure: Measure) -> Mapping[str, float]:
        rows = [TRAFFIC.index(f"{measure}_{way}") for way in ("in", "out")]
        inward, outward = self._minute.broker_loads.traffic[rows][:, self._compared_indices]
        return dict(zip(self._compared_names, (inward + outward).tolist(), strict=True))

    @cached_property
    def left_out_reasons(self) -> Mapping[str, Reason]:
        return {self._roster.brokers[i]: reason for i, reason in self._reasons.items()}

    @cached_property
    def report_age_by_broker(self) -> Mapping[str, float]:
        averages, age = self._minute.broker_loads.averages, self._minute.broker_loads.report_age_s.tolist()
        if averages is None:
            return {}
        return {self._roster.brokers[i]: age[i] for i in np.flatnonzero(~np.isnan(averages[0])).tolist()}

    def find_broker(self, name: str) -> BrokerSample:
        return self._samples_of(np.array([self._roster.broker_at[name]]), [{}])[0]

    @cached_property
    def _samples(self) -> list[BrokerSample]:
        indices = np.flatnonzero(self._minute.broker_loads.registered)
        scored, of_all = (self._weighted_usages(of)[indices].tolist() for of in (SCORED, RESOURCES))
        return self._samples_of(indices, [{SCORED: a, RESOURCES: b} for a, b in zip(scored, of_all, strict=True)])

    def _samples_of(self, indices: Ints, weighted: Iterable[Mapping[Sequence[str], float]]) -> list[BrokerSample]:
        minute, brokers, positions = self._minute, self._minute.broker_loads, indices.tolist()
        *traffic, topics = brokers.traffic[:, indices]
        unknown = [repeat(None)] * len(AVERAGES)
        averages = unknown if brokers.averages is None else map(_nan_to_none, brokers.averages[:, indices])
        columns = (
            [self._roster.brokers[i] for i in positions],
            map(self._reasons.get, positions),
            map(partial(_ResourceUsages, minute), positions),
            *(of.tolist() for of in (*traffic, topics.astype(np.int64), self._bundle_counts[indices])),
            [brokers.versions[i] for i in positions] if brokers.versions else repeat(None),
            map(minute.reserved_by.get, positions),
            *averages,
            brokers.report_age_s[indices].tolist(),
            repeat(None),
            weighted,
        )
        return list(map(BrokerSample, *columns))

    @cached_property
    def _bundle_counts(self) -> Ints:
        return np.bincount(self._minute.owner[self._minute.owner != NOBODY], minlength=len(self._roster.brokers))

    def _weighted_usages(self, resources: tuple[str, ...]) -> Floats:
        return weighted_usages(self._minute.broker_loads.percents, self._minute.resources, self._settings, resources)


def _nan_to_none(values: Floats) -> list[float | None]:
    return [value if value == value else None for value in values.tolist()]
