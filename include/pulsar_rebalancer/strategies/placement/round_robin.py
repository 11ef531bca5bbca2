"""RoundRobinBrokerSelector: one candidate after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_COUNT = 2**31 - 1
"""From here the counter starts anew at 0."""


class RoundRobin:
    """A counter over a list of brokers that lasts as long as it fits (RoundRobinBrokerSelector.selectBroker).

    Args:
        kept: `count`, and `brokers` in the order of the list.
    """

    def __init__(self, kept: Mapping[str, Any]) -> None:
        self._count: int = kept.get("count", 0)
        self._brokers: list[str] = list(kept.get("brokers", ()))

    def eligible(self, bundle: str, candidates: Sequence[str]) -> list[str]:
        """The next candidate."""
        if not candidates:
            return []
        index = self._count % len(candidates)
        self._count = 0 if self._count == MAX_COUNT else self._count + 1
        if len(self._brokers) != len(candidates) or self._brokers[index] not in candidates:
            self._brokers = list(candidates)
        return [self._brokers[index]]

    def placed(self, bundle: str, broker: str) -> None:
        """Nothing: the counter has moved on already."""

    def document(self) -> dict[str, Any]:
        """The counter and the list."""
        return {"count": self._count, "brokers": self._brokers}
