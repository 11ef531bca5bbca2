"""The data that `strategies.costs` keeps about bundles, minute by minute."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pulsar_rebalancer.replay.columns import NOBODY
from pulsar_rebalancer.run.tables import TRAFFIC
from pulsar_rebalancer.strategies.bottleneck import UNIT, continued, measure_of
from pulsar_rebalancer.strategies.costs import BundleCosts
from pulsar_rebalancer.strategies.learning import Correction, Lesson, Sums, learn, steps

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.replay.columns import Floats, Ints, Roster
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.state.learned import Learned
    from pulsar_rebalancer.strategies.sample import RecentMove


class LearnedColumns:
    """Averages and costs of all bundles.

    Attributes:
        costs: what is known about the roster's bundles, by position.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.costs = BundleCosts.unknown(len(roster.bundles))
        self._counted_at = math.inf

    def lesson(
        self,
        before: Learned,
        owner: Ints,
        load: Floats,
        *,
        brokers: Sequence[BrokerSample],
        moved: Collection[RecentMove],
        settings: Settings,
        minute: float,
        counts: bool,
    ) -> Lesson:
        """Learn from a sample, and return the figures known after it.

        Args:
            before: figures known after the last counted sample.
            owner: position of each bundle's broker; `NOBODY` for a bundle that is not in the sample.
            load: the bundles' load, with a row for each figure in `run.tables.TRAFFIC`; further rows are ignored.
            moved: recently carried out moves, as in `learning.learn`.
            minute: the sample's time, in minutes.
            counts: True if the sample counts; otherwise, what is learned from it is returned only if nothing was known.
        """
        before = continued(before, brokers, settings, counts=counts)
        known = self.costs if before.samples else BundleCosts.unknown(len(owner))
        measure = measure_of(before.bottleneck)
        inward, outward = (load[TRAFFIC.index(f"{measure}_{way}")] for way in ("in", "out"))
        rate = np.where(owner == NOBODY, np.nan, (inward + outward) / UNIT[measure])
        minutes = max(settings.interval_seconds / 60, minute - self._counted_at)
        self.costs, change = known.averaged(rate, steps(before, minutes, counts=counts))
        sums = self.sums(owner, self.costs.summands(rate, change))
        if before.samples and not counts:
            return Lesson(before, sums)
        self._counted_at = minute if counts else self._counted_at
        lesson = learn(before, brokers, sums, moved, settings, minutes)
        of_broker = [lesson.corrections.get(name, Correction()) for name in self._roster.brokers]
        # The last row is that of NOBODY.
        gain, shrink = np.array([*of_broker, Correction()])[owner].T
        self.costs = self.costs.corrected(change, gain, shrink)
        return lesson

    def sums(self, owner: Ints, summands: Sequence[Floats]) -> dict[str, Sums]:
        """Return the sums from which costs are learned, by broker; `owner` is the position of each bundle's broker."""
        owned, names = owner != NOBODY, self._roster.brokers
        at = owner[owned]
        added = [np.bincount(at, weights=column[owned], minlength=len(names)).tolist() for column in summands]
        return {names[i]: Sums(*(column[i] for column in added)) for i in np.unique(at).tolist()}
