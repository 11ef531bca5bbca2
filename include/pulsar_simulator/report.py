"""A broker's load report (LocalBrokerData, names as in Pulsar 4.2) and its topic statistics, as JSON values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsar_simulator.load import with_parts

if TYPE_CHECKING:
    from pulsar_simulator.brokers import Broker
    from pulsar_simulator.load import Ints
    from pulsar_simulator.sampling import Samples
    from pulsar_simulator.topology import Topology

Json = dict[str, Any]

MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
TRAFFIC = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")


@dataclass
class Reporter:
    """Builds load reports and topic statistics from the latest samples.

    Args:
        cluster: cluster name, part of the heartbeat bundle's name up to 4.0.
        version: Pulsar version in reports. Before 4.1, the heartbeat namespace has three parts; from 5.0 on, reports
            have the brokerId.
        producers: number of producers of each bundle.
        consumers: number of consumers of each bundle.
        tls: True if the web service uses https.

    Raises:
        ValueError: the version does not start with two numbers.
    """

    cluster: str
    version: str
    topology: Topology
    samples: Samples
    producers: Ints
    consumers: Ints
    tls: bool

    def __post_init__(self) -> None:
        """Parse the version."""
        self.scheme = "https" if self.tls else "http"
        major, minor = (int(part) for part in self.version.split(".")[:2])
        self._heartbeat_prefix = f"pulsar/{self.cluster}/" if (major, minor) < (4, 1) else "pulsar/"

    def heartbeat(self, broker: Broker) -> str:
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

    def load_report(self, broker: Broker, extra: list[int], now: float) -> Json:
        """Return the LocalBrokerData of a broker.

        Args:
            extra: bundles to list in addition to the broker's own bundles.
            now: seconds since 1970.
        """
        samples, spec, i = self.samples, broker.spec, broker.index
        names = self.topology.bundles
        held = samples.bundles_of(i)
        stats = {names[b]: self.bundle_stats(b) for b in [*held, *extra]}
        heartbeat = dict.fromkeys(("consumerCount", "producerCount", "topics", "cacheSize"), 0)
        stats[self.heartbeat(broker)] = dict.fromkeys(TRAFFIC, 0.0) | heartbeat | {"topics": 1}
        sums = {name: math.fsum(entry[name] for entry in stats.values()) for name in TRAFFIC}
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
            "loadManagerClassName": MODULAR,
            "startTimestamp": int(broker.started_at * 1000),
            "maxResourceUsage": max(float(samples.usage()[i]), direct / spec.direct_memory),
            "loadReportType": "LocalBrokerData",
        }

    def split(self, bundle: int, shares: list[float]) -> None:
        """Divide a bundle's producers and consumers among its parts, rounding up."""
        for name in ("producers", "consumers"):
            before = getattr(self, name)
            parts = np.ceil(with_parts(before.astype(np.float64), bundle, shares)).astype(np.int64)
            setattr(self, name, parts)

    def service_url(self, broker: Broker) -> str:
        """Return the address of the binary protocol: the same host, with the web port minus 1430 (8080 -> 6650)."""
        host, _, port = broker.broker_id.rpartition(":")
        return f"pulsar://{host}:{(int(port) - 1430) % 65536}"

    def topic_stats(self, broker: Broker, *, publishers: bool = True) -> Json:
        """Return the answer to `broker-stats/topics`: statistics nested by namespace, bundle, domain and topic.

        Args:
            publishers: False to only count producers, as with `exposePublisherStats=false`.
        """
        answer: Json = {}
        for bundle in self.samples.bundles_of(broker.index):
            namespace = self.topology.namespace_of(bundle)
            domains: Json = {"persistent": {}, "non-persistent": {}}
            whole = self.bundle_stats(bundle)
            for number, (topic, share) in enumerate(self.topology.shares(bundle).items()):
                # Segments count as persistent topics (PulsarStats).
                domains["non-persistent" if topic.startswith("non-") else "persistent"][topic] = {
                    **self.connected(bundle, number),
                    **({} if publishers else {"publishers": []}),
                    "replication": {},
                    "averageMsgSize": whole["msgThroughputIn"] / whole["msgRateIn"] if whole["msgRateIn"] else 0.0,
                    **{name: whole[name] * share for name in TRAFFIC},
                }
            answer.setdefault(namespace.name, {})[self.topology.range_of(bundle)] = domains
        return answer

    def connected(self, bundle: int, number: int, *, away: bool = False) -> Json:
        """Return a topic's client statistics. A bundle's clients are divided about equally among its topics.

        Args:
            number: position of the topic among the bundle's topics.
            away: True if the clients are currently disconnected.
        """
        topics = self.topology.topic_count(bundle)
        producers, consumers = (
            0 if away else int(count // topics) + int(number < count % topics)
            for count in (self.producers[bundle], self.consumers[bundle])
        )
        return {
            "publishers": [{"producerId": number} for number in range(producers)],
            "subscriptions": {"subscription": {"consumers": [{"consumerName": f"c{n}"} for n in range(consumers)]}},
            "producerCount": producers,
        }
