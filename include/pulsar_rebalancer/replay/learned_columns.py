"""What `strategies.learning` keeps about bundles, as numpy columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulsar_rebalancer.replay.columns import NOBODY
from pulsar_rebalancer.strategies.learning import (
    START_COST,
    START_VARIANCE,
    Correction,
    Sums,
    corrected,
)

if TYPE_CHECKING:
    from pulsar_rebalancer.replay.columns import Flags, Floats, Ints, Roster
    from pulsar_rebalancer.strategies.learning import Lesson, Steps


class LearnedColumns:
    """Averages and costs of all bundles.

    Attributes:
        hour, quick, quarter: moving averages of the rate, msg/s.
        cost, variance: relative cost of a message, and its variance.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        count = len(roster.bundles)
        self.hour, self.quick, self.quarter, self._change = (np.zeros(count) for _ in range(4))
        self.cost, self.variance = np.full(count, START_COST), np.full(count, START_VARIANCE)
        self._known = np.zeros(count, dtype=bool)

    def add(self, present: Flags, rate: Floats, steps: Steps) -> None:
        """Add a sample to the averages.

        Args:
            present: True for each bundle that is in the sample; others are forgotten.
            rate: msg/s, in and out.
        """
        new = present & ~self._known
        for column in (self.hour, self.quick, self.quarter):
            column[new] = rate[new]
        self.cost[new], self.variance[new] = START_COST, START_VARIANCE
        self._known, self._change = present, rate - self.quarter
        for column, step in zip((self.hour, self.quick, self.quarter), steps, strict=True):
            column += step * (rate - column)

    def sums(self, owner: Ints, rate: Floats) -> dict[str, Sums]:
        """Return the sums of each broker that has bundles; `owner` is the position of each bundle's broker."""
        cost, change, owned = self.cost, self._change, owner != NOBODY
        columns = (cost * rate, cost * change, self.variance * change**2, cost * self.quick, cost * self.hour)
        names, at = self._roster.brokers, owner[owned]
        added = [np.bincount(at, weights=column[owned], minlength=len(names)).tolist() for column in columns]
        return {names[i]: Sums(*(column[i] for column in added)) for i in np.unique(at).tolist()}

    def correct(self, owner: Ints, lesson: Lesson) -> None:
        """Correct the costs."""
        of_broker = [lesson.corrections.get(name, Correction()) for name in self._roster.brokers]
        # The last row is that of NOBODY.
        gain, shrink = np.array([*of_broker, Correction()])[owner].T
        self.cost, self.variance = corrected(self.cost, self.variance, self._change, gain, shrink, np.clip)
