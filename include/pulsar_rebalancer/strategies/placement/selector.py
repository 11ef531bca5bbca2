"""Interface for placements. A placement filters the candidates; then one of the eligible brokers is drawn."""

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
    """A placement for one run of one cluster (ModularLoadManagerStrategy)."""

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return the candidates from which the destination is drawn, sorted by name; empty if there is no destination.

        Each call corresponds to one call to Pulsar's `selectBroker`, so it updates averages and counters.

        Args:
            bundle: `tenant/namespace/0x…_0x…`.
            candidates: brokerIds, sorted by name.
        """

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Record that a bundle was placed on a broker."""

    def kept(self) -> PlacementState:
        """Return the state for the next run."""


class Stateless:
    """A placement that has no state and ignores where earlier bundles were placed."""

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing, because this placement does not depend on earlier placements."""

    def kept(self) -> PlacementState:
        """Return an empty state."""
        return PlacementState()


class PerCandidates(Generic[T]):
    """A cache for values computed from lists of candidates.

    A value is reused if it is requested for the same list object.

    Nearly all bundles have the same candidates. Without the cache, every broker would be examined for every bundle. A
    list that occurs only once does not replace the common list.

    Args:
        make: function that computes the value for a list.
    """

    def __init__(self, make: Callable[[Sequence[str]], T]) -> None:
        self._make = make
        self._kept: list[tuple[Sequence[str], T]] = []

    def of(self, candidates: Sequence[str]) -> T:
        """Return the value for these candidates, from the cache if possible."""
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

    Pulsar draws at random. Here, a hash of the seed and the bundle selects one of the eligible brokers, so that
    repeating a decision within a run gives the same plan.

    Args:
        seed: a string that is the same for all decisions of a run.
        bundle: `tenant/namespace/0x…_0x…`.
        eligible: brokerIds, sorted by name.
    """
    digest = blake2b(f"{seed}/{bundle}".encode(), digest_size=8).digest()
    return eligible[int.from_bytes(digest) % len(eligible)] if eligible else None


def usages(sample: ClusterSample) -> dict[str, float]:
    """Return the weighted usage of each broker that is not left out; 1 is 100 percent."""
    return {broker.broker: weighted_usage(broker, sample.settings) for broker in sample.taking_part}


def overloaded(sample: ClusterSample) -> set[str]:
    """Return the brokers above the overload threshold."""
    limit = sample.settings.overloaded_threshold / 100
    return {broker for broker, usage in usages(sample).items() if usage > limit}
