"""The outcome of a variant, the Pareto front of all variants, and the variant that a preference picks."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.replay.columns import NOBODY, Floats
from pulsar_rebalancer.replay.recording import MINUTES_PER_DAY
from pulsar_rebalancer.replay.samples import RecordedSample

HOT_SCORE = 80.0
"""Score, in percent, above which a broker counts as hot."""


class VariantFailure(NamedTuple):
    """The error that ended a variant's replay, on one line, and its sample's time in minutes since 1970."""

    minute: int
    error: str

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.minute * 60, UTC)


@dataclass
class VariantOutcome:
    """The outcome of one variant over a period, built up sample by sample.

    Attributes:
        score_ranges: largest minus smallest score by sample, in points; 32 bits each: there can be millions.
        deviation_sum: sum over all samples of the standard deviation of the scores in points.
        hot_samples, samples_with_moves: number of those with a broker above `HOT_SCORE` percent, and with moves.
        disturbed_throughput: throughput of the moved bundles when they moved, in bytes/s, inbound plus outbound.
        placed_count: number of bundles placed because their broker was gone.
        sample_minutes: time for each of `score_ranges`, in minutes since 1970; only in the recording's outcome.
        moved_bundles, moved_at: each moved bundle and its minute; only for the recording and current settings.
    """

    variant: str
    score_ranges: array[float] = field(default_factory=lambda: array("f"))
    deviation_sum: float = 0.0
    hot_samples: int = 0
    samples_with_moves: int = 0
    moved_count: int = 0
    disturbed_throughput: float = 0.0
    placed_count: int = 0
    failed: VariantFailure | None = None
    sample_minutes: array[int] = field(default_factory=lambda: array("q"))
    moved_bundles: array[int] = field(default_factory=lambda: array("q"))
    moved_at: array[int] = field(default_factory=lambda: array("q"))

    def add_scores(self, scores: Floats) -> None:
        largest = float(scores.max())
        self.score_ranges.append(largest - float(scores.min()))
        self.deviation_sum += float(scores.std())
        self.hot_samples += largest > HOT_SCORE

    def add_unloads(self, throughput: Floats) -> None:
        """Add the bundles that move after a sample, by their throughput in bytes/s."""
        self.samples_with_moves += 1
        self.moved_count += len(throughput)
        self.disturbed_throughput += float(throughput.sum())

    def add_moved_bundles(self, minute: int, bundles: Sequence[int]) -> None:
        self.moved_bundles.extend(bundles)
        self.moved_at.extend([minute] * len(bundles))

    def append(self, other: Self) -> None:
        self.failed = self.failed or other.failed
        for name in (column.name for column in fields(self) if column.name not in ("variant", "failed")):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Metrics(NamedTuple):
    """The values by which variants are compared; ranges and deviation are in points.

    Attributes:
        events: samples after which the variant moved bundles; unloads count bundles.
        disturbed_per_day: throughput of the moved bundles when they moved, in bytes/s per day.
        hot_share: share of the time during which a broker was above 80 percent, 0 to 1.
        lost: number of bundles placed because their broker was gone.
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


def metrics_of(outcome: VariantOutcome, minutes: float) -> Metrics:
    """Return an outcome's values; `minutes` is the time that its samples cover."""
    days, ranges = minutes / MINUTES_PER_DAY, np.array(outcome.score_ranges or [0.0])
    return Metrics(
        outcome.variant,
        outcome.moved_count,
        outcome.samples_with_moves,
        outcome.moved_count / days,
        outcome.samples_with_moves / days,
        outcome.disturbed_throughput / days,
        float(ranges.mean()),
        float(np.percentile(ranges, 95)),
        float(ranges.max()),
        outcome.deviation_sum / max(1, len(outcome.score_ranges)),
        outcome.hot_samples / max(1, len(outcome.score_ranges)),
        outcome.placed_count,
    )


def outcome_by_variant(outcomes: Iterable[VariantOutcome]) -> dict[str, VariantOutcome]:
    """Join the outcomes of each variant's periods in the given order, by the variant's name."""
    by_name: dict[str, VariantOutcome] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.variant, VariantOutcome(outcome.variant)).append(outcome)
    return by_name


