"""Bundle ownership, and how unloads, lookups and reconnecting producers change it.

Each request is answered by the broker that receives it. Where a real broker redirects (307), the answer is a
`Redirect`. The rules are those of the modular load manager, as measured on 4.0.8 and 4.2.4.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING

import numpy as np

from pulsar_simulator.load import NOBODY, Ints
from pulsar_simulator.refusal import Refusal

if TYPE_CHECKING:
    from pulsar_simulator.brokers import Membership
    from pulsar_simulator.load import Traffic
    from pulsar_simulator.placement import BundlePlacement
    from pulsar_simulator.topology import Topology

_RETRY = 1.0  # seconds until producers try again after a failed lookup


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
class Found:
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
        orphans = np.flatnonzero((self.owner == NOBODY) & self.traffic.active)
        self._waiting: dict[int, float] = {int(bundle): start + self.reconnect_delay for bundle in orphans}

    def unload_at(
        self, at: int, namespace: str, range_text: str, destination: str | None, now: float
    ) -> Redirect | None:
        """Answer a request to unload a bundle, as the broker with the index `at`.

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
            if self._leader() != at:
                return Redirect(self._leader(), {"destinationBroker": destination, "authoritative": "false"})
            self.placement.remember(namespace, range_text, planned)
        bundle = self.topology.resolve(namespace, range_text)
        owner = int(self.owner[bundle])
        if owner == NOBODY:
            return None
        if owner != at:
            return Redirect(owner, {"authoritative": "true"})
        self.release([bundle], now)
        return None

    def lookup_at(self, at: int, topic: str, *, authoritative: bool) -> Redirect | Found:
        """Answer a lookup of a topic, as the broker with the index `at`.

        If the topic's bundle has no owner, the leader places the bundle.

        Raises:
            Refusal: 404 for an unknown namespace, 412 for an invalid topic name, 500 if there is no leader or no
                broker.
        """
        bundle = self.topology.of_topic(topic)
        owner = int(self.owner[bundle])
        if owner != NOBODY:
            return Found(bundle, owner)
        if authoritative:
            return self._acquire(bundle, at)
        if self._leader() != at:
            return Redirect(self._leader(), {"authoritative": "false"})
        stray = self.placement.stray(bundle)
        if stray is not None:
            return self._acquire(bundle, stray)
        chosen = self.placement.choose(bundle)
        if chosen is None:
            raise Refusal(500, "No available broker found")
        if chosen == at:
            return self._acquire(bundle, at)
        return Redirect(chosen, {"authoritative": "true"})

    def release_all(self, broker: int, now: float) -> None:
        """Release the bundles of a dead broker. They have no owner until they are looked up."""
        self.release([int(i) for i in np.flatnonzero(self.owner == broker)], now)

    def release(self, bundles: list[int], now: float) -> None:
        """Unload bundles. They have no owner until they are looked up."""
        self.owner[bundles] = NOBODY
        self._gone.update(bundle for bundle in bundles if self.placement.loses_clients(bundle))
        left = [bundle for bundle in bundles if self.traffic.active[bundle] and bundle not in self._gone]
        self._waiting.update(dict.fromkeys(left, now + self.reconnect_delay))

    def clients_are_away(self, bundle: int) -> bool:
        """Return whether a bundle's producers and consumers are disconnected because they lost their broker."""
        return bundle in self._waiting or bundle in self._gone

    def split(self, bundle: int, more: int) -> None:
        """Append `more` new parts of a split bundle, which have the same owner as the bundle."""
        self.owner = np.append(self.owner, [self.owner[bundle]] * more)

    def next_reconnect(self) -> float:
        """Return the time of the next lookup by producers, in seconds since 1970; infinity if none is pending."""
        return min(self._waiting.values(), default=float("inf"))

    def reconnect(self, now: float) -> None:
        """Perform the producers' lookups that are due. A failed lookup is retried later."""
        for bundle in [b for b, due in self._waiting.items() if due <= now]:
            del self._waiting[bundle]
            if self.owner[bundle] != NOBODY:
                continue
            chosen = self.placement.choose(bundle) if self._leads() else None
            if chosen is not None and self.membership.brokers[chosen].alive:
                self._acquire(bundle, chosen)
            else:
                self._waiting[bundle] = now + _RETRY

    def _acquire(self, bundle: int, broker: int) -> Found:
        self.owner[bundle] = broker
        return Found(bundle, broker)

    def _leads(self) -> bool:
        leader = self.membership.leader
        return leader is not None and self.membership.brokers[leader].alive

    def _leader(self) -> int:
        if self.membership.leader is None:
            raise Refusal(500, "The leader election has not yet been completed")
        return self.membership.leader
