"""The behaviour of the recorded cluster, and how closely a replay with the current settings reproduces it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.replay.columns import NOBODY
from pulsar_rebalancer.replay.recording import MINUTES_OF_A_DAY
from pulsar_rebalancer.replay.variant_outcome import VariantOutcome

if TYPE_CHECKING:
    from pulsar_rebalancer.replay.columns import Floats
    from pulsar_rebalancer.replay.samples import RecordedSample

RECORDING = "recording"


class RecordedCluster:
    """Computes the outcome of the recorded cluster. A bundle counts as unloaded if its broker changes between samples.

    The cause of the change does not matter. A bundle counts as lost instead if its previous broker is gone, has
    restarted or does not report. A new bundle, such as a part of a split bundle, counts neither as unloaded nor as
    lost.

    Args:
        bundles: number of bundles.
    """

    def __init__(self, bundles: int) -> None:
        self.outcome = VariantOutcome(RECORDING)
        self._owner = np.full(bundles, NOBODY)

    def step(self, sample: RecordedSample, scores: Floats) -> None:
        """Add a sample.

        Args:
            scores: scores of the compared brokers, in percent; empty if there are none.
        """
        if len(scores):
            self.outcome.scores(scores)
            self.outcome.minutes.append(sample.minute)
        known, brokers = self._owner != NOBODY, sample.brokers
        away = ~brokers.registered | sample.restarted
        changed = sample.present & known & (self._owner != sample.owner)
        lost = changed & (away | ~brokers.reported)[self._owner]
        moved = np.flatnonzero(changed & ~lost)
        if len(moved):
            self.outcome.unloads(sample.carried[2:4, moved].sum(axis=0))
            self.outcome.keep(sample.minute, moved.tolist())
        self.outcome.lost += int(lost.sum())
        before = np.where(known & ~away[self._owner], self._owner, NOBODY)
        self._owner = np.where(sample.present, sample.owner, before)


class Agreement(BaseModel):
    """How closely a replay with the current settings reproduces the recording.

    Attributes:
        range_recorded, range_replayed: mean score range over time, in points.
        range_apart: mean absolute difference between the two ranges, sample by sample, in points.
        range_correlation: correlation of the two ranges over time, -1 to 1; None if one of them never changes.
        unloads_recorded, unloads_replayed: bundles moved per day.
        bundles_recorded, bundles_replayed: number of bundles that moved at least once.
        bundles_both: number of bundles that moved at least once in both the recording and the replay.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    range_recorded: float
    range_replayed: float
    range_apart: float
    range_correlation: float | None
    unloads_recorded: float
    unloads_replayed: float
    bundles_recorded: int
    bundles_replayed: int
    bundles_both: int

    @classmethod
    def of(cls, recorded: VariantOutcome, replayed: VariantOutcome, minutes: float) -> Self:
        """Compare two outcomes over the same samples.

        Args:
            minutes: time that the samples cover, in minutes.
        """
        ranges = np.array([recorded.ranges or [0.0], replayed.ranges or [0.0]])
        moved, again = set(recorded.bundles), set(replayed.bundles)
        return cls(
            range_recorded=float(ranges[0].mean()),
            range_replayed=float(ranges[1].mean()),
            range_apart=float(np.abs(ranges[0] - ranges[1]).mean()),
            range_correlation=float(np.corrcoef(ranges)[0, 1]) if ranges.std(axis=1).all() else None,
            unloads_recorded=recorded.moved * MINUTES_OF_A_DAY / minutes,
            unloads_replayed=replayed.moved * MINUTES_OF_A_DAY / minutes,
            bundles_recorded=len(moved),
            bundles_replayed=len(again),
            bundles_both=len(moved & again),
        )

    @property
    def sentence(self) -> str:
        """Return the agreement as a sentence."""
        correlation = "" if self.range_correlation is None else f" (correlation {self.range_correlation:.2f})"
        return (
            f"The replayed range differs from the recorded one by {self.range_apart:.1f} points on average{correlation}"
            f"; unloads a day: {self.unloads_recorded:.1f} recorded, {self.unloads_replayed:.1f} replayed; "
            f"bundles that moved: {self.bundles_recorded:,} recorded, {self.bundles_replayed:,} replayed, "
            f"{self.bundles_both:,} in both"
        )
