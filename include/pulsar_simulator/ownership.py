"""Who owns which bundle, and how ownership changes: unload, lookup, reconnecting producers.

A call is answered by the broker it reaches; where a real broker redirects (307), the answer is a `Redirect`.
The rules are those of the modular load manager, as measured on 4.0.8 and 4.2.4.
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
    """The answer that another broker is to be asked.

    Attributes:
        broker: index of the broker.
        query: parameters of the new request, in order.
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
    """The current owner of every bundle, and the lookups still to come."""

    membership: Membership
    topology: Topology
    traffic: Traffic
    placement: BundlePlacement
    owner: Ints
    reconnect_delay: float
    start: InitVar[float]

    def __post_init__(self, start: float) -> None:
        """Let clients look up bundles without an owner."""
        self.owner = self.owner.astype(np.int64)
        orphans = np.flatnonzero((self.owner == NOBODY) & self.traffic.active)
        self._waiting: dict[int, float] = {int(bundle): start + self.reconnect_delay for bundle in orphans}

    def unload_at(
        self, at: int, namespace: str, range_text: str, destination: str | None, now: float
    ) -> Redirect | None:
        """Unload a bundle as the broker `at` does it: destination check, leader hop, owner hop.

        Returns:
            The next broker to ask; None when done (also if the bundle had no owner).

        Raises:
            Refusal: 409 destination not active, 404 namespace, 412 range, 500 text that is no range.
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
        """Look a topic up as the broker `at` does it; the leader places a bundle without an owner.

        Raises:
            Refusal: 404 namespace, 412 topic name, 500 no leader or no broker.
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
        """Release the bundles of a broker that is gone: they have no owner until they are looked up."""
        self.release([int(i) for i in np.flatnonzero(self.owner == broker)], now)

    def release(self, bundles: list[int], now: float) -> None:
        """Unload bundles: they have no owner until they are looked up."""
        self.owner[bundles] = NOBODY
        active = self.traffic.active
        self._waiting.update({bundle: now + self.reconnect_delay for bundle in bundles if active[bundle]})

    def split(self, bundle: int, more: int) -> None:
        """Give the new parts of a bundle the same owner; they come last."""
        self.owner = np.append(self.owner, [self.owner[bundle]] * more)

    def next_reconnect(self) -> float:
        """Return when producers look the next bundle up, seconds since 1970; infinity if none waits."""
        return min(self._waiting.values(), default=float("inf"))

    def reconnect(self, now: float) -> None:
        """Let producers that are due look their topics up; a lookup that fails is tried again."""
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
