"""A run's broker scores, for the metrics and the page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.strategies.left_out import left_out_of
from pulsar_rebalancer.strategies.scoring import score

if TYPE_CHECKING:
    from pulsar_rebalancer.run.snapshot import Snapshot


class Scores(NamedTuple):
    """Scores in percent; mean, range and deviation are None if no brokers are compared.

    Attributes:
        by_broker: scores of all brokers with a valid load report, including those that are left out.
        compared: scores of the brokers that the strategy compares, by broker.
    """

    by_broker: dict[str, float] = {}
    compared: tuple[float, ...] = ()

    @property
    def mean(self) -> float | None:
        """Return the mean of the compared scores in percent."""
        return math.fsum(self.compared) / len(self.compared) if self.compared else None

    @property
    def spread(self) -> float | None:
        """Return the difference between the highest and the lowest compared score in points."""
        return max(self.compared) - min(self.compared) if self.compared else None

    @property
    def deviation(self) -> float | None:
        """Return the standard deviation of the compared scores in points."""
        if self.mean is None:
            return None
        return math.sqrt(math.fsum((figure - self.mean) ** 2 for figure in self.compared) / len(self.compared))


def scores_of(run: Snapshot) -> Scores:
    """Return a run's broker scores.

    Raises:
        SnapshotError: one of the run's files cannot be read.
        StateError: `state_version`.
    """
    unknown, left_out = {*run.silent, *run.validation.quarantined}, left_out_of(run)
    samples = run.brokers_without({})
    scores = {sample.broker: score(sample, run.settings) for sample in samples if sample.broker not in unknown}
    return Scores(scores, tuple(figure for broker, figure in scores.items() if broker not in left_out))
