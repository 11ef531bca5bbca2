"""A view of a long list of brokers that omits a few of them. It avoids a copy of the list for each bundle."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


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
