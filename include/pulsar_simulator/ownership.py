"""Which broker owns a bundle, and where the leader places one."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from enum import StrEnum

import numpy as np

from pulsar_simulator.brokers import Broker, Membership
from pulsar_simulator.faults import FaultKind, Faults, Refusal
from pulsar_simulator.load import NOBODY, Floats, Ints, Traffic
from pulsar_simulator.topology import Topology


class PlacementStrategy(StrEnum):
    """Strategies that choose a broker for a bundle without a destination."""

    LEAST_LOADED = "least_loaded"  # lowest message rate now, ties by name
    RANDOM = "random"  # AvgShedder.selectBroker without a plan: crc32 of a random number's text, modulo n


@dataclass
class BundlePlacement:
    """The destinations that the leader stores, and its choice of brokers.

    A destination is used once, then deleted (ModularLoadManagerWrapper.getLeastLoaded); without one, the placement
    strategy chooses a broker.

    Args:
        membership: brokers that can be chosen as owners.
        topology: names of the bundles.
        faults: active faults; `stray` places a bundle on a broker other than its destination.
        strategy: strategy for bundles without a destination.
        is_by_range: True to store destinations by hash range without the namespace, as brokers did before 4.0.10 and
            4.2.1. Bundles of different namespaces with the same range then share one destination.
        rates: function that returns the current message rate of every broker, inbound plus outbound, in msg/s.
        seed: seed of the random choices.
    """

    membership: Membership
    topology: Topology
    faults: Faults
    strategy: PlacementStrategy
    is_by_range: bool
    rates: Callable[[], Floats]
    seed: InitVar[int]
    affinities: dict[str, int] = field(default_factory=dict)

    def __post_init__(self, seed: int) -> None:
        """Create the random number generator."""
        self._random = random.Random(seed)

    def remember_destination(self, namespace: str, range_text: str, destination: int) -> None:
        """Store a destination for the next placement of a hash range, even if no bundle has this range."""
        self.affinities[range_text if self.is_by_range else f"{namespace}/{range_text}"] = destination

    def choose_broker(self, bundle: int) -> int | None:
        """Return the index of the broker that becomes the bundle's owner; None if no broker is active."""
        planned = self.affinities.pop(self._destination_key(bundle), None)
        if planned is not None and self.membership.brokers[planned].is_registered:
            return planned
        candidates = self.membership.registered_brokers()
        return self._select_broker(candidates).index if candidates else None

    def stray_broker(self, bundle: int) -> int | None:
        """Return a broker other than the destination if the fault `stray` applies to the bundle; else None.

        This can happen on real brokers if two lookups coincide: the first consumes the destination, but the second
        places the bundle sooner, on another broker (apache/pulsar#24884).
        """
        planned = self.affinities.get(self._destination_key(bundle))
        others = [broker for broker in self.membership.registered_brokers() if broker.index != planned]
        if planned is None or not others:
            return None
        if not self.faults.take_fault(FaultKind.STRAY, bundle=self.topology.bundles[bundle]):
            return None
        del self.affinities[self._destination_key(bundle)]
        return self._select_broker(others).index

    def loses_clients(self, bundle: int) -> bool:
        """Return whether the fault `clients_gone` applies to the bundle."""
        return self.faults.take_fault(FaultKind.CLIENTS_GONE, bundle=self.topology.bundles[bundle]) is not None

    def _destination_key(self, bundle: int) -> str:
        name = self.topology.bundles[bundle]
        return name.rpartition("/")[2] if self.is_by_range else name

    def _select_broker(self, candidates: list[Broker]) -> Broker:
        if self.strategy is PlacementStrategy.RANDOM:
            ordered = sorted(candidates, key=lambda broker: broker.broker_id)
            text = str(self._random.getrandbits(31))
            return ordered[zlib.crc32(text.encode()) % len(ordered)]
        rates = self.rates()
        return min(candidates, key=lambda broker: (rates[broker.index], broker.broker_id))


_LOOKUP_RETRY_S = 1.0  # seconds until producers try again after a failed lookup


@dataclass(frozen=True, slots=True)
class Redirect:
    """An answer that redirects the request to another broker.

    Attributes:
        broker: index of the broker.
        query: query parameters of the new request, in order.
    """

    broker: int
    query: dict[str, str]


@dataclass(frozen=True, slots=True)
class TopicOwner:
    """A topic's bundle and the index of its owner."""

    bundle: int
    broker: int


