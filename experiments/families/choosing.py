"""Which settings of the grid represent AvgShedder. The rule was committed before any result was seen."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from experiments.families.contestants import AVG, grid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.families.family_results import FamilyResults
    from experiments.variants import Variant

GRID_FAMILIES = ("bursts", "daily", "mix", "unequal")
"""Training families on which the grid is tried, with the first two of their seeds."""

GRID_SEEDS = 2

HOTTER = 0.5
"""Points by which the 99th percentile of the hottest broker may be above AvgShedder's with Pulsar's defaults."""

RULE = (
    "A setting is compared with AvgShedder's defaults by the mean over the families of the ratio of its moves per day "
    "(both plus 1) and of its mean range. *Fewest moves*: the fewest moves among the settings whose range is no larger "
    "and whose 99th percentile of the hottest broker is, as a mean over the families, at most 0.5 points higher. "
    "*Smallest range*: the smallest range among those with no more moves and the same bound on the hottest broker."
)

LOSING = (
    "A control loses if it moves more, disturbs more load and has no smaller range than AvgShedder: each as the mean "
    "over the training families of the ratio to AvgShedder (moves plus 1)."
)


def ratios(results: Mapping[str, FamilyResults], variant: str) -> tuple[float, float, float]:
    """Return moves and range in multiples of AvgShedder's, and by how many points the hottest broker is hotter."""
    compared = [(family.mean(variant), family.mean(AVG)) for family in results.values()]
    return (
        fmean((own["moves_per_day"] + 1) / (avg["moves_per_day"] + 1) for own, avg in compared),
        fmean(own["range_mean"] / avg["range_mean"] for own, avg in compared),
        fmean(own["hottest_p99"] - avg["hottest_p99"] for own, avg in compared),
    )


def best(results: Mapping[str, FamilyResults]) -> dict[str, Variant]:
    """Return the settings that the rule chooses, by what they are best at; empty without results of the grid."""
    if not results:
        return {}
    tried = [(variant, *ratios(results, variant.name)) for variant in grid()]
    cool = [entry for entry in tried if entry[3] <= HOTTER]
    return {
        "fewest moves": min((entry for entry in cool if entry[2] <= 1), key=lambda entry: entry[1:3])[0],
        "smallest range": min((entry for entry in cool if entry[1] <= 1), key=lambda entry: entry[2:0:-1])[0],
    }
