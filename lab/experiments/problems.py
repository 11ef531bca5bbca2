"""The five problems of PIP-364, judged by stated rules from the numbers."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from lab.experiments.variants import baseline_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lab.experiments.results import Results

PUBLISHED = {
    "ThresholdShedder + LeastResourceUsageWithWeight": ("normal", "good", "bad", "bad", "normal"),
    "UniformLoadShedder + LeastLongTermMessageRate": ("bad", "bad", "good", "good", "normal"),
    "AvgShedder": ("normal", "good", "good", "good", "good"),
}
"""What PIP-364 published, in the order of `PROBLEMS`."""

VERDICTS = ("good", "normal", "bad")

FAR_STRONGER = ("one_far_stronger_28", "one_far_stronger_55")
OTHER_PROCESSES = "by_hand_other_processes"
UNSTEADY = ("jitter", "cpu_spike")
NO_CANDIDATE = "by_hand_no_candidate"
HISTORY_SCORE = "by_hand_history_score"
HUNDRED_NEW = "hundred_hot_hundred_new"


class Bounds(NamedTuple):
    """A value up to the first bound is good, up to the second normal, above it bad."""

    good: float
    normal: float
    unit: str

    def level(self, value: float) -> int:
        """Return the index of the verdict on a value."""
        return (value > self.good) + (value > self.normal)

    def words(self) -> str:
        """Return the bounds as the rules state them."""
        if self.good == self.normal:
            return f"good up to {_amount(f'{self.good:g}', self.unit)}"
        good, normal = (_amount(f"{bound:g}", self.unit) for bound in (self.good, self.normal))
        return f"good up to {good}, normal up to {normal}"


class Value(NamedTuple):
    """A measured value and its bounds."""

    value: float
    bounds: Bounds

    def __str__(self) -> str:
        """Return the value with its unit."""
        return "never settled" if math.isinf(self.value) else _amount(f"{self.value:.3g}", self.bounds.unit)


SHARE_OF_RANGE = Bounds(50, 90, "%")
HOTTER = Bounds(5, 5, "points hotter")
EVENTS = Bounds(1, 5, "events")
PLACED_HOT = Bounds(2, 10, "%")
OVERSHOT = Bounds(5, 25, "%")
SETTLED = Bounds(10, 60, "minutes")
RANGE_LEFT = Bounds(15, 15, "points of range")


class Judgement(NamedTuple):
    """The verdict on one problem.

    Attributes:
        verdict: good, normal or bad.
        text: all judged values, with units.
    """

    verdict: str
    text: str


def _amount(value: str, unit: str) -> str:
    return f"{value} {unit.removesuffix('s') if value.lstrip('+-') == '1' else unit}"


class Problem(NamedTuple):
    """One problem, and how it is judged.

    Attributes:
        title: as in the PIP.
        rule: how the numbers become a verdict.
        judge: the rule as a function of the results by scenario, and a variant; KeyError if a scenario was not run.
    """

    title: str
    rule: str
    judge: Callable[[Mapping[str, Results], str], Judgement]


def judge(results: Mapping[str, Results], variant: str) -> list[Judgement | None]:
    """Return the judgement of each problem, None where a scenario that it needs was not run."""
    return [_judgement(problem, results, variant) for problem in PROBLEMS]


def judged(*values: Value) -> Judgement:
    """Return the judgement on values: the worst of their verdicts."""
    worst = max(value.bounds.level(value.value) for value in values)
    return Judgement(VERDICTS[worst], ", ".join(map(str, values)))


def percent(count: float, moved: float) -> float:
    """Return a count as a share of the bundles moved, percent; 0 of 0 is 0 %."""
    return 100 * count / moved if moved else 0.0


def _judgement(problem: Problem, results: Mapping[str, Results], variant: str) -> Judgement | None:
    try:
        return problem.judge(results, variant)
    except KeyError:
        return None


def _median(results: Results, variant: str, measure: str) -> float:
    middle = results.spread(variant, measure).median
    return math.inf if middle is None else middle


def _heterogeneous(results: Mapping[str, Results], variant: str) -> Judgement:
    baseline = baseline_of(variant)
    ranges = [[_median(results[name], which, "range_end") for which in (variant, baseline)] for name in FAR_STRONGER]
    hottest, left_alone = (_median(results[OTHER_PROCESSES], which, "largest_end") for which in (variant, baseline))
    share = fmean(100 * with_it / without for with_it, without in ranges)
    return judged(Value(share, SHARE_OF_RANGE), Value(hottest - left_alone, HOTTER))


def _jitter(results: Mapping[str, Results], variant: str) -> Judgement:
    return judged(Value(sum(_median(results[name], variant, "unload_events") for name in UNSTEADY), EVENTS))


def _over_placement(results: Mapping[str, Results], variant: str) -> Judgement:
    return _share_of_moved(results, variant, NO_CANDIDATE, "hot_placements", PLACED_HOT)


def _over_unloading(results: Mapping[str, Results], variant: str) -> Judgement:
    return _share_of_moved(results, variant, HISTORY_SCORE, "overshoots", OVERSHOT)


def _share_of_moved(
    results: Mapping[str, Results], variant: str, scenario: str, measure: str, bounds: Bounds
) -> Judgement:
    of = results[scenario]
    share = percent(of.total(variant, measure), of.total(variant, "bundles_moved"))
    return judged(Value(share, bounds))


def _speed(results: Mapping[str, Results], variant: str) -> Judgement:
    runs = results[HUNDRED_NEW]
    settled, left = (_median(runs, variant, measure) for measure in ("settled_after", "range_end"))
    return judged(Value(settled, SETTLED), Value(left, RANGE_LEFT))


PROBLEMS = (
    Problem(
        "heterogeneous environment",
        f"with one far stronger broker, the final range in percent of the range without shedding "
        f"({SHARE_OF_RANGE.words()}); with other processes on the CPU, the hottest broker's score compared with no "
        f"shedding ({HOTTER.words()}).",
        _heterogeneous,
    ),
    Problem("load jitter", f"minutes with unloads (events) under jitter and a CPU spike ({EVENTS.words()}).", _jitter),
    Problem(
        "over-placement",
        f"percentage of the moved bundles whose new broker was 5 points above the mean ({PLACED_HOT.words()}).",
        _over_placement,
    ),
    Problem(
        "over-unloading",
        f"percentage of the moved bundles whose old broker was 5 points below the mean within ten minutes "
        f"({OVERSHOT.words()}).",
        _over_unloading,
    ),
    Problem(
        "slow load balancing",
        f"minutes until a hundred hot and a hundred new brokers are balanced ({SETTLED.words()}); the final range "
        f"({RANGE_LEFT.words()}).",
        _speed,
    ),
)
"""Medians over the seeds are judged; the worse of two verdicts counts."""