@dataclass
class Ownership:
    """The current owner of every bundle, and the pending lookups of reconnecting producers."""

    membership: Membership
    topology: Topology
    traffic: Traffic
    placement: BundlePlacement
    owner: Ints
    reconnect_delay: float
    start: InitVar[float]

    def __post_init__(self, start: float) -> None:
        """Schedule lookups of the bundles that have no initial owner."""
        self.owner = self.owner.astype(np.int64)
        self._gone: set[int] = set()
        orphans = np.flatnonzero((self.owner == NOBODY) & self.traffic.is_active)
        self._waiting: dict[int, float] = {int(bundle): start + self.reconnect_delay for bundle in orphans}

    def unload_via(
        self, broker: int, namespace: str, range_text: str, destination: str | None, now: float
    ) -> Redirect | None:
        """Answer a request to unload a bundle, as the broker with the index `broker`.

        The broker checks the destination, redirects to the leader or to the owner, or unloads the bundle itself.

        Returns:
            A redirect to the next broker; None if the unload is done, or if the bundle had no owner.

        Raises:
            Refusal: 409 if the destination is not active, 404 for an unknown namespace, 412 for an unknown range, 500
                for a string that is not a range.
        """
        if destination:
            planned = self.membership.registered_index(destination.removeprefix("http://").removeprefix("https://"))
            if planned is None:
                raise Refusal(409, "Not allowed unload namespace bundle to inactive destination broker", destination)
            if self._leader() != broker:
                return Redirect(self._leader(), {"destinationBroker": destination, "authoritative": "false"})
            self.placement.remember_destination(namespace, range_text, planned)
        bundle = self.topology.index_of_range(namespace, range_text)
        owner = int(self.owner[bundle])
        if owner == NOBODY:
            return None
        if owner != broker:
            return Redirect(owner, {"authoritative": "true"})
        self.release_bundles([bundle], now)
        return None

    def lookup_via(self, broker: int, topic: str, *, authoritative: bool) -> Redirect | TopicOwner:
        """Answer a lookup of a topic, as the broker with the index `broker`.

        If the topic's bundle has no owner, the leader places the bundle.

        Raises:
            Refusal: 404 for an unknown namespace, 412 for an invalid topic name, 500 if there is no leader or no
                broker.
        """
        bundle = self.topology.bundle_of_topic(topic)
        owner = int(self.owner[bundle])
        if owner != NOBODY:
            return TopicOwner(bundle, owner)
        if authoritative:
            return self._acquire(bundle, broker)
        if self._leader() != broker:
            return Redirect(self._leader(), {"authoritative": "false"})
        stray = self.placement.stray_broker(bundle)
        if stray is not None:
            return self._acquire(bundle, stray)
        chosen = self.placement.choose_broker(bundle)
        if chosen is None:
            raise Refusal(500, "No available broker found")
        if chosen == broker:
            return self._acquire(bundle, broker)
        return Redirect(chosen, {"authoritative": "true"})

    def release_all(self, broker: int, now: float) -> None:
        """Release the bundles of a dead broker. They have no owner until they are looked up."""
        self.release_bundles([int(i) for i in np.flatnonzero(self.owner == broker)], now)

    def release_bundles(self, bundles: list[int], now: float) -> None:
        """Unload bundles. They have no owner until they are looked up."""
        self.owner[bundles] = NOBODY
        self._gone.update(bundle for bundle in bundles if self.placement.loses_clients(bundle))
        left = [bundle for bundle in bundles if self.traffic.is_active[bundle] and bundle not in self._gone]
        self._waiting.update(dict.fromkeys(left, now + self.reconnect_delay))

    def clients_are_away(self, bundle: int) -> bool:
        """Return whether a bundle's producers and consumers are disconnected because they lost their broker."""
        return bundle in self._waiting or bundle in self._gone

    def add_split_parts(self, bundle: int, new_parts: int) -> None:
        """Append `new_parts` new parts of a split bundle, which have the same owner as the bundle."""
        self.owner = np.append(self.owner, [self.owner[bundle]] * new_parts)

    def next_reconnect(self) -> float:
        """Return the time of the next lookup by producers, in seconds since 1970; infinity if none is pending."""
        return min(self._waiting.values(), default=float("inf"))

    def reconnect_clients(self, now: float) -> None:
        """Perform the producers' lookups that are due. A failed lookup is retried later."""
        for bundle in [b for b, due in self._waiting.items() if due <= now]:
            del self._waiting[bundle]
            if self.owner[bundle] != NOBODY:
                continue
            chosen = self.placement.choose_broker(bundle) if self._has_live_leader() else None
            if chosen is not None and self.membership.brokers[chosen].is_alive:
                self._acquire(bundle, chosen)
            else:
                self._waiting[bundle] = now + _LOOKUP_RETRY_S

    def _acquire(self, bundle: int, broker: int) -> TopicOwner:
        self.owner[bundle] = broker
        return TopicOwner(bundle, broker)

    def _has_live_leader(self) -> bool:
        leader = self.membership.leader
        return leader is not None and self.membership.brokers[leader].is_alive

    def _leader(self) -> int:
        if self.membership.leader is None:
            raise Refusal(500, "The leader election has not yet been completed")
        return self.membership.leader
