"""The five problems of PIP-364, judged by stated rules from the numbers."""

from __future__ import annotations

import math
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from lab.experiments.scenario import load_all
from lab.experiments.variants import baseline_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lab.experiments.results import Results
    from lab.experiments.scenario import Scenario

PUBLISHED = {
    "ThresholdShedder + LeastResourceUsageWithWeight": ("normal", "good", "bad", "bad", "normal"),
    "UniformLoadShedder + LeastLongTermMessageRate": ("bad", "bad", "good", "good", "normal"),
    "AvgShedder": ("normal (book: fair)", "good", "good", "good", "good"),
}
"""What was published, in the order of `PROBLEMS`: the table of PIP-364, and where its author's book differs."""

VERDICTS = ("good", "normal", "bad")

FAR_STRONGER = ("one_far_stronger_28", "one_far_stronger_55")
OTHER_PROCESSES = "by_hand_other_processes"
UNSTEADY = ("jitter", "cpu_spike")
NO_CANDIDATE = "by_hand_no_candidate"
HISTORY_SCORE = "by_hand_history_score"
HUNDRED_NEW = "hundred_hot_hundred_new"


class Bounds(NamedTuple):
    """A figure up to the first bound is good, up to the second normal, above it bad."""

    good: float
    normal: float
    unit: str

    def level(self, figure: float) -> int:
        """Return the index of the verdict on a figure."""
        return (figure > self.good) + (figure > self.normal)

    def words(self) -> str:
        """Return the bounds as the rules state them."""
        if self.good == self.normal:
            return f"above {_amount(f'{self.good:g}', self.unit)} bad, else good"
        good, normal = (_amount(f"{bound:g}", self.unit) for bound in (self.good, self.normal))
        return f"up to {good} good, up to {normal} normal, above bad"


class Figure(NamedTuple):
    """A measured figure and its bounds."""

    value: float
    bounds: Bounds

    def __str__(self) -> str:
        """Return the figure with its unit."""
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
        text: all judged figures, with units.
        overall: the same share over all moving scenarios, percent; None for other problems, or if one was not run.
    """

    verdict: str
    text: str
    overall: float | None = None


def _amount(figure: str, unit: str) -> str:
    return f"{figure} {unit.removesuffix('s') if figure.lstrip('+-') == '1' else unit}"


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


def judged(figures: Sequence[Figure], overall: float | None = None) -> Judgement:
    """Return the judgement on figures: the worst of their verdicts."""
    worst = max(figure.bounds.level(figure.value) for figure in figures)
    return Judgement(VERDICTS[worst], ", ".join(map(str, figures)), overall)


def percent(count: float, moved: float) -> float:
    """Return a count as a share of the bundles moved, percent; 0 of 0 is 0 %."""
    return 100 * count / moved if moved else 0.0


@cache
def moving_scenarios() -> tuple[str, ...]:
    """Return the shipped scenarios that say something of the bundles moved: brokers differ in them, and none stops."""
    return tuple(name for name, scenario in load_all().items() if brokers_differ(scenario))


def brokers_differ(scenario: Scenario) -> bool:
    """Return whether brokers differ, by their load at the start or because one joins, and none stops."""
    joins = any(change.start for change in scenario.changes)
    return (len(set(scenario.load)) > 1 or joins) and not any(change.stop for change in scenario.changes)


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
    return judged([Figure(share, SHARE_OF_RANGE), Figure(hottest - left_alone, HOTTER)])


def _jitter(results: Mapping[str, Results], variant: str) -> Judgement:
    return judged([Figure(sum(_median(results[name], variant, "unload_events") for name in UNSTEADY), EVENTS)])


def _over_placement(results: Mapping[str, Results], variant: str) -> Judgement:
    return _share_of_moved(results, variant, NO_CANDIDATE, "hot_placements", PLACED_HOT)


def _over_unloading(results: Mapping[str, Results], variant: str) -> Judgement:
    return _share_of_moved(results, variant, HISTORY_SCORE, "overshoots", OVERSHOT)


def _share_of_moved(
    results: Mapping[str, Results], variant: str, scenario: str, measure: str, bounds: Bounds
) -> Judgement:
    def share(name: str) -> float:
        return percent(results[name].total(variant, measure), results[name].total(variant, "bundles_moved"))

    moving = moving_scenarios()
    # Every scenario counts alike: the one with two hundred brokers moves more bundles than all others together.
    overall = fmean(map(share, moving)) if results.keys() >= set(moving) else None
    return judged([Figure(share(scenario), bounds)], overall)


def _speed(results: Mapping[str, Results], variant: str) -> Judgement:
    runs = results[HUNDRED_NEW]
    settled, left = (_median(runs, variant, measure) for measure in ("settled_after", "range_end"))
    return judged([Figure(settled, SETTLED), Figure(left, RANGE_LEFT)])


_OF_MOVED = (
    "All bundles moved over the seeds are the denominator, and a scenario in which none moved counts as "
    f"{percent(0, 0):g} %. What comes back in a swap that TransferShedder declares is never counted. "
)
_OVERALL = (
    "Next to it: the mean of this share over the scenarios in which brokers differ, by their load at the start or "
    "because one joins, and none stops."
)

PROBLEMS = (
    Problem(
        "heterogeneous environment",
        f"Where one broker is far stronger ({', '.join(FAR_STRONGER)}), the range of the scores at the end, as a share "
        f"of that without shedding, mean of the two: {SHARE_OF_RANGE.words()}. And in the cluster with other processes "
        f"({OTHER_PROCESSES}), how much hotter the hottest broker ends than without shedding: {HOTTER.words()}. The "
        "worse of the two verdicts counts. The run without shedding uses the same placement as the strategy.",
        _heterogeneous,
    ),
    Problem(
        "load jitter",
        f"The medians of the unload events in {' and '.join(UNSTEADY)}, added up: {EVENTS.words()}.",
        _jitter,
    ),
    Problem(
        "over-placement",
        f"Where no broker is a candidate ({NO_CANDIDATE}), the share of the bundles moved that went to a broker "
        f"already 5 points above the mean: {PLACED_HOT.words()}. {_OF_MOVED}{_OVERALL}",
        _over_placement,
    ),
    Problem(
        "over-unloading",
        f"Where a score may have a history ({HISTORY_SCORE}), the share of the bundles moved whose source was 5 points "
        f"below the mean within the ten minutes after: {OVERSHOT.words()}. {_OF_MOVED}{_OVERALL}",
        _over_unloading,
    ),
    Problem(
        "slow load balancing",
        f"A hundred hot and a hundred new brokers ({HUNDRED_NEW}): how long it takes to settle, {SETTLED.words()}; and "
        f"what is left at the end, {RANGE_LEFT.words()}. The worse of the two verdicts counts.",
        _speed,
    ),
)
