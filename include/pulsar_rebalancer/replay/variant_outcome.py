"""What became of a cluster with a variant, which variants are worth looking at, and which one a preference picks."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from pulsar_rebalancer.replay.recording import MINUTES_OF_A_DAY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pulsar_rebalancer.replay.columns import Floats

HOT = 80.0
"""Percent above which a broker counts as hot."""


@dataclass
class VariantOutcome:
    """One variant over a stretch, taken down sample by sample.

    Attributes:
        variant: its name.
        ranges: largest minus least score of each sample, points; 32-bit, there may be millions.
        deviation: standard deviation of the scores of a sample, points, added up.
        hot: samples in which a broker was above `HOT` percent.
        events: samples after which the variant moved anything.
        moved: bundles that it moved.
        disturbed: throughput of these when they moved, bytes/s in plus out, added up.
        lost: bundles that were placed because their broker was gone.
    """

    variant: str
    ranges: array[float] = field(default_factory=lambda: array("f"))
    deviation: float = 0.0
    hot: int = 0
    events: int = 0
    moved: int = 0
    disturbed: float = 0.0
    lost: int = 0

    def scores(self, scores: Floats) -> None:
        """Take down the scores of a sample, percent."""
        largest = float(scores.max())
        self.ranges.append(largest - float(scores.min()))
        self.deviation += float(scores.std())
        self.hot += largest > HOT

    def unloads(self, throughput: Floats) -> None:
        """Take down the bundles that move after a sample by their throughput, bytes/s."""
        self.events += 1
        self.moved += len(throughput)
        self.disturbed += float(throughput.sum())

    def add(self, other: Self) -> None:
        """Add another stretch of the same variant."""
        self.ranges.extend(other.ranges)
        self.deviation += other.deviation
        self.hot += other.hot
        self.events += other.events
        self.moved += other.moved
        self.disturbed += other.disturbed
        self.lost += other.lost


class Figures(NamedTuple):
    """What a variant is compared by.

    Attributes:
        variant: its name.
        moved: bundles, in all.
        events: times that it moved anything, in all.
        unloads_per_day: bundles moved.
        events_per_day: times that it moved anything.
        disturbed_per_day: throughput of moved bundles when they moved, bytes/s, added up.
        range_mean: largest minus least score, points, mean over time.
        range_p95: what it is below in 95 percent of the time.
        range_largest: the largest one.
        deviation_mean: standard deviation of the scores, points, mean over time.
        hot_share: share of the time in which a broker was above 80 percent, ratio.
        lost: bundles placed because their broker was gone.
    """

    variant: str
    moved: int
    events: int
    unloads_per_day: float
    events_per_day: float
    disturbed_per_day: float
    range_mean: float
    range_p95: float
    range_largest: float
    deviation_mean: float
    hot_share: float
    lost: int


def figures(outcome: VariantOutcome, minutes: float) -> Figures:
    """Return what a variant is compared by.

    Args:
        minutes: that its samples stand for.
    """
    days, ranges = minutes / MINUTES_OF_A_DAY, np.array(outcome.ranges or [0.0])
    return Figures(
        outcome.variant,
        outcome.moved,
        outcome.events,
        outcome.moved / days,
        outcome.events / days,
        outcome.disturbed / days,
        float(ranges.mean()),
        float(np.percentile(ranges, 95)),
        float(ranges.max()),
        outcome.deviation / max(1, len(outcome.ranges)),
        outcome.hot / max(1, len(outcome.ranges)),
        outcome.lost,
    )


def merged(outcomes: Iterable[VariantOutcome]) -> dict[str, VariantOutcome]:
    """Return one outcome for each variant, its stretches in the order given."""
    found: dict[str, VariantOutcome] = {}
    for each in outcomes:
        found.setdefault(each.variant, VariantOutcome(each.variant)).add(each)
    return found


def pareto_front(compared: Sequence[Figures]) -> set[str]:
    """Return the variants than which no other has both fewer unloads and a smaller range."""
    front: set[str] = set()
    least, edge = float("inf"), (-1.0, -1.0)
    for each in sorted(compared, key=lambda each: (each.unloads_per_day, each.range_mean)):
        # Those that are equal in both are on it together.
        if each.range_mean < least or (each.unloads_per_day, each.range_mean) == edge:
            front.add(each.variant)
            least, edge = each.range_mean, (each.unloads_per_day, each.range_mean)
    return front


def preferred(compared: Sequence[Figures], worth: float) -> str:
    """Return the variant that costs least: its unloads per day, and its mean range at `worth` unloads a point.

    Args:
        worth: unloads a day that one point of range is worth.
    """

    def cost(each: Figures) -> tuple[float, float, str]:
        return each.unloads_per_day + worth * each.range_mean, each.range_mean, each.variant

    return min(compared, key=cost).variant
