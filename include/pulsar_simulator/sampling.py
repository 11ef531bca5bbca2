"""The brokers' measurements, and the times at which brokers publish them.

There are three different intervals, as in the modular load manager. Bundle statistics are computed every stats period.
Host usage (CPU, bandwidth) is measured at every host check, timed from each broker's own start. `lastUpdate` is the
time of the last metadata write (ModularLoadManagerImpl.needBrokerDataUpdate).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pulsar_simulator.load import NOBODY, Floats, Ints, Rates, Traffic, sum_by_broker

IDLE_CPU = 5e-06
"""CPU usage that a broker reports before its first sample, in percent of one core."""

if TYPE_CHECKING:
    from pulsar_simulator.brokers import Broker, BrokerSpec

_KBIT_PER_BYTE = 8 / 1000  # bytes/s -> Kbit/s


@dataclass(frozen=True, slots=True)
class Timing:
    """The periods, in seconds, and the threshold, in percent, that determine when brokers measure and publish.

    Attributes:
        stats_period: time between bundle statistics (`statsUpdateFrequencyInSecs`).
        host_check_period: time between samples of CPU and bandwidth (`loadBalancerHostUsageCheckIntervalMinutes`).
        report_max_interval: maximum time between metadata writes.
        report_threshold: change in load, in percent, above which metadata is written earlier.
        reconnect_delay: delay before producers that lost their broker look up their topics.
        session_timeout: time until the metadata session of a killed broker ends.
    """

    stats_period: float = 60.0
    host_check_period: float = 60.0
    report_max_interval: float = 900.0
    report_threshold: float = 10.0
    reconnect_delay: float = 0.1
    session_timeout: float = 8.0

    def __post_init__(self) -> None:
        """Reject periods that are not positive.

        Raises:
            ValueError: a period is invalid; the message names it.
        """
        for name in ("stats_period", "host_check_period", "report_max_interval"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 seconds, got {getattr(self, name)}")


class Samples:
    """The latest measurements of all brokers, as arrays with one entry per broker or per bundle."""

    def __init__(self, specs: list[BrokerSpec], traffic: Traffic, timing: Timing, start: float) -> None:
        self._traffic = traffic
        self._timing = timing
        self._start = start
        self._brokers = len(specs)
        self._cpu_limit = np.array([spec.cpu_limit for spec in specs])
        self._base_cpu = np.array([spec.base_cpu for spec in specs])
        self._nic = np.array([spec.nic for spec in specs])
        bundles = len(traffic.msg_rate_in)
        nobody = np.full(bundles, NOBODY, dtype=np.int64)
        self.owner: Ints = nobody
        """Owner of each bundle at the last update of the statistics."""
        self.owner_before: Ints = nobody
        self.rates: Rates = traffic.rates_at(0.0)
        self.totals: Rates = self.rates.sum_by_broker(nobody, self._brokers)
        self.cpu: Floats = np.full(self._brokers, IDLE_CPU)
        self.bandwidth_in: Floats = np.zeros(self._brokers)
        self.bandwidth_out: Floats = np.zeros(self._brokers)
        self.last_update: Floats = np.full(self._brokers, start)
        self._written = np.zeros((4, self._brokers))  # rate, throughput, bundles, usage at the last write
        self.version = 0
        """Incremented on every change. Results computed from the samples are valid while this number is unchanged."""
        self._order: Ints = np.argsort(nobody, kind="stable")

    def end_stats_period(self, now: float, owner: Ints) -> None:
        """End a stats period: store the new rates and the current owners of the bundles."""
        self.owner_before, self.owner = self.owner, owner.copy()
        self.rates = self._traffic.rates_at(now - self._start)
        self.totals = self.rates.sum_by_broker(self.owner, self._brokers)
        self._order = np.argsort(self.owner, kind="stable")
        self._write_reports(now)

    def measure_host_usage(self, now: float, due_brokers: list[int], owner: Ints) -> None:
        """Measure the current CPU and bandwidth usage of the brokers in `due_brokers`."""
        cpu, inward, outward = self._demand_by_broker(now, owner)
        cpu = cpu * self._traffic.cpu_jitter(now - self._start, self._brokers)
        self.cpu[due_brokers] = np.minimum(cpu, self._cpu_limit)[due_brokers]
        self.bandwidth_in[due_brokers] = np.minimum(inward, self._nic)[due_brokers]
        self.bandwidth_out[due_brokers] = np.minimum(outward, self._nic)[due_brokers]
        self._write_reports(now)

    def true_usage(self, now: float, owner: Ints) -> Floats:
        """Return each broker's highest demand as a fraction of the resource's limit, without jitter; can exceed 1."""
        return self._highest_usage(*self._demand_by_broker(now, owner))

    def forget_broker(self, broker: Broker, now: float) -> None:
        """Delete the measurements of a restarted broker, which then reports no load."""
        i = broker.index
        self.cpu[i] = IDLE_CPU
        self.bandwidth_in[i] = self.bandwidth_out[i] = 0.0
        for column in self.totals.columns:
            column[i] = 0.0
        self.owner = np.where(self.owner == i, NOBODY, self.owner)
        self._order = np.argsort(self.owner, kind="stable")
        self._written[:, i] = 0.0
        self.last_update[i] = now
        self.version += 1

    def bundles_of(self, broker: int) -> list[int]:
        """Return the bundles with loaded topics that a broker owned when bundle statistics were last computed."""
        owned = self.owner[self._order]
        first, last = np.searchsorted(owned, [broker, broker + 1])
        active = self._traffic.is_active
        return [int(i) for i in self._order[first:last] if active[i]]

    def split(self, bundle: int, shares: list[float]) -> None:
        """Replace a split bundle with its parts, each with its share of the bundle's last values."""
        more = len(shares) - 1
        self.owner, self.owner_before = (np.append(o, [o[bundle]] * more) for o in (self.owner, self.owner_before))
        self.rates = self.rates.with_split_bundle(bundle, shares)
        self._order = np.argsort(self.owner, kind="stable")
        self.version += 1

    def usage(self) -> Floats:
        """Return each broker's highest usage as a fraction (0 to 1) of the resource's limit; resources are unweighted.

        If the limit is 0, the usage is 0.
        """
        return self._highest_usage(self.cpu, self.bandwidth_in, self.bandwidth_out)

    def _demand_by_broker(self, now: float, owner: Ints) -> tuple[Floats, Floats, Floats]:
        """Return each broker's demand: CPU (percent of one core), and inbound and outbound Kbit/s."""
        rates = self._traffic.rates_at(now - self._start)
        totals = rates.sum_by_broker(owner, self._brokers)
        cpu = self._base_cpu + sum_by_broker(self._traffic.cpu_of_bundles(rates), owner, self._brokers)
        return cpu, totals.msg_throughput_in * _KBIT_PER_BYTE, totals.msg_throughput_out * _KBIT_PER_BYTE

    def _highest_usage(self, cpu: Floats, bandwidth_in: Floats, bandwidth_out: Floats) -> Floats:
        nic = np.where(self._nic > 0, self._nic, np.inf)
        return np.asarray(np.maximum.reduce([cpu / self._cpu_limit, bandwidth_in / nic, bandwidth_out / nic]))

    def _write_reports(self, now: float) -> None:
        self.version += 1
        held = np.bincount(self.owner + 1, minlength=self._brokers + 1)[1:]
        current = np.stack(
            [
                self.totals.msg_rate_in + self.totals.msg_rate_out,
                self.totals.msg_throughput_in + self.totals.msg_throughput_out,
                held.astype(np.float64),
                self.usage(),
            ]
        )
        before = self._written
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.where(current == before, 0.0, np.abs(current - before) / before)
        change[3] = np.abs(current[3] - before[3])
        due = 100 * change.max(axis=0) > self._timing.report_threshold
        due |= now - self.last_update >= self._timing.report_max_interval
        self.last_update[due] = now
        self._written[:, due] = current[:, due]
