"""Interface for placements. A placement filters the candidates; then one of the eligible brokers is drawn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar, overload

from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.strategies.sample import ClusterSample
from pulsar_rebalancer.strategies.scoring import weighted_usage
from pulsar_rebalancer.strategies.strategy_state import PlacementState

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


class Others(Sequence[str]):
    """A view of a list of brokers that omits a few of them. The order of the list is kept.

    Args:
        brokers: brokerIds. Pass the same object while the list is unchanged, so that the cache in `PerCandidates` is
            used.
        position: index of each broker in the list.
        without: the brokers to leave out.
    """

    def __init__(self, brokers: Sequence[str], position: Mapping[str, int], without: Collection[str]) -> None:
        self.brokers = brokers
        self.without = frozenset(without)
        self.positions = sorted(position[broker] for broker in self.without)
        self._position = position

    def __len__(self) -> int:
        """Return the number of brokers in the view."""
        return len(self.brokers) - len(self.positions)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Return the broker at a position in the view, or the brokers in a slice."""
        if isinstance(index, slice):
            return list(self)[index]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        # Before the n-th missing broker (counted from 0), the number of brokers left is that broker's position minus n.
        before = bisect_left(range(len(self.positions)), index + 1, key=lambda n: self.positions[n] - n)
        return self.brokers[index + before]

    def __iter__(self) -> Iterator[str]:
        """Yield the brokers in the view."""
        return (broker for broker in self.brokers if broker not in self.without)

    def __contains__(self, broker: object) -> bool:
        """Return whether a broker is in the view."""
        return broker in self._position and broker not in self.without

    def __eq__(self, other: object) -> bool:
        """Return whether both lists have the same brokers in the same order."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def split(candidates: Sequence[str]) -> tuple[Sequence[str], frozenset[str]]:
    """Return the full list of brokers that the candidates come from, and the brokers in it that are not candidates."""
    if isinstance(candidates, Others):
        return candidates.brokers, candidates.without
    return candidates, frozenset()


MAX_COUNT = 2**31 - 1
"""Value after which the counter starts over at 0."""


class RoundRobin:
    """A counter and a list of brokers. If the list does not match the candidates, the candidates replace the list.

    As in RoundRobinBrokerSelector.selectBroker.

    Args:
        kept: the state of the last counted run; `count` and `brokers` are used.
    """

    def __init__(self, kept: PlacementState) -> None:
        self._count = kept.count
        self._brokers: Sequence[str] = kept.brokers
        self._members = PerCandidates(frozenset)

    def eligible(self, bundle: str, candidates: Sequence[str]) -> list[str]:
        """Return the next candidate."""
        if not candidates:
            return []
        index = self._count % len(candidates)
        self._count = 0 if self._count == MAX_COUNT else self._count + 1
        members = candidates if isinstance(candidates, Others) else self._members.of(candidates)
        if len(self._brokers) != len(candidates) or self._brokers[index] not in members:
            self._brokers = candidates
        return [self._brokers[index]]

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing, because `eligible` has advanced the counter."""

    def kept(self) -> PlacementState:
        """Return the counter and the list of brokers."""
        return PlacementState(count=self._count, brokers=tuple(self._brokers))
