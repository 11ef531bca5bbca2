"""What brokers report about their load, their bundles and the active brokers. Faults can make the reports wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from pulsar_simulator.brokers import Broker, Membership
from pulsar_simulator.faults import Fault, FaultKind, Faults
from pulsar_simulator.load import Ints, with_split_bundle
from pulsar_simulator.ownership import Ownership
from pulsar_simulator.sampling import Samples
from pulsar_simulator.topology import Topology

Json = dict[str, Any]

MODULAR_LOAD_MANAGER = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
TRAFFIC_FIELDS = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")


@dataclass
class StatsReporter:
    """Builds load reports and topic statistics from the latest samples.

    Args:
        cluster: cluster name, part of the heartbeat bundle's name up to 4.0.
        version: Pulsar version in reports. Before 4.1, the heartbeat namespace has three parts; from 5.0 on, reports
            have the brokerId.
        producers: number of producers of each bundle.
        consumers: number of consumers of each bundle.
        uses_tls: True if the web service uses https.

    Raises:
        ValueError: the version does not start with two numbers.
    """

    cluster: str
    version: str
    topology: Topology
    samples: Samples
    producers: Ints
    consumers: Ints
    uses_tls: bool

    def __post_init__(self) -> None:
        """Parse the version."""
        self.scheme = "https" if self.uses_tls else "http"
        major, minor = (int(part) for part in self.version.split(".")[:2])
        self._heartbeat_prefix = f"pulsar/{self.cluster}/" if (major, minor) < (4, 1) else "pulsar/"

    def heartbeat_bundle(self, broker: Broker) -> str:
        """Return the name of the bundle for the broker's health check."""
        return f"{self._heartbeat_prefix}{broker.broker_id}/0x00000000_0xffffffff"

    def bundle_stats(self, bundle: int) -> Json:
        """Return the NamespaceBundleStats of one bundle."""
        rates = self.samples.rates
        return {
            "msgRateIn": float(rates.msg_rate_in[bundle]),
            "msgThroughputIn": float(rates.msg_throughput_in[bundle]),
            "msgRateOut": float(rates.msg_rate_out[bundle]),
            "msgThroughputOut": float(rates.msg_throughput_out[bundle]),
            "consumerCount": int(self.consumers[bundle]),
            "producerCount": int(self.producers[bundle]),
            "topics": self.topology.topic_count(bundle),
            "cacheSize": 0,
        }

    def load_report(self, broker: Broker, extra_bundles: list[int], now: float) -> Json:
        """Return the LocalBrokerData of a broker.

        Args:
            extra_bundles: bundles to list in addition to the broker's own bundles.
            now: seconds since 1970.
        """
        samples, spec, i = self.samples, broker.spec, broker.index
        names = self.topology.bundles
        held = samples.bundles_of(i)
        stats = {names[b]: self.bundle_stats(b) for b in [*held, *extra_bundles]}
        heartbeat = dict.fromkeys(("consumerCount", "producerCount", "topics", "cacheSize"), 0)
        stats[self.heartbeat_bundle(broker)] = dict.fromkeys(TRAFFIC_FIELDS, 0.0) | heartbeat | {"topics": 1}
        sums = {name: math.fsum(entry[name] for entry in stats.values()) for name in TRAFFIC_FIELDS}
        counts = {
            name: sum(entry[name] for entry in stats.values()) for name in ("topics", "consumerCount", "producerCount")
        }
        megabytes = (sums["msgThroughputIn"] + sums["msgThroughputOut"]) / 1048576
        # The heap grows until it is collected; direct memory holds what is in flight.
        heap = spec.memory * (0.25 + 0.35 * ((now + 37.0 * i) % 120.0) / 120.0)
        direct = min(spec.direct_memory, 4.0 + 2.0 * megabytes)
        before, after = (set((owner == i).nonzero()[0].tolist()) for owner in (samples.owner_before, samples.owner))
        host, _, port = broker.broker_id.rpartition(":")
        return {
            **({"brokerId": broker.broker_id} if self.version.startswith("5.") else {}),
            **({f"webServiceUrl{'Tls' if self.scheme == 'https' else ''}": f"{self.scheme}://{host}:{port}"}),
            "pulsarServiceUrl": self.service_url(broker),
            "persistentTopicsEnabled": True,
            "nonPersistentTopicsEnabled": True,
            "cpu": {"usage": float(samples.cpu[i]), "limit": spec.cpu_limit},
            "memory": {"usage": heap, "limit": spec.memory},
            "directMemory": {"usage": direct, "limit": spec.direct_memory},
            "bandwidthIn": {"usage": float(samples.bandwidth_in[i]), "limit": spec.nic},
            "bandwidthOut": {"usage": float(samples.bandwidth_out[i]), "limit": spec.nic},
            "msgThroughputIn": sums["msgThroughputIn"],
            "msgThroughputOut": sums["msgThroughputOut"],
            "msgRateIn": sums["msgRateIn"],
            "msgRateOut": sums["msgRateOut"],
            "lastUpdate": int(samples.last_update[i] * 1000),
            "lastStats": stats,
            "numTopics": counts["topics"],
            "numBundles": len(stats),
            "numConsumers": counts["consumerCount"],
            "numProducers": counts["producerCount"],
            "bundles": list(stats),
            "lastBundleGains": [names[b] for b in sorted(after - before)],
            "lastBundleLosses": [names[b] for b in sorted(before - after)],
            "brokerVersionString": self.version,
            "protocols": {},
            "advertisedListeners": {},
            "loadManagerClassName": MODULAR_LOAD_MANAGER,
            "startTimestamp": int(broker.started_at * 1000),
            "maxResourceUsage": max(float(samples.usage()[i]), direct / spec.direct_memory),
            "loadReportType": "LocalBrokerData",
        }

    def split_clients(self, bundle: int, shares: list[float]) -> None:
        """Divide a bundle's producers and consumers among its parts, rounding up."""
        for name in ("producers", "consumers"):
            before = getattr(self, name)
            parts = np.ceil(with_split_bundle(before.astype(np.float64), bundle, shares)).astype(np.int64)
            setattr(self, name, parts)

    def service_url(self, broker: Broker) -> str:
        """Return the address of the binary protocol: the same host, with the web port minus 1430 (8080 -> 6650)."""
        host, _, port = broker.broker_id.rpartition(":")
        return f"pulsar://{host}:{(int(port) - 1430) % 65536}"

    def topic_stats(self, broker: Broker, *, with_publishers: bool = True) -> Json:
        """Return the answer to `broker-stats/topics`: statistics nested by namespace, bundle, domain and topic.

        Args:
            with_publishers: False to only count producers, as with `exposePublisherStats=false`.
        """
        answer: Json = {}
        for bundle in self.samples.bundles_of(broker.index):
            namespace = self.topology.namespace_of(bundle)
            domains: Json = {"persistent": {}, "non-persistent": {}}
            whole = self.bundle_stats(bundle)
            for number, (topic, share) in enumerate(self.topology.share_by_topic(bundle).items()):
                # Segments count as persistent topics (PulsarStats).
                domains["non-persistent" if topic.startswith("non-") else "persistent"][topic] = {
                    **self.client_stats(bundle, number),
                    **({} if with_publishers else {"publishers": []}),
                    "replication": {},
                    "averageMsgSize": whole["msgThroughputIn"] / whole["msgRateIn"] if whole["msgRateIn"] else 0.0,
                    **{name: whole[name] * share for name in TRAFFIC_FIELDS},
                }
            answer.setdefault(namespace.name, {})[self.topology.range_of(bundle)] = domains
        return answer

    def client_stats(self, bundle: int, number: int, *, is_away: bool = False) -> Json:
        """Return a topic's client statistics. A bundle's clients are divided about equally among its topics.

        Args:
            number: position of the topic among the bundle's topics.
            is_away: True if the clients are currently disconnected.
        """
        topics = self.topology.topic_count(bundle)
        producers, consumers = (
            0 if is_away else int(count // topics) + int(number < count % topics)
            for count in (self.producers[bundle], self.consumers[bundle])
        )
        return {
            "publishers": [{"producerId": number} for number in range(producers)],
            "subscriptions": {"subscription": {"consumers": [{"consumerName": f"c{n}"} for n in range(consumers)]}},
            "producerCount": producers,
        }


@dataclass(frozen=True, slots=True)
class BrokerAnswers:
    """All brokers' responses, based on the true state and the active faults."""

    membership: Membership
    topology: Topology
    ownership: Ownership
    samples: Samples
    reporter: StatsReporter
    faults: Faults
    _reports: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def load_report(self, index: int, now: float) -> bytes:
        """Return the bytes of a broker's load report. A report that no fault changes is built only once per sample."""
        broker = self.membership.brokers[index]
        untrue = [fault for kind in _REPORT_FAULTS if (fault := self.faults.take_fault(kind, broker=broker.broker_id))]
        if self.faults.take_fault(FaultKind.WRONG_BROKER, broker=broker.broker_id):
            broker = self.membership.brokers[(index + 1) % len(self.membership.brokers)]
        extra = [b for b in self._claimed_bundles(broker) if b not in self.samples.bundles_of(broker.index)]
        honest = not untrue and not extra
        version, cached = self._reports.get(broker.index, (-1, b""))
        if honest and version == self.samples.version:
            return cached
        report = self.reporter.load_report(broker, extra, now)
        for fault in untrue:  # in the order of the table: a missing field goes last
            _REPORT_FAULTS[fault.kind](report, fault)
        text = json.dumps(report, separators=(",", ":")).encode()
        if honest:
            self._reports[broker.index] = (self.samples.version, text)
        return text

    def owned_bundles(self, broker: Broker) -> list[str]:
        """Return the bundles that a broker says it owns, including its heartbeat bundle."""
        own = [int(i) for i in np.flatnonzero(self.ownership.owner == broker.index)]
        claimed = [i for i in self._claimed_bundles(broker) if i not in own]
        return [*(self.topology.bundles[i] for i in [*own, *claimed]), self.reporter.heartbeat_bundle(broker)]

    def active_brokers(self) -> list[str]:
        """Return the brokerIds that the brokers list as active."""
        ids = [
            broker.broker_id
            for broker in self.membership.registered_brokers()
            if not self.faults.find_fault(FaultKind.NOT_LISTED, broker=broker.broker_id)
        ]
        return ids + [i for i in ids if self.faults.find_fault(FaultKind.LISTED_TWICE, broker=i)]

    def _claimed_bundles(self, broker: Broker) -> list[int]:
        return [
            self.topology.index(fault.bundle)
            for fault in self.faults.all()
            if fault.kind is FaultKind.TWO_OWNERS and fault.broker == broker.broker_id and fault.bundle
        ]


def _cpu_setter(usage: object) -> Callable[[Json, Fault], None]:
    def set_cpu(report: Json, _fault: Fault) -> None:
        report["cpu"] = {**report["cpu"], "usage": usage}

    return set_cpu


def _negate_rates(report: Json, fault: Fault) -> None:
    for stats in islice(report["lastStats"].values(), int(fault.size)):
        stats["msgRateIn"] = -1.0 - stats["msgRateIn"]


def _inflate_counts(report: Json, fault: Fault) -> None:
    for stats in islice(report["lastStats"].values(), int(fault.size)):
        stats["producerCount"] = stats["consumerCount"] = 2**62


def _drop_field(report: Json, fault: Fault) -> None:
    report.pop(fault.target or "cpu", None)


def _exceed_limit(report: Json, fault: Fault) -> None:
    resource = report[fault.target or "cpu"]
    resource["usage"] = resource["limit"] * fault.size


def _set_zero_limit(report: Json, fault: Fault) -> None:
    for name in [fault.target] if fault.target else ["bandwidthIn", "bandwidthOut"]:
        report[name]["limit"] = 0.0


def _make_stale(report: Json, fault: Fault) -> None:
    report["lastUpdate"] -= int(fault.size * 1000)


def _move_to_future(report: Json, fault: Fault) -> None:
    report["lastUpdate"] += int(fault.size * 1000)
    report["startTimestamp"] += int(fault.size * 1000)


def _scale_traffic(report: Json, fault: Fault) -> None:
    for name in TRAFFIC_FIELDS:
        report[name] *= fault.size


def _add_odd_bundle(report: Json, fault: Fault) -> None:
    like = next(iter(report["lastStats"].values()))
    report["lastStats"][fault.target] = dict.fromkeys(like, 0)
    report["bundles"].append(fault.target)
    report["numBundles"] += 1


_REPORT_FAULTS: dict[FaultKind, Callable[[Json, Fault], None]] = {
    FaultKind.NAN_USAGE: _cpu_setter("NaN"),
    FaultKind.BARE_NAN: _cpu_setter(math.nan),
    FaultKind.NEGATIVE_USAGE: _cpu_setter(-1.0),
    FaultKind.OVER_LIMIT: _exceed_limit,
    FaultKind.ZERO_LIMIT: _set_zero_limit,
    FaultKind.NEGATIVE_RATE: _negate_rates,
    FaultKind.HUGE_COUNT: _inflate_counts,
    FaultKind.STALE_LAST_UPDATE: _make_stale,
    FaultKind.FUTURE_CLOCK: _move_to_future,
    FaultKind.UNACCOUNTED: _scale_traffic,
    FaultKind.ODD_BUNDLE: _add_odd_bundle,
    FaultKind.MISSING_FIELD: _drop_field,
}
