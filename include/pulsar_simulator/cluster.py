"""The simulated cluster, in process: time, brokers, moves, and the brokers' responses."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from pulsar_simulator.answers import BrokerAnswers, Json, StatsReporter
from pulsar_simulator.brokers import BrokerSpec, Membership, Reachability
from pulsar_simulator.configuration import Configuration
from pulsar_simulator.faults import FaultKind, Faults, Refusal
from pulsar_simulator.load import NOBODY, Floats, Ints, Traffic
from pulsar_simulator.ownership import BundlePlacement, Ownership, PlacementStrategy, Redirect, TopicOwner
from pulsar_simulator.sampling import Samples, Timing
from pulsar_simulator.splitting import Splitter
from pulsar_simulator.timeline import Clock, ManualClock, Timeline
from pulsar_simulator.topology import Topology


def score_by_broker(cluster: Cluster) -> dict[str, float]:
    """Return the brokers' current true scores in percent, without sampling or jitter. They can exceed 100."""
    scores = 100 * cluster.samples.true_usage(cluster.clock.now(), cluster.ownership.owner)
    return {b.broker_id: float(scores[b.index]) for b in cluster.membership.brokers}


def message_rates_of(cluster: Cluster) -> Floats:
    """Return the brokers' current message rates, inbound plus outbound, in msg/s."""
    rates = cluster.traffic.rates_at(cluster.clock.now() - cluster.start)
    totals = rates.sum_by_broker(cluster.ownership.owner, len(cluster.membership.brokers))
    return np.asarray(totals.msg_rate_in + totals.msg_rate_out)


def state_of(cluster: Cluster) -> Json:
    """Return loads, scores, owners, and the destinations that the leader stores."""
    scores = score_by_broker(cluster)
    rates = message_rates_of(cluster)
    brokers = cluster.membership.brokers
    return {
        "cluster": cluster.spec.name,
        "now": cluster.clock.now(),
        "leader": None if cluster.membership.leader is None else brokers[cluster.membership.leader].broker_id,
        "brokers": [
            {
                "broker": broker.broker_id,
                "alive": broker.is_alive,
                "registered": broker.is_registered,
                "started_at": broker.started_at,
                "score": scores[broker.broker_id],
                "sampled_score": 100 * float(cluster.samples.usage()[broker.index]),
                "msg_rate": float(rates[broker.index]),
                "bundles": int((cluster.ownership.owner == broker.index).sum()),
            }
            for broker in brokers
        ],
        "owners": {
            bundle: None if owner == NOBODY else brokers[owner].broker_id
            for bundle, owner in zip(cluster.topology.bundles, cluster.ownership.owner.tolist(), strict=True)
        },
        "affinities": {key: brokers[i].broker_id for key, i in cluster.placement.affinities.items()},
    }


P = ParamSpec("P")
T = TypeVar("T")


