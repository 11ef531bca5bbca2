"""Choose a broker for bundles without an owner, as the leader does.

The destination of an unload ("affinity") is used once and then deleted (ModularLoadManagerWrapper.getLeastLoaded).
If there is no destination, the placement strategy chooses a broker.
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
    """Strategies that choose a broker for a bundle without a destination."""

    LEAST_LOADED = "least_loaded"  # lowest message rate now, ties by name
    RANDOM = "random"  # AvgShedder.selectBroker without a plan: crc32 of a random number's text, modulo n


@dataclass
class BundlePlacement:
    """The destinations that the leader stores, and its choice of brokers.

    Args:
        membership: brokers that can be chosen as owners.
        topology: names of the bundles.
        faults: active faults; `stray` places a bundle on a broker other than its destination.
        strategy: strategy for bundles without a destination.
        by_range: True to store destinations by hash range without the namespace, as brokers did before 4.0.10 and
            4.2.1. Bundles of different namespaces with the same range then share one destination.
        rates: function that returns the current message rate of every broker, inbound plus outbound, in msg/s.
        seed: seed of the random choices.
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
        """Create the random number generator."""
        self._random = random.Random(seed)

    def remember(self, namespace: str, range_text: str, destination: int) -> None:
        """Store a destination for the next placement of a hash range, even if no bundle has this range."""
        self.affinities[range_text if self.by_range else f"{namespace}/{range_text}"] = destination

    def choose(self, bundle: int) -> int | None:
        """Return the index of the broker that becomes the bundle's owner; None if no broker is active."""
        planned = self.affinities.pop(self._key(bundle), None)
        if planned is not None and self.membership.brokers[planned].registered:
            return planned
        candidates = self.membership.registered()
        return self._select(candidates).index if candidates else None

    def stray(self, bundle: int) -> int | None:
        """Return a broker other than the destination if the fault `stray` applies to the bundle; else None.

        This can happen on real brokers if two lookups coincide: the first consumes the destination, but the second
        places the bundle sooner, on another broker (apache/pulsar#24884).
        """
        planned = self.affinities.get(self._key(bundle))
        others = [broker for broker in self.membership.registered() if broker.index != planned]
        if planned is None or not others:
            return None
        if not self.faults.take(FaultKind.STRAY, bundle=self.topology.bundles[bundle]):
            return None
        del self.affinities[self._key(bundle)]
        return self._select(others).index

    def loses_clients(self, bundle: int) -> bool:
        """Return whether the fault `clients_gone` applies to the bundle."""
        return self.faults.take(FaultKind.CLIENTS_GONE, bundle=self.topology.bundles[bundle]) is not None

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
