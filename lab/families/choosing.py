"""Choose the settings of the grid that represent AvgShedder. The rule was committed before any result was seen."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from lab.families.contestants import AVG, DEFAULTS, grid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.experiments.variants import Variant
    from lab.families.family_results import FamilyResults

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
    "over the training families of the ratio to AvgShedder, moves and disturbed load plus 1."
)


def ratio(results: Mapping[str, FamilyResults], variant: str, measure: str, plus: float = 0, to: str = AVG) -> float:
    """Return the mean over the families of a measure in multiples of another's, after adding `plus` to both."""
    compared = [(family.mean(variant)[measure], family.mean(to)[measure]) for family in results.values()]
    return fmean((own + plus) / (other + plus) for own, other in compared)


class Tried(NamedTuple):
    """Settings of the grid, compared with Pulsar's defaults.

    Attributes:
        moves: in multiples.
        range: in multiples.
        hotter: points by which the 99th percentile of the hottest broker is higher.
    """

    variant: Variant
    moves: float
    range: float
    hotter: float


def tried(results: Mapping[str, FamilyResults]) -> list[Tried]:
    """Return the grid with its results."""
    return [
        Tried(
            variant,
            ratio(results, variant.name, "moves_per_day", 1, to=DEFAULTS),
            ratio(results, variant.name, "range_mean", to=DEFAULTS),
            fmean(
                family.mean(variant.name)["hottest_p99"] - family.mean(DEFAULTS)["hottest_p99"]
                for family in results.values()
            ),
        )
        for variant in grid()
    ]


def best(results: Mapping[str, FamilyResults]) -> dict[str, Variant]:
    """Return the settings that the rule chooses, by criterion; empty if the grid has no results."""
    if not results:
        return {}
    cool = [settings for settings in tried(results) if settings.hotter <= HOTTER]
    return {
        "fewest moves": min(
            (settings for settings in cool if settings.range <= 1),
            key=lambda settings: (settings.moves, settings.range),
        ).variant,
        "smallest range": min(
            (settings for settings in cool if settings.moves <= 1),
            key=lambda settings: (settings.range, settings.moves),
        ).variant,
    }


def loses(results: Mapping[str, FamilyResults], control: str) -> bool:
    """Return whether a control loses by the stated rule."""
    more = [ratio(results, control, measure, 1) for measure in ("moves_per_day", "disturbed_per_day")]
    return min(more) > 1 and ratio(results, control, "range_mean") >= 1
