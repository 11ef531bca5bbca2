"""Where the leader puts a bundle without an owner.

A destination given with an unload ("affinity") is used once and then forgotten
(ModularLoadManagerWrapper.getLeastLoaded); without one the placement strategy chooses.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import InitVar, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from pulsar_simulator.faults import FaultKind, Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_simulator.brokers import Broker, Membership
    from pulsar_simulator.load import Floats
    from pulsar_simulator.topology import Topology


class PlacementStrategy(StrEnum):
    """How a broker is chosen when no destination was given."""

    LEAST_LOADED = "least_loaded"  # lowest message rate now, ties by name
    RANDOM = "random"  # AvgShedder.selectBroker without a plan: crc32 of a random number's text, modulo n


@dataclass
class BundlePlacement:
    """The leader's memory of destinations, and its choice of brokers.

    Args:
        membership: brokers that can be chosen.
        topology: names of the bundles.
        faults: `stray` makes a bundle with a destination land elsewhere.
        strategy: how a broker is chosen without a destination.
        by_range: remember destinations only by hash range, as brokers before 4.0.10 and 4.2.1 did: two namespaces with
            the same range then get each other's destination.
        rates: current message rate (msg/s, in and out) of every broker.
        seed: of the random choice.
    """

    membership: Membership
    topology: Topology
    faults: Faults
    strategy: PlacementStrategy
    by_range: bool
    rates: Callable[[], Floats]
    seed: InitVar[int]
    affinities: dict[str, int] = field(default_factory=dict)

    def __post_init__(self, seed: int) -> None:
        """Start the stream of random choices."""
        self._random = random.Random(seed)

    def remember(self, namespace: str, range_text: str, destination: int) -> None:
        """Keep a destination for the next placement of that range, even if no bundle has the range."""
        self.affinities[range_text if self.by_range else f"{namespace}/{range_text}"] = destination

    def choose(self, bundle: int) -> int | None:
        """Return the index of the broker that is to own the bundle; None when no broker is active."""
        planned = self.affinities.pop(self._key(bundle), None)
        if planned is not None and self.membership.brokers[planned].registered:
            return planned
        candidates = self.membership.registered()
        return self._select(candidates).index if candidates else None

    def stray(self, bundle: int) -> int | None:
        """Return a broker other than the planned one if the fault `stray` applies to the bundle; else None.

        On real brokers the first lookup uses the destination up, and a second one may be faster (apache/pulsar#24884).
        """
        planned = self.affinities.get(self._key(bundle))
        others = [broker for broker in self.membership.registered() if broker.index != planned]
        if planned is None or not others:
            return None
        if not self.faults.take(FaultKind.STRAY, bundle=self.topology.bundles[bundle]):
            return None
        del self.affinities[self._key(bundle)]
        return self._select(others).index

    def _key(self, bundle: int) -> str:
        name = self.topology.bundles[bundle]
        return name.rpartition("/")[2] if self.by_range else name

    def _select(self, candidates: list[Broker]) -> Broker:
        if self.strategy is PlacementStrategy.RANDOM:
            ordered = sorted(candidates, key=lambda broker: broker.broker_id)
            text = str(self._random.getrandbits(31))
            return ordered[zlib.crc32(text.encode()) % len(ordered)]
        rates = self.rates()
        return min(candidates, key=lambda broker: (rates[broker.index], broker.broker_id))
