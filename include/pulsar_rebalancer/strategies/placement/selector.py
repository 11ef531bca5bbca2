"""The interface of placements: a placement narrows down the candidates, then one eligible broker is drawn."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pulsar_rebalancer.strategies.kept import PlacementState
from pulsar_rebalancer.strategies.scoring import weighted_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.strategies.sample import ClusterSample


T = TypeVar("T")


class Selector(Protocol):
    """A placement for one run over one cluster (ModularLoadManagerStrategy)."""

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return the candidates to draw the destination from, by name; empty if the bundle has no destination.

        Each call corresponds to one call of Pulsar's `selectBroker`, and so updates averages and counters.

        Args:
            bundle: `tenant/namespace/0x…_0x…`.
            candidates: brokerIds, sorted by name.
        """

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Record that a bundle was placed on a broker."""

    def kept(self) -> PlacementState:
        """Return the state that the next run starts from."""


class Stateless:
    """A placement that ignores earlier placements and keeps nothing."""

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing: this placement does not depend on placed bundles."""

    def kept(self) -> PlacementState:
        """Return an empty state."""
        return PlacementState()


class PerCandidates(Generic[T]):
    """A cache for values made from lists of candidates; a value is kept as long as the list is the same object.

    Nearly all bundles have the same candidates, and looking at every broker for every bundle would be quadratic. A list
    that is asked for only once does not replace the common list.

    Args:
        make: makes the cached value from a list.
    """

    def __init__(self, make: Callable[[Sequence[str]], T]) -> None:
        self._make = make
        self._kept: list[tuple[Sequence[str], T]] = []

    def of(self, candidates: Sequence[str]) -> T:
        """Return the value for these candidates, from the cache if it is cached."""
        cached = next((entry for entry in self._kept if entry[0] is candidates), None)
        if cached is None:
            cached = candidates, self._make(candidates)
            self._kept = [*self._kept[:1], cached]
        elif cached is not self._kept[0]:
            self._kept.reverse()
        return cached[1]

    def __iter__(self) -> Iterator[T]:
        """Yield the cached values."""
        return (made for _, made in self._kept)


def choose(seed: str, bundle: str, eligible: Sequence[str]) -> str | None:
    """Return one of the eligible brokers; None if no broker is eligible.

    Pulsar draws at random. Here a hash of seed and bundle draws from the eligible brokers in the order of their names,
    so that a run gives the same plan however often and wherever it is decided.

    Args:
        seed: text of the run.
        bundle: `tenant/namespace/0x…_0x…`.
        eligible: brokerIds, sorted by name.
    """
    digest = blake2b(f"{seed}/{bundle}".encode(), digest_size=8).digest()
    return eligible[int.from_bytes(digest) % len(eligible)] if eligible else None


def usages(sample: ClusterSample) -> dict[str, float]:
    """Return the weighted usage of each broker that takes part; 1 is 100 percent."""
    return {broker.broker: weighted_usage(broker, sample.settings) for broker in sample.taking_part}


def overloaded(sample: ClusterSample) -> set[str]:
    """Return the brokers above the overload threshold."""
    limit = sample.settings.overloaded_threshold / 100
    return {broker for broker, usage in usages(sample).items() if usage > limit}
