"""Shedders by name. A further one takes a module with `shed(sample, kept)`, a line here and its vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.strategies.shedders import (
    avg_shedder,
    overload_shedder,
    threshold_shedder,
    transfer_shedder,
    uniform_load_shedder,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.strategies.kept import ShedderState
    from pulsar_rebalancer.strategies.sample import ClusterSample, SheddingResult


class Shedder(Protocol):
    """One run of a strategy over one cluster."""

    def __call__(self, sample: ClusterSample, kept: ShedderState) -> SheddingResult:
        """Decide.

        Args:
            sample: the cluster.
            kept: what the strategy kept from the last counted run.
        """


SHEDDERS: Mapping[Strategy, Shedder] = {
    Strategy.AVG: avg_shedder.shed,
    Strategy.THRESHOLD: threshold_shedder.shed,
    Strategy.OVERLOAD: overload_shedder.shed,
    Strategy.UNIFORM: uniform_load_shedder.shed,
    Strategy.TRANSFER: transfer_shedder.shed,
}
"""Of AvgShedder the application takes what is decided on brokers; over bundles it walks by columns."""
