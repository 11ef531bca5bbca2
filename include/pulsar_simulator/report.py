"""A broker's load report (LocalBrokerData, names as in PULSAR 4.2) and its topic statistics, as JSON values."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

from pulsar_simulator.faults import FaultKind, Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_simulator.brokers import Broker
    from pulsar_simulator.faults import Fault
    from pulsar_simulator.load import Ints
    from pulsar_simulator.sampling import Samples
    from pulsar_simulator.topology import Topology

Json = dict[str, Any]

MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
_TRAFFIC = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")


class Reporter:
    """Writes reports from the last samples.

    Args:
        cluster: cluster name, part of the heartbeat bundle's name up to 4.0.
        version: Pulsar version shown; below 4.1 the heartbeat namespace has three parts, from 5.0 there is a brokerId.
        tls: the web service speaks https.
        topology: names.
        samples: what was measured.
        producers: per bundle.
        consumers: per bundle.

    Raises:
        ValueError: the version does not start with two numbers.
    """

    def __init__(
        self,
        cluster: str,
        version: str,
        topology: Topology,
        samples: Samples,
        producers: Ints,
        consumers: Ints,
        *,
        tls: bool,
    ) -> None:
        self.version = version
        self.scheme = "https" if tls else "http"
        self._topology = topology
        self._samples = samples
        self._producers = producers
        self._consumers = consumers
        major, minor = (int(part) for part in version.split(".")[:2])
        self._heartbeat_prefix = f"pulsar/{cluster}/" if (major, minor) < (4, 1) else "pulsar/"

    def heartbeat(self, broker: Broker) -> str:
        """The bundle of the broker's health check."""
        return f"{self._heartbeat_prefix}{broker.broker_id}/0x00000000_0xffffffff"

    def bundle_stats(self, bundle: int) -> Json:
        """NamespaceBundleStats of one bundle."""
        rates = self._samples.rates
        return {
            "msgRateIn": float(rates.msg_rate_in[bundle]),
            "msgThroughputIn": float(rates.msg_throughput_in[bundle]),
            "msgRateOut": float(rates.msg_rate_out[bundle]),
            "msgThroughputOut": float(rates.msg_throughput_out[bundle]),
            "consumerCount": int(self._consumers[bundle]),
            "producerCount": int(self._producers[bundle]),
            "topics": self._topology.namespace_of(bundle).topics_per_bundle,
            "cacheSize": 0,
        }

    def load_report(self, broker: Broker, extra: list[int], now: float) -> Json:
        """LocalBrokerData of a broker.

        Args:
            broker: whose report.
            extra: bundles that it lists besides its own.
            now: seconds since 1970.
        """
        samples, spec, i = self._samples, broker.spec, broker.index
        names = self._topology.bundles
        held = samples.bundles_of(i)
        stats = {names[b]: self.bundle_stats(b) for b in [*held, *extra]}
        heartbeat = dict.fromkeys(("consumerCount", "producerCount", "topics", "cacheSize"), 0)
        stats[self.heartbeat(broker)] = dict.fromkeys(_TRAFFIC, 0.0) | heartbeat | {"topics": 1}
        sums = {name: math.fsum(entry[name] for entry in stats.values()) for name in _TRAFFIC}
        counts = {
            name: sum(entry[name] for entry in stats.values()) for name in ("topics", "consumerCount", "producerCount")
        }
        megabytes = (sums["msgThroughputIn"] + sums["msgThroughputOut"]) / 1048576
        # Heap climbs and is collected, direct memory holds what is in flight.
        heap = spec.memory * (0.25 + 0.35 * ((now + 37.0 * i) % 120.0) / 120.0)
        direct = min(spec.direct_memory, 4.0 + 2.0 * megabytes)
        before, after = (set(held_at.nonzero()[0].tolist()) for held_at in self._held(i))
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
            "loadManagerClassName": MODULAR,
            "startTimestamp": int(broker.started_at * 1000),
            "maxResourceUsage": max(float(samples.usage()[i]), direct / spec.direct_memory),
            "loadReportType": "LocalBrokerData",
        }

    def service_url(self, broker: Broker) -> str:
        """Address of the binary protocol: same host, the web port's number minus 1430 (8080 -> 6650)."""
        host, _, port = broker.broker_id.rpartition(":")
        return f"pulsar://{host}:{(int(port) - 1430) % 65536}"

    def topic_stats(self, broker: Broker) -> Json:
        """`broker-stats/topics`: namespace -> bundle -> domain -> topic -> statistics."""
        answer: Json = {}
        for bundle in self._samples.bundles_of(broker.index):
            namespace = self._topology.namespace_of(bundle)
            domains: Json = {"persistent": {}, "non-persistent": {}}
            topics = self._topology.topics(bundle)
            whole = self.bundle_stats(bundle)
            weights = [1 / (k + 1) for k in range(len(topics))]
            for topic, weight in zip(topics, weights, strict=True):
                share = weight / sum(weights)
                domains[namespace.domain][topic] = {
                    "publishers": [],
                    "replication": {},
                    "subscriptions": {},
                    "producerCount": max(1, whole["producerCount"] // len(topics)),
                    "averageMsgSize": whole["msgThroughputIn"] / whole["msgRateIn"] if whole["msgRateIn"] else 0.0,
                    **{name: whole[name] * share for name in _TRAFFIC},
                }
            answer.setdefault(namespace.name, {})[self._topology.range_of(bundle)] = domains
        return answer

    def _held(self, broker: int) -> tuple[Any, Any]:
        return self._samples.owner_before == broker, self._samples.owner == broker


def _cpu(usage: object) -> Callable[[Json, Fault], None]:
    def lie(report: Json, _fault: Fault) -> None:
        report["cpu"] = {**report["cpu"], "usage": usage}

    return lie


def _negative_rate(report: Json, fault: Fault) -> None:
    for stats in islice(report["lastStats"].values(), int(fault.size)):
        stats["msgRateIn"] = -1.0 - stats["msgRateIn"]


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
    for name in _TRAFFIC:
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
    FaultKind.STALE_LAST_UPDATE: _stale,
    FaultKind.FUTURE_CLOCK: _future,
    FaultKind.UNACCOUNTED: _unaccounted,
    FaultKind.ODD_BUNDLE: _odd_bundle,
    FaultKind.MISSING_FIELD: _missing,
}


def lies(faults: Faults, broker_id: str) -> list[Fault]:
    """The faults that falsify a broker's report, each used once by this."""
    taken = (faults.take(kind, broker=broker_id) for kind in _LIES)
    return [fault for fault in taken if fault is not None]


def falsify(report: Json, told: list[Fault]) -> None:
    """Changes a report as the faults say; a missing field goes last."""
    for fault in told:
        _LIES[fault.kind](report, fault)
