"""The data that `strategies.learning` keeps about bundles, as numpy columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pulsar_rebalancer.replay.columns import NOBODY
from pulsar_rebalancer.run.tables import TRAFFIC
from pulsar_rebalancer.strategies.bottleneck import UNIT, continued, measure_of
from pulsar_rebalancer.strategies.learning import (
    START_COST,
    START_VARIANCE,
    Correction,
    Lesson,
    Sums,
    corrected,
    learn,
    steps,
    summands,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.replay.columns import Flags, Floats, Ints, Roster
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.state.learned import Learned
    from pulsar_rebalancer.strategies.sample import RecentMove


class LearnedColumns:
    """Averages and costs of all bundles.

    Attributes:
        hour, quick, quarter: moving averages of the rate (msg/s) or the throughput (kB/s); their half-lives are 60, 2.4
            and 15 minutes.
        cost, variance: relative cost of a message, and its variance.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        count = len(roster.bundles)
        self.hour, self.quick, self.quarter, self._change = (np.zeros(count) for _ in range(4))
        self.cost, self.variance = np.full(count, START_COST), np.full(count, START_VARIANCE)
        self._known = np.zeros(count, dtype=bool)

    def lesson(
        self,
        before: Learned,
        owner: Ints,
        load: Floats,
        *,
        brokers: Sequence[BrokerSample],
        moved: Collection[RecentMove],
        settings: Settings,
        counts: bool,
    ) -> Lesson:
        """Learn from a sample, and return the figures known after it.

        Args:
            before: figures known after the last counted sample.
            owner: position of each bundle's broker; `NOBODY` for a bundle that is not in the sample.
            load: the bundles' load, with a row for each figure in `run.tables.TRAFFIC`; further rows are ignored.
            moved: recently carried out moves, as in `learning.learn`.
            counts: True if the sample counts; otherwise nothing is learned.
        """
        before = continued(before, brokers, settings, counts=counts)
        if not before.samples:
            self._known[:] = False
        measure = measure_of(before.bottleneck)
        inward, outward = (load[TRAFFIC.index(f"{measure}_{way}")] for way in ("in", "out"))
        rate = (inward + outward) / UNIT[measure]
        self.add(owner != NOBODY, rate, steps(before, settings, counts=counts))
        sums = self.sums(owner, rate)
        if not counts:
            return Lesson(before, sums)
        lesson = learn(before, brokers, sums, moved, settings)
        self.correct(owner, lesson)
        return lesson

    def add(self, present: Flags, rate: Floats, steps: Collection[float]) -> None:
        """Add a sample to the averages.

        Args:
            present: True for each bundle that is in the sample; others are forgotten.
            rate: msg/s or kB/s, in and out.
        """
        new = present & ~self._known
        for column in (self.hour, self.quick, self.quarter):
            column[new] = rate[new]
        self.cost[new], self.variance[new] = START_COST, START_VARIANCE
        self._known, self._change = present, rate - self.quarter
        for column, step in zip((self.hour, self.quick, self.quarter), steps, strict=True):
            column += step * (rate - column)

    def sums(self, owner: Ints, rate: Floats) -> dict[str, Sums]:
        """Return the sums from which costs are learned, by broker; `owner` is the position of each bundle's broker."""
        owned, names = owner != NOBODY, self._roster.brokers
        of_bundles: Any = summands(
            self.cost, self.variance, rate=rate, change=self._change, quick=self.quick, hour=self.hour
        )
        at = owner[owned]
        added = [np.bincount(at, weights=column[owned], minlength=len(names)).tolist() for column in of_bundles]
        return {names[i]: Sums(*(column[i] for column in added)) for i in np.unique(at).tolist()}

    def correct(self, owner: Ints, lesson: Lesson) -> None:
        """Apply a sample's corrections to the costs."""
        of_broker = [lesson.corrections.get(name, Correction()) for name in self._roster.brokers]
        # The last row is that of NOBODY.
        gain, shrink = np.array([*of_broker, Correction()])[owner].T
        self.cost, self.variance = corrected(self.cost, self.variance, self._change, gain, shrink, np.clip)
