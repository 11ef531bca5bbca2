"""What every placement has in common: it narrows the candidates down, then one of the eligible is drawn."""

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
    """One placement over one cluster and run (ModularLoadManagerStrategy)."""

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return the candidates to draw the destination from, by name; with none, the bundle has no destination.

        One call is one call of Pulsar's `selectBroker`: each updates averages and counters.

        Args:
            bundle: `tenant/namespace/0x…_0x…`.
            candidates: brokerIds, by name.
        """

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Take note that a bundle was given to a broker."""

    def kept(self) -> PlacementState:
        """Return the state that the next run starts from."""


class Stateless:
    """A placement that ignores earlier placements and keeps nothing."""

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing: nothing depends on it."""

    def kept(self) -> PlacementState:
        """Return nothing."""
        return PlacementState()


class PerCandidates(Generic[T]):
    """A cache of what is made from a list of candidates, kept as long as the list is the same object.

    Nearly all bundles have the same candidates, and looking at every broker for every bundle would be quadratic. A list
    that is asked for only once does not replace the common one.

    Args:
        make: makes the cached value from a list.
    """

    def __init__(self, make: Callable[[Sequence[str]], T]) -> None:
        self._make = make
        self._kept: list[tuple[Sequence[str], T]] = []

    def of(self, candidates: Sequence[str]) -> T:
        """Return the value for these candidates, from the cache if it is there."""
        cached = next((entry for entry in self._kept if entry[0] is candidates), None)
        if cached is None:
            cached = candidates, self._make(candidates)
            self._kept = [*self._kept[:1], cached]
        elif cached is not self._kept[0]:
            self._kept.reverse()
        return cached[1]

    def __iter__(self) -> Iterator[T]:
        """Return the cached values."""
        return (made for _, made in self._kept)


def choose(seed: str, bundle: str, eligible: Sequence[str]) -> str | None:
    """Return one of the eligible brokers, None when there is none.

    Pulsar draws at random. Here a hash of seed and bundle draws among the eligible by name, so that a run gives the
    same plan however often and wherever it is decided.

    Args:
        seed: text of the run.
        bundle: `tenant/namespace/0x…_0x…`.
        eligible: brokerIds, by name.
    """
    digest = blake2b(f"{seed}/{bundle}".encode(), digest_size=8).digest()
    return eligible[int.from_bytes(digest) % len(eligible)] if eligible else None


def usages(sample: ClusterSample) -> dict[str, float]:
    """Return the weighted usage of the brokers that take part, 1 is 100 percent."""
    return {broker.broker: weighted_usage(broker, sample.settings) for broker in sample.taking_part}


def overloaded(sample: ClusterSample) -> set[str]:
    """Return the brokers above the overload threshold."""
    limit = sample.settings.overloaded_threshold / 100
    return {broker for broker, usage in usages(sample).items() if usage > limit}
