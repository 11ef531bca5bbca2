"""For GainShedder, what is known about bundles: their average rates, and the costs of their messages.

A cost is relative to an average message. `strategies.learning` says how a sample corrects costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

START_COST, START_VARIANCE = 1.0, 0.25  # relative cost of a new bundle's messages, and its variance
_LEAST_COST, _LARGEST_COST = 0.25, 4.0
_DRIFT = 2e-6  # by which a cost's variance grows with every sample


class BundleCosts(NamedTuple):
    """A column for each of `run.tables.COSTS`, with a figure for each bundle; rates are NaN if nothing is known.

    Attributes:
        hour, quick, quarter: moving averages of the rate, msg/s, or of the throughput, kB/s.
        cost, variance: relative cost of a message, and its variance.
    """

    hour: Floats
    quick: Floats
    quarter: Floats
    cost: Floats
    variance: Floats

    @classmethod
    def unknown(cls, count: int) -> Self:
        """Return the columns for bundles about which nothing is known yet."""
        return cls(*np.full((len(cls._fields), count), np.nan))

    def averaged(self, rate: Floats, steps: Iterable[float]) -> tuple[Self, Floats]:
        """Return the columns after a sample, and the differences of the rates from their quarter-hour averages.

        Args:
            rate: msg/s or kB/s. A bundle whose rate is NaN is forgotten.
            steps: steps of the averages (`learning.steps`).
        """
        new = np.isnan(self.quick)
        before = [np.where(new, rate, average) for average in self[:3]]
        hour, quick, quarter = (old + step * (rate - old) for old, step in zip(before, steps, strict=True))
        cost, variance = np.where(new, START_COST, self.cost), np.where(new, START_VARIANCE, self.variance)
        return type(self)(hour, quick, quarter, cost, variance), rate - before[2]

    def summands(self, rate: Floats, change: Floats) -> tuple[Floats, ...]:
        """Return a column for each of `learning.Sums`, with what each bundle adds to the sums of its broker."""
        of_sample = self.cost * rate, self.cost * change, self.variance * change**2
        return *of_sample, self.cost * self.quick, self.cost * self.hour

    def corrected(self, change: Floats, gain: Floats, shrink: Floats) -> Self:
        """Return the columns with each cost corrected by `gain` and `shrink` of its broker (`learning.Correction`)."""
        known = self.variance * change
        cost = np.clip(self.cost + known * gain, _LEAST_COST, _LARGEST_COST)
        variance = np.clip(self.variance - known * known * shrink + _DRIFT, 0.0, START_VARIANCE)
        return self._replace(cost=cost, variance=variance)