def _refresh_first(method: Callable[Concatenate[Cluster, P], T]) -> Callable[Concatenate[Cluster, P], T]:
    """Decorate a method: due events are processed before it runs, and only one thread at a time can run it."""

    @functools.wraps(method)
    def wrapper(self: Cluster, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            self._timeline.process_until(self.clock.now())
            self._depth += 1
            try:
                result = method(self, *args, **kwargs)
            finally:
                self._depth -= 1
            outermost = self._depth == 0
        if outermost:  # a listener may wait for another thread that wants the lock
            self.reachability.notify_changes()
        return result

    return wrapper


class Cluster:
    """A cluster under load that answers requests as real brokers would. It is thread-safe.

    Args:
        clock: the cluster's clock; a new `ManualClock` by default.
    """

    def __init__(self, spec: ClusterSpec, clock: Clock | None = None) -> None:
        self.spec = spec
        self.clock: Clock = clock or ManualClock()
        self.start = self.clock.now()
        self.faults = Faults()
        self.topology = spec.topology
        self.traffic = spec.traffic
        self.configuration = Configuration(spec.name, spec.timing.stats_period, spec.configuration)
        self.membership = Membership(spec.brokers, self.start, spec.timing.session_timeout)
        self.reachability = Reachability(self.membership, self.faults)
        self.placement = BundlePlacement(
            self.membership,
            self.topology,
            self.faults,
            strategy=spec.placement,
            is_by_range=spec.affinity_by_range,
            rates=functools.partial(message_rates_of, self),
            seed=spec.seed,
        )
        self.ownership = Ownership(
            self.membership,
            self.topology,
            self.traffic,
            self.placement,
            spec.owner,
            spec.timing.reconnect_delay,
            self.start,
        )
        self.samples = Samples(spec.brokers, self.traffic, spec.timing, self.start)
        self.reporter = StatsReporter(
            spec.name, spec.version, self.topology, self.samples, spec.producers, spec.consumers, uses_tls=spec.uses_tls
        )
        self._answers = BrokerAnswers(
            self.membership, self.topology, self.ownership, self.samples, self.reporter, self.faults
        )
        self._splitter = Splitter(
            self.topology, self.traffic, self.ownership, self.samples, self.reporter, self.configuration
        )
        self._timeline = Timeline(
            self.membership, self.placement, self.ownership, self.samples, spec.timing, self.start
        )
        self._lock = threading.RLock()
        self._depth = 0

    # time

    @_refresh_first
    def refresh(self) -> None:
        """Process all events that are due at the current time."""

    @_refresh_first
    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`, and process all due samples, reconnects and session expiries in order."""
        self.clock.advance(seconds)
        self._timeline.process_until(self.clock.now())

    # brokers

    @_refresh_first
    def kill(self, broker_id: str) -> None:
        """Kill a broker's process immediately. The broker remains registered until its metadata session expires."""
        self.membership.kill_broker(self.membership.find(broker_id), self.clock.now())

    @_refresh_first
    def start_broker(self, broker_id: str) -> None:
        """Start or restart a broker.

        The broker has no bundles, reports no load, and becomes the leader only if there is none.
        """
        self._timeline.start_broker(self.membership.find(broker_id), self.clock.now())

    def restart(self, broker_id: str) -> None:
        """Kill a broker and start it again immediately."""
        self.kill(broker_id)
        self.start_broker(broker_id)

    @_refresh_first
    def change_leader(self, broker_id: str) -> None:
        """Make this broker the leader. The destinations that the old leader stored are lost.

        Raises:
            Refusal: 404 if the broker is unknown or dead.
        """
        broker = self.membership.find(broker_id)
        if not broker.is_alive:
            raise Refusal(404, f"Broker {broker_id} is dead", broker_id)
        self.membership.leader = broker.index
        self.placement.affinities.clear()

    def rename_brokers(self, broker_ids: list[str]) -> None:
        """Replace the brokerIds with the addresses at which the brokers listen. Call this before the first request."""
        with self._lock:
            self.membership.rename_brokers(broker_ids)
            self.samples.version += 1

    # moves

    @_refresh_first
    def unload_via(self, host: int, namespace: str, range_text: str, destination: str | None = None) -> Redirect | None:
        """Answer an unload request as the broker with index `host` (see `Ownership.unload_via`)."""
        now = self.clock.now()
        result = self.ownership.unload_via(host, namespace, range_text, destination, now)
        if destination and host == self.membership.leader:
            bundle = f"{namespace}/{range_text}"
            planned = destination.removeprefix("http://").removeprefix("https://")
            if self.faults.take_fault(FaultKind.DESTINATION_VANISHES, broker=planned, bundle=bundle):
                self.membership.kill_broker(self.membership.find(planned), now)
        return result

    @_refresh_first
    def split_via(
        self, broker: int, namespace: str, range_text: str, algorithm: str, positions: Sequence[int], *, unload: bool
    ) -> Redirect | None:
        """Answer a split request as the broker with index `broker` (see `Splitter.split_via`)."""
        now = self.clock.now()
        return self._splitter.split_via(broker, namespace, range_text, algorithm, positions, unload=unload, now=now)

    @_refresh_first
    def lookup_via(self, broker: int, topic: str, *, authoritative: bool) -> Redirect | TopicOwner:
        """Answer a topic lookup as the broker with index `broker` (see `Ownership.lookup_via`)."""
        return self.ownership.lookup_via(broker, topic, authoritative=authoritative)

    @_refresh_first
    def topic_stats_via(self, broker: int, topic: str) -> Redirect | Json:
        """Answer a request for a topic's statistics as the broker with index `broker`.

        Like a lookup, the request assigns an owner to a bundle that has none.

        Raises:
            Refusal: as for a lookup; 404 if the topic does not exist.
        """
        answer = self.ownership.lookup_via(broker, topic, authoritative=False)
        if isinstance(answer, Redirect):
            return answer
        if answer.broker != broker:
            return Redirect(answer.broker, {"authoritative": "true"})
        topics = self.topology.topics(answer.bundle) if self.traffic.is_active[answer.bundle] else []
        if topic not in topics:
            raise Refusal(404, f"Topic {topic} not found")
        away = self.ownership.clients_are_away(answer.bundle)
        return self.reporter.client_stats(answer.bundle, topics.index(topic), is_away=away)

    def unload(self, bundle: str, destination: str | None = None) -> None:
        """Unload a bundle, following all redirects. The bundle has no owner until the next lookup.

        Raises:
            Refusal: the same status as in the REST API (404, 409, 412, 500); 500 if a redirect leads to a dead broker.
        """
        namespace, _, range_text = bundle.rpartition("/")
        hop = self.unload_via(self._any_live_broker(), namespace, range_text, destination)
        while hop is not None:
            self._require_live_broker(hop.broker)
            hop = self.unload_via(hop.broker, namespace, range_text, hop.query.get("destinationBroker"))

    def lookup(self, topic: str) -> str:
        """Look up a topic, following all redirects. If the topic's bundle has no owner, the lookup assigns one.

        Returns:
            brokerId of the owner.

        Raises:
            Refusal: the same status as in the REST API; 500 if a redirect leads to a dead broker.
        """
        hop = self.lookup_via(self._any_live_broker(), topic, authoritative=False)
        while isinstance(hop, Redirect):
            self._require_live_broker(hop.broker)
            hop = self.lookup_via(hop.broker, topic, authoritative=hop.query["authoritative"] == "true")
        return self.membership.brokers[hop.broker].broker_id

    # what brokers say, true or not

    def load_report(self, broker_id: str) -> Json:
        """Return a broker's load report."""
        report: Json = json.loads(self.load_report_json(self.membership.find(broker_id).index))
        return report

    @_refresh_first
    def load_report_json(self, index: int) -> bytes:
        """Return the bytes of a broker's load report."""
        return self._answers.load_report(index, self.clock.now())

    @_refresh_first
    def owned_bundles(self, broker_id: str) -> list[str]:
        """Return the bundles that a broker says it owns, including its heartbeat bundle."""
        return self._answers.owned_bundles(self.membership.find(broker_id))

    @_refresh_first
    def active_brokers(self) -> list[str]:
        """Return the brokerIds that the brokers list as active."""
        return self._answers.active_brokers()

    # what is true

    @_refresh_first
    def owner(self, bundle: str) -> str | None:
        """Return the brokerId of a bundle's owner; None if the bundle has no owner.

        Unlike a lookup, this never assigns an owner.
        """
        owner = int(self.ownership.owner[self.topology.index(bundle)])
        return None if owner == NOBODY else self.membership.brokers[owner].broker_id

    @_refresh_first
    def true_scores(self) -> dict[str, float]:
        """Return the brokers' current true scores in percent, without sampling or jitter. They can exceed 100."""
        return score_by_broker(self)

    @_refresh_first
    def scale_load(self, factor: float, *, bundle: str | None = None, broker: str | None = None) -> None:
        """Multiply the load of one bundle, of a broker's current bundles, or of all bundles."""
        if bundle is not None:
            chosen = [self.topology.index(bundle)]
        elif broker is not None:
            index = self.membership.find(broker).index
            chosen = [int(i) for i in np.flatnonzero(self.ownership.owner == index)]
        else:
            chosen = list(range(len(self.topology.bundles)))
        self.traffic.scale_bundles(chosen, factor)

    @_refresh_first
    def state(self) -> Json:
        """Return the true state for tests: loads, scores, owners, and the destinations that the leader has stored."""
        return state_of(self)

    def _any_live_broker(self) -> int:
        for broker in self.membership.brokers:
            if broker.is_alive:
                return broker.index
        raise Refusal(500, "No broker is alive")

    def _require_live_broker(self, index: int) -> None:
        broker = self.membership.brokers[index]
        if not broker.is_alive:
            raise Refusal(500, f"Connection refused by {broker.broker_id}", broker.broker_id)


@dataclass(slots=True)
class ClusterSpec:
    """The specification of a simulated cluster.

    Attributes:
        brokers: the brokers, at least one; the first is the leader.
        topology: namespaces, bundles and topics.
        traffic: load of every bundle.
        owner: index of each bundle's initial owner; `NOBODY` if the bundle has no owner.
        producers: number of producers of each bundle.
        consumers: number of consumers of each bundle.
        name: cluster name.
        version: Pulsar version that brokers report.
        timing: periods at which brokers measure and publish.
        placement: strategy for bundles without a destination.
        affinity_by_range: True to store destinations by hash range without the namespace, as in 4.0.8.
        configuration: values that differ from `configuration.DEFAULTS`.
        isolation_policies: answer to `clusters/{c}/namespaceIsolationPolicies`.
        failure_domains: answer to `clusters/{c}/failureDomains`.
        uses_tls: True if the brokers use https.
        seed: seed for the random placement.
    """

    brokers: list[BrokerSpec]
    topology: Topology
    traffic: Traffic
    owner: Ints
    producers: Ints
    consumers: Ints
    name: str = "simulated"
    version: str = "4.2.4"
    timing: Timing = field(default_factory=Timing)
    placement: PlacementStrategy = PlacementStrategy.LEAST_LOADED
    affinity_by_range: bool = False
    configuration: dict[str, str] = field(default_factory=dict)
    isolation_policies: Json = field(default_factory=dict)
    failure_domains: Json = field(default_factory=dict)
    uses_tls: bool = False
    seed: int = 1
