"""The five problems of PIP-364, judged by stated rules from the numbers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from experiments.scenario import load_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.results import Results
    from experiments.scenario import Scenario

BASELINE = "no shedding"
NOT_RUN = "not run"

PUBLISHED = {
    "ThresholdShedder + LeastResourceUsageWithWeight": ("normal", "good", "bad", "bad", "normal"),
    "UniformLoadShedder + LeastLongTermMessageRate": ("bad", "bad", "good", "good", "normal"),
    "AvgShedder": ("normal (book: fair)", "good", "good", "good", "good"),
}
"""What was published, in the order of `PROBLEMS`: the table of PIP-364, and where its author's book differs."""


class Problem(NamedTuple):
    """One problem, and how it is judged.

    Attributes:
        title: as in the PIP.
        rule: how the numbers become a verdict.
    """

    title: str
    rule: str


PROBLEMS = (
    Problem(
        "heterogeneous environment",
        "Where one broker is far stronger, the range of the scores at the end, as a share of that without shedding: up "
        "to 50 % good, up to 90 % normal, else bad. Bad in any case when in the cluster with other processes the "
        "hottest broker ends 5 points or more above where it ends without shedding.",
    ),
    Problem(
        "load jitter",
        "Unload events in the scenarios with jitter and with a spike of CPU, medians added up: up to 1 good, up to 5 "
        "normal, else bad.",
    ),
    Problem(
        "over-placement",
        "Of the bundles moved in a scenario, the share that went to a broker already 5 points above the mean; the mean "
        "over the scenarios in which brokers differ, by their load at the start or because one joins, and none stops: "
        "below 2 % good, below 10 % normal, else bad. What comes "
        "back in a swap is not counted among those that went to a hot broker.",
    ),
    Problem(
        "over-unloading",
        "Of the same bundles, the share whose source was 5 points below the mean within the ten minutes after, swaps "
        "as above; again the mean over the scenarios: below 5 % good, below 25 % normal, else bad.",
    ),
    Problem(
        "slow load balancing",
        "A hundred hot and a hundred new brokers: a range below 15 points at the end, and settled within 10 minutes "
        "good, within 60 normal, else bad.",
    ),
)


def verdicts(results: Mapping[str, Results], variant: str) -> list[str]:
    """Return the verdict on each problem, with its figure."""
    judges = (_heterogeneous, _jitter, _over_placement, _over_unloading, _speed)
    found = []
    for judge in judges:
        try:
            found.append(judge(results, variant))
        except KeyError:
            found.append(NOT_RUN)
    return found


@cache
def moving_scenarios() -> tuple[str, ...]:
    """Return the shipped scenarios that say something of the bundles moved: brokers differ in them, and none stops."""
    return tuple(name for name, scenario in load_all().items() if brokers_differ(scenario))


def brokers_differ(scenario: Scenario) -> bool:
    """Return whether brokers differ, by their load at the start or because one joins, and none stops."""
    joins = any(change.start for change in scenario.changes)
    return (len(set(scenario.load)) > 1 or joins) and not any(change.stop for change in scenario.changes)


def _heterogeneous(results: Mapping[str, Results], variant: str) -> str:
    stronger, others = results["one_far_stronger"], results["by_hand_other_processes"]
    with_it, without = (stronger.spread(name, "range_end").median or 0.0 for name in (variant, BASELINE))
    hottest, left_alone = (others.spread(name, "largest_end").median or 0.0 for name in (variant, BASELINE))
    share = 100 * with_it / without if without else 0.0
    worse = hottest >= left_alone + 5
    verdict = "bad" if worse else _verdict(share, 50, 90, inclusive=True)
    return f"{verdict} ({share:.0f} %{', a hot broker became hotter' if worse else ''})"


def _jitter(results: Mapping[str, Results], variant: str) -> str:
    events = sum(results[name].spread(variant, "unload_events").median or 0.0 for name in ("jitter", "cpu_spike"))
    return f"{_verdict(events, 1, 5, inclusive=True)} ({events:g})"


def _over_placement(results: Mapping[str, Results], variant: str) -> str:
    return _share_of_moved(results, variant, "hot_placements", 2, 10)


def _over_unloading(results: Mapping[str, Results], variant: str) -> str:
    return _share_of_moved(results, variant, "overshoots", 5, 25)


def _share_of_moved(results: Mapping[str, Results], variant: str, measure: str, good: float, normal: float) -> str:
    moved = {name: results[name].total(variant, "bundles_moved") for name in moving_scenarios()}
    # Every scenario counts alike: the one with two hundred brokers moves more bundles than all others together.
    shares = [100 * results[name].total(variant, measure) / count for name, count in moved.items() if count]
    if not shares:
        return "moved nothing"
    share = sum(shares) / len(shares)
    return f"{_verdict(share, good, normal, inclusive=False)} ({share:.1f} %)"


def _speed(results: Mapping[str, Results], variant: str) -> str:
    runs = results["hundred_hot_hundred_new"]
    settled, end = runs.spread(variant, "settled_after"), runs.spread(variant, "range_end").median or 0.0
    if settled.median is None:
        return f"bad (not settled, range {end:.0f})"
    verdict = "bad" if end >= 15 else _verdict(settled.median, 10, 60, inclusive=True)
    return f"{verdict} ({settled.median:.0f} min, range {end:.0f})"


def _verdict(figure: float, good: float, normal: float, *, inclusive: bool) -> str:
    for verdict, bound in (("good", good), ("normal", normal)):
        if figure < bound or (inclusive and figure == bound):
            return verdict
    return "bad"
