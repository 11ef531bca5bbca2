"""Interface for placements, which filter the candidates; one eligible broker is then drawn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar, overload

from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.state import PlacementState
from pulsar_rebalancer.strategies.sample import ClusterSample
from pulsar_rebalancer.strategies.scoring import weighted_usage

T = TypeVar("T")


class Selector(Protocol):
    """A placement for one run of one cluster (ModularLoadManagerStrategy)."""

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return the candidates from which the destination is drawn, sorted by name; empty if there are none.

        Each call corresponds to a call to Pulsar's `selectBroker`, so it updates averages and counters. A
        bundle is `tenant/namespace/0x…_0x…`; candidates are brokerIds, sorted by name.
        """

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Record that a bundle was placed on a broker."""

    def state(self) -> PlacementState:
        """Return the state for the next run."""


class Stateless:
    """A placement that has no state and ignores where earlier bundles were placed."""

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing, because this placement does not depend on earlier placements."""

    def state(self) -> PlacementState:
        return PlacementState()


class PerCandidates(Generic[T]):
    """A cache for values computed from lists of candidates, found by the same list object.

    Nearly all bundles have the same candidates; without the cache, every broker would be examined for every
    bundle. A list that occurs only once does not replace the common list.
    """

    def __init__(self, make: Callable[[Sequence[str]], T]) -> None:
        self._make = make
        self._state: list[tuple[Sequence[str], T]] = []

    def of(self, candidates: Sequence[str]) -> T:
        cached = next((entry for entry in self._state if entry[0] is candidates), None)
        if cached is None:
            cached = candidates, self._make(candidates)
            self._state = [*self._state[:1], cached]
        elif cached is not self._state[0]:
            self._state.reverse()
        return cached[1]

    def __iter__(self) -> Iterator[T]:
        return (made for _, made in self._state)


def choose(seed: str, bundle: str, eligible: Sequence[str]) -> str | None:
    """Return one of the eligible brokers, which must be sorted by name; None if there are none.

    Pulsar draws at random. Here, a hash of the bundle and the seed, one per run, makes a repeated decision
    give the same plan.
    """
    digest = blake2b(f"{seed}/{bundle}".encode(), digest_size=8).digest()
    return eligible[int.from_bytes(digest) % len(eligible)] if eligible else None


def usages(sample: ClusterSample) -> dict[str, float]:
    return {broker.broker: weighted_usage(broker, sample.settings) for broker in sample.taking_part}


def overloaded(sample: ClusterSample) -> set[str]:
    limit = sample.settings.overloaded_threshold / 100
    return {broker for broker, usage in usages(sample).items() if usage > limit}


class Others(Sequence[str]):
    """A view of a list of brokers that omits a few of them, in the same order.

    Pass the same list object while it is unchanged, for the cache in `PerCandidates`; `position` is each
    broker's index.
    """

    def __init__(self, brokers: Sequence[str], position: Mapping[str, int], without: Collection[str]) -> None:
        self.brokers = brokers
        self.without = frozenset(without)
        self.positions = sorted(position[broker] for broker in self.without)
        self._position = position

    def __len__(self) -> int:
        return len(self.brokers) - len(self.positions)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return list(self)[index]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        # Before the n-th missing broker (counted from 0), the number of brokers left is that broker's position minus n.
        before = bisect_left(range(len(self.positions)), index + 1, key=lambda n: self.positions[n] - n)
        return self.brokers[index + before]

    def __iter__(self) -> Iterator[str]:
        return (broker for broker in self.brokers if broker not in self.without)

    def __contains__(self, broker: object) -> bool:
        return broker in self._position and broker not in self.without

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def split(candidates: Sequence[str]) -> tuple[Sequence[str], frozenset[str]]:
    """Return the full list that the candidates come from, and the brokers in it that are not candidates."""
    if isinstance(candidates, Others):
        return candidates.brokers, candidates.without
    return candidates, frozenset()


MAX_COUNT = 2**31 - 1
"""Value after which the counter starts over at 0."""


class RoundRobin:
    """Choose the candidates in turn (RoundRobinBrokerSelector.selectBroker).

    If the stored list of brokers does not match the candidates, they replace it.
    """

    def __init__(self, state: PlacementState) -> None:
        self._count = state.count
        self._brokers: Sequence[str] = state.brokers
        self._members = PerCandidates(frozenset)

    def eligible(self, bundle: str, candidates: Sequence[str]) -> list[str]:
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

    def state(self) -> PlacementState:
        return PlacementState(count=self._count, brokers=tuple(self._brokers))
