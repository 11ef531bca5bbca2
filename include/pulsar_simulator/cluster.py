"""The simulated cluster: moves, and the answers that brokers give, in process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsar_simulator.faults import FaultKind
from pulsar_simulator.life import Life, up_to_date
from pulsar_simulator.load import NOBODY
from pulsar_simulator.ownership import Found, Redirect
from pulsar_simulator.refusal import Refusal
from pulsar_simulator.report import Json, falsify, lies

if TYPE_CHECKING:
    from pulsar_simulator.brokers import Broker


class Cluster(Life):
    """A cluster under load that can be asked and told what brokers can; safe to use from several threads."""

    # moves

    @up_to_date
    def unload_at(self, at: int, namespace: str, range_text: str, destination: str | None = None) -> Redirect | None:
        """One hop of an unload, see `Ownership.unload_at`."""
        now = self.clock.now()
        result = self.ownership.unload_at(at, namespace, range_text, destination, now)
        if destination and at == self.membership.leader:
            bundle = f"{namespace}/{range_text}"
            planned = destination.removeprefix("http://").removeprefix("https://")
            if self.faults.take(FaultKind.DESTINATION_VANISHES, broker=planned, bundle=bundle):
                self.membership.kill(self.membership.find(planned), now)
        return result

    @up_to_date
    def lookup_at(self, at: int, topic: str, *, authoritative: bool = False) -> Redirect | Found:
        """One hop of a lookup, see `Ownership.lookup_at`."""
        return self.ownership.lookup_at(at, topic, authoritative=authoritative)

    def unload(self, bundle: str, destination: str | None = None) -> None:
        """Unloads a bundle, all hops; afterwards nobody owns it until a lookup.

        Raises:
            Refusal: as the REST API answers (409, 404, 412, 500); 500 if a hop leads to a dead broker.
        """
        namespace, _, range_text = bundle.rpartition("/")
        hop = self.unload_at(self._any_alive(), namespace, range_text, destination)
        while hop is not None:
            self._must_live(hop.broker)
            hop = self.unload_at(hop.broker, namespace, range_text, hop.query.get("destinationBroker"))

    def lookup(self, topic: str) -> str:
        """Looks a topic up, all hops; a bundle without owner gets one.

        Returns:
            brokerId of the owner.

        Raises:
            Refusal: as the REST API answers; 500 if a hop leads to a dead broker.
        """
        hop = self.lookup_at(self._any_alive(), topic)
        while isinstance(hop, Redirect):
            self._must_live(hop.broker)
            hop = self.lookup_at(hop.broker, topic, authoritative=hop.query["authoritative"] == "true")
        return self.membership.brokers[hop.broker].broker_id

    def _any_alive(self) -> int:
        for broker in self.membership.brokers:
            if broker.alive:
                return broker.index
        raise Refusal(500, "No broker is alive")

    def _must_live(self, index: int) -> None:
        broker = self.membership.brokers[index]
        if not broker.alive:
            raise Refusal(500, f"Connection refused by {broker.broker_id}", broker.broker_id)

    # what can be read

    @up_to_date
    def load_report(self, broker_id: str) -> Json:
        """A broker's load report, lies included."""
        report: Json = json.loads(self.load_report_json(self.membership.find(broker_id).index))
        return report

    @up_to_date
    def load_report_json(self, index: int) -> bytes:
        """A broker's load report as it goes over the wire; made once per sample."""
        broker = self.membership.brokers[index]
        told = lies(self.faults, broker.broker_id)
        if self.faults.take(FaultKind.WRONG_BROKER, broker=broker.broker_id):
            broker = self.membership.brokers[(index + 1) % len(self.membership.brokers)]
        extra = [b for b in self._claimed(broker) if b not in self.samples.bundles_of(broker.index)]
        if not told and not extra:
            version, cached = self._reports.get(broker.index, (-1, b""))
            if version == self.samples.version:
                return cached
        report = self.reporter.load_report(broker, extra, self.clock.now())
        falsify(report, told)
        text = json.dumps(report, separators=(",", ":")).encode()
        if not told and not extra:
            self._reports[broker.index] = (self.samples.version, text)
        return text

    @up_to_date
    def owned_bundles(self, broker_id: str) -> list[str]:
        """Bundles that a broker owns now, its heartbeat bundle included, lies included."""
        broker = self.membership.find(broker_id)
        own = [int(i) for i in np.flatnonzero(self.ownership.owner == broker.index)]
        claimed = [i for i in self._claimed(broker) if i not in own]
        return [*(self.topology.bundles[i] for i in [*own, *claimed]), self.reporter.heartbeat(broker)]

    @up_to_date
    def owner(self, bundle: str) -> str | None:
        """The id of a bundle's owner, None if nobody owns it; reading changes nothing."""
        owner = int(self.ownership.owner[self.topology.index(bundle)])
        return None if owner == NOBODY else self.membership.brokers[owner].broker_id

    @up_to_date
    def active_brokers(self) -> list[str]:
        """Ids of the active list, lies included."""
        ids = [
            broker.broker_id
            for broker in self.membership.registered()
            if not self.faults.find(FaultKind.NOT_LISTED, broker=broker.broker_id)
        ]
        twice = [i for i in ids if self.faults.find(FaultKind.LISTED_TWICE, broker=i)]
        return ids + twice

    @up_to_date
    def true_scores(self) -> dict[str, float]:
        """Score of every broker as it really is now, percent: no sampling, no jitter, may exceed 100."""
        cpu, inward, outward = self.samples.true_usage(self.clock.now(), self.ownership.owner)
        nic = np.where(self.samples.nic > 0, self.samples.nic, np.inf)
        limits = np.array([broker.spec.cpu_limit for broker in self.membership.brokers])
        scores = 100 * np.maximum.reduce([cpu / limits, inward / nic, outward / nic])
        return {b.broker_id: float(scores[b.index]) for b in self.membership.brokers}

    @up_to_date
    def scale_load(self, factor: float, *, bundle: str | None = None, broker: str | None = None) -> None:
        """Multiplies the load of a bundle, of all bundles a broker owns now, or of all bundles."""
        if bundle is not None:
            chosen = [self.topology.index(bundle)]
        elif broker is not None:
            index = self.membership.find(broker).index
            chosen = [int(i) for i in np.flatnonzero(self.ownership.owner == index)]
        else:
            chosen = list(range(len(self.topology.bundles)))
        self.traffic.scale(chosen, factor)

    def _claimed(self, broker: Broker) -> list[int]:
        return [
            self.topology.index(fault.bundle)
            for fault in self.faults.all()
            if fault.kind is FaultKind.TWO_OWNERS and fault.broker == broker.broker_id and fault.bundle
        ]

    @up_to_date
    def state(self) -> dict[str, Any]:
        """All that is true, for those who test: loads, scores, owners, what the leader remembers, faults."""
        scores = self.true_scores()
        rates = self._broker_rates()
        brokers = self.membership.brokers
        return {
            "cluster": self.spec.name,
            "now": self.clock.now(),
            "leader": None if self.membership.leader is None else brokers[self.membership.leader].broker_id,
            "brokers": [
                {
                    "broker": broker.broker_id,
                    "alive": broker.alive,
                    "registered": broker.registered,
                    "started_at": broker.started_at,
                    "score": scores[broker.broker_id],
                    "sampled_score": 100 * float(self.samples.usage()[broker.index]),
                    "msg_rate": float(rates[broker.index]),
                    "bundles": int((self.ownership.owner == broker.index).sum()),
                }
                for broker in brokers
            ],
            "owners": {
                bundle: None if owner == NOBODY else brokers[owner].broker_id
                for bundle, owner in zip(self.topology.bundles, self.ownership.owner.tolist(), strict=True)
            },
            "affinities": {key: brokers[i].broker_id for key, i in self.placement.affinities.items()},
        }
