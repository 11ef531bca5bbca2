"""AvgShedder as placement of a bundle without a plan: any candidate (AvgShedder.selectBroker of Pulsar 5.0.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.strategies.placement.selector import Stateless

if TYPE_CHECKING:
    from collections.abc import Sequence


class AvgPlacement(Stateless):
    """The placement half of AvgShedder; bundles that it has a plan for have their destination from its pairs."""

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return the candidates."""
        return candidates