def pareto_front(rows: Sequence[Metrics]) -> set[str]:
    """Return the variants that no other variant beats in both unloads and range."""
    front: set[str] = set()
    least, edge = float("inf"), (-1.0, -1.0)
    for row in sorted(rows, key=lambda row: (row.unloads_per_day, row.range_mean)):
        # Variants that are equal in both are all on the front.
        if row.range_mean < least or (row.unloads_per_day, row.range_mean) == edge:
            front.add(row.variant)
            least, edge = row.range_mean, (row.unloads_per_day, row.range_mean)
    return front


def preferred_variant(rows: Sequence[Metrics], unloads_per_point: float) -> str:
    """Return the variant with the lowest cost: unloads per day plus `unloads_per_point` per point of mean range."""

    def cost(row: Metrics) -> tuple[float, float, str]:
        return row.unloads_per_day + unloads_per_point * row.range_mean, row.range_mean, row.variant

    return min(rows, key=cost).variant


RECORDING = "recording"


class RecordedCluster:
    """Computes the recorded cluster's outcome. A bundle counts as unloaded if its broker changes.

    The cause does not matter. It counts as lost instead if its previous broker is gone, has restarted or
    does not report. A new bundle, such as a part of a split bundle, counts as neither.
    """

    def __init__(self, bundles: int) -> None:
        self.outcome = VariantOutcome(RECORDING)
        self._owner = np.full(bundles, NOBODY)

    def add_sample(self, sample: RecordedSample, scores: Floats) -> None:
        """Add a sample, with the compared brokers' scores in percent."""
        if len(scores):
            self.outcome.add_scores(scores)
            self.outcome.sample_minutes.append(sample.minute)
        known, brokers = self._owner != NOBODY, sample.brokers
        away = ~brokers.registered | sample.has_restarted
        changed = sample.present_bundles & known & (self._owner != sample.owner)
        lost = changed & (away | ~brokers.is_reported)[self._owner]
        moved = np.flatnonzero(changed & ~lost)
        if len(moved):
            self.outcome.add_unloads(sample.loads[2:4, moved].sum(axis=0))
            self.outcome.add_moved_bundles(sample.minute, moved.tolist())
        self.outcome.placed_count += int(lost.sum())
        before = np.where(known & ~away[self._owner], self._owner, NOBODY)
        self._owner = np.where(sample.present_bundles, sample.owner, before)


class Agreement(BaseModel):
    """How closely a replay with the current settings reproduces the recording.

    Ranges are mean score ranges in points, unloads are per day, bundles moved at least once.
    `range_apart` is the mean absolute difference by sample; the correlation (-1 to 1) is None if a range
    never changes.
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
    def compare(cls, recorded_outcome: VariantOutcome, replayed_outcome: VariantOutcome, minutes: float) -> Self:
        """Compare two outcomes over the same samples; `minutes` is the time that these cover."""
        ranges = np.array([recorded_outcome.score_ranges or [0.0], replayed_outcome.score_ranges or [0.0]])
        moved, again = set(recorded_outcome.moved_bundles), set(replayed_outcome.moved_bundles)
        return cls(
            range_recorded=float(ranges[0].mean()),
            range_replayed=float(ranges[1].mean()),
            range_apart=float(np.abs(ranges[0] - ranges[1]).mean()),
            range_correlation=float(np.corrcoef(ranges)[0, 1]) if ranges.std(axis=1).all() else None,
            unloads_recorded=recorded_outcome.moved_count * MINUTES_PER_DAY / minutes,
            unloads_replayed=replayed_outcome.moved_count * MINUTES_PER_DAY / minutes,
            bundles_recorded=len(moved),
            bundles_replayed=len(again),
            bundles_both=len(moved & again),
        )

    @property
    def sentence(self) -> str:
        correlation = "" if self.range_correlation is None else f" (correlation {self.range_correlation:.2f})"
        return (
            f"The replayed range differs from the recorded range by {self.range_apart:.1f} points on average"
            f"{correlation}; unloads a day: {self.unloads_recorded:.1f} recorded, {self.unloads_replayed:.1f} replayed"
            f"; bundles that moved: {self.bundles_recorded:,} recorded, {self.bundles_replayed:,} replayed, "
            f"{self.bundles_both:,} in both"
        )
