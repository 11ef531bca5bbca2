"""Candidates that are all of a long list but a few: what is left is never written out for each bundle."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


class Others(Sequence[str]):
    """A list of brokers without a few of them, in the same order.

    Args:
        brokers: brokerIds; the same object as long as the list is the same (`PerCandidates`).
    """

    def __init__(self, brokers: Sequence[str], position: Mapping[str, int], without: Collection[str]) -> None:
        self.brokers = brokers
        self.without = frozenset(without)
        self.positions = sorted(position[broker] for broker in self.without)
        self._position = position

    def __len__(self) -> int:
        """Return how many are left."""
        return len(self.brokers) - len(self.positions)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Return one of them by its place among those that are left."""
        if isinstance(index, slice):
            return list(self)[index]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        # As many are left before the n-th that is missing as its position less n.
        before = bisect_left(range(len(self.positions)), index + 1, key=lambda n: self.positions[n] - n)
        return self.brokers[index + before]

    def __iter__(self) -> Iterator[str]:
        """Return those that are left, one after the other."""
        return (broker for broker in self.brokers if broker not in self.without)

    def __contains__(self, broker: object) -> bool:
        """Return whether a broker is left."""
        return broker in self._position and broker not in self.without

    def __eq__(self, other: object) -> bool:
        """Return whether the same brokers are left in the same order."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def split(candidates: Sequence[str]) -> tuple[Sequence[str], frozenset[str]]:
    """Return the list that candidates are of, and those of it that are none."""
    if isinstance(candidates, Others):
        return candidates.brokers, candidates.without
    return candidates, frozenset()
