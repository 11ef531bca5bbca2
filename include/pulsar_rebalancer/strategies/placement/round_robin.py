"""RoundRobinBrokerSelector: choose the candidates in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.strategies.kept import PlacementState
from pulsar_rebalancer.strategies.placement.others import Others
from pulsar_rebalancer.strategies.placement.selector import PerCandidates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.run.bundle_columns import BundleSample

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
