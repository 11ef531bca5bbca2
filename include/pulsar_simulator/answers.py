"""What brokers report about their load, their bundles and the active brokers. Faults can make the reports wrong."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pulsar_simulator.faults import FaultKind, Faults
from pulsar_simulator.report import TRAFFIC, Json, Reporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_simulator.brokers import Broker, Membership
    from pulsar_simulator.faults import Fault
    from pulsar_simulator.ownership import Ownership
    from pulsar_simulator.sampling import Samples
    from pulsar_simulator.topology import Topology


@dataclass(frozen=True, slots=True)
class Answers:
    """All brokers' responses, based on the true state and the active faults."""

    membership: Membership
    topology: Topology
    ownership: Ownership
    samples: Samples
    reporter: Reporter
    faults: Faults
    _reports: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def load_report(self, index: int, now: float) -> bytes:
        """Return the bytes of a broker's load report. A report that no fault changes is built only once per sample."""
        broker = self.membership.brokers[index]
        untrue = [fault for kind in _LIES if (fault := self.faults.take(kind, broker=broker.broker_id))]
        if self.faults.take(FaultKind.WRONG_BROKER, broker=broker.broker_id):
            broker = self.membership.brokers[(index + 1) % len(self.membership.brokers)]
        extra = [b for b in self._claimed(broker) if b not in self.samples.bundles_of(broker.index)]
        honest = not untrue and not extra
        version, cached = self._reports.get(broker.index, (-1, b""))
        if honest and version == self.samples.version:
            return cached
        report = self.reporter.load_report(broker, extra, now)
        for fault in untrue:  # in the order of the table: a missing field goes last
            _LIES[fault.kind](report, fault)
        text = json.dumps(report, separators=(",", ":")).encode()
        if honest:
            self._reports[broker.index] = (self.samples.version, text)
        return text

    def owned_bundles(self, broker: Broker) -> list[str]:
        """Return the bundles that a broker says it owns, including its heartbeat bundle."""
        own = [int(i) for i in np.flatnonzero(self.ownership.owner == broker.index)]
        claimed = [i for i in self._claimed(broker) if i not in own]
        return [*(self.topology.bundles[i] for i in [*own, *claimed]), self.reporter.heartbeat(broker)]

    def active_brokers(self) -> list[str]:
        """Return the brokerIds that the brokers list as active."""
        ids = [
            broker.broker_id
            for broker in self.membership.registered()
            if not self.faults.find(FaultKind.NOT_LISTED, broker=broker.broker_id)
        ]
        return ids + [i for i in ids if self.faults.find(FaultKind.LISTED_TWICE, broker=i)]

    def _claimed(self, broker: Broker) -> list[int]:
        return [
            self.topology.index(fault.bundle)
            for fault in self.faults.all()
            if fault.kind is FaultKind.TWO_OWNERS and fault.broker == broker.broker_id and fault.bundle
        ]


def _cpu(usage: object) -> Callable[[Json, Fault], None]:
    def lie(report: Json, _fault: Fault) -> None:
        report["cpu"] = {**report["cpu"], "usage": usage}

    return lie


def _negative_rate(report: Json, fault: Fault) -> None:
    for stats in islice(report["lastStats"].values(), int(fault.size)):
        stats["msgRateIn"] = -1.0 - stats["msgRateIn"]


def _huge_count(report: Json, fault: Fault) -> None:
    for stats in islice(report["lastStats"].values(), int(fault.size)):
        stats["producerCount"] = stats["consumerCount"] = 2**62


def _missing(report: Json, fault: Fault) -> None:
    report.pop(fault.target or "cpu", None)


def _over_limit(report: Json, fault: Fault) -> None:
    resource = report[fault.target or "cpu"]
    resource["usage"] = resource["limit"] * fault.size


def _zero_limit(report: Json, fault: Fault) -> None:
    for name in [fault.target] if fault.target else ["bandwidthIn", "bandwidthOut"]:
        report[name]["limit"] = 0.0


def _stale(report: Json, fault: Fault) -> None:
    report["lastUpdate"] -= int(fault.size * 1000)


def _future(report: Json, fault: Fault) -> None:
    report["lastUpdate"] += int(fault.size * 1000)
    report["startTimestamp"] += int(fault.size * 1000)


def _unaccounted(report: Json, fault: Fault) -> None:
    for name in TRAFFIC:
        report[name] *= fault.size


def _odd_bundle(report: Json, fault: Fault) -> None:
    like = next(iter(report["lastStats"].values()))
    report["lastStats"][fault.target] = dict.fromkeys(like, 0)
    report["bundles"].append(fault.target)
    report["numBundles"] += 1


_LIES: dict[FaultKind, Callable[[Json, Fault], None]] = {
    FaultKind.NAN_USAGE: _cpu("NaN"),
    FaultKind.BARE_NAN: _cpu(math.nan),
    FaultKind.NEGATIVE_USAGE: _cpu(-1.0),
    FaultKind.OVER_LIMIT: _over_limit,
    FaultKind.ZERO_LIMIT: _zero_limit,
    FaultKind.NEGATIVE_RATE: _negative_rate,
    FaultKind.HUGE_COUNT: _huge_count,
    FaultKind.STALE_LAST_UPDATE: _stale,
    FaultKind.FUTURE_CLOCK: _future,
    FaultKind.UNACCOUNTED: _unaccounted,
    FaultKind.ODD_BUNDLE: _odd_bundle,
    FaultKind.MISSING_FIELD: _missing,
}
