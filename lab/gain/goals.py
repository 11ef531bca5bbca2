"""The goals for GainShedder, committed before any result of the families that judge it was seen, and their outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lab.families.contestants import GAIN
from lab.families.family_results import ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.families.family_results import FamilyResults

MOVES, MOVES_OF_LARGE, LARGE = 0.5, 0.6, ("large_bundles", "sealed_power_law")
HOTTER = 0.5
DISTURBED = 0.8
CLEARLY = 1.1


class Verdict(NamedTuple):
    """Whether a goal was reached in every family.

    Attributes:
        values: what was measured, by family.
        missed: families in which it was not reached.
    """

    goal: str
    values: Mapping[str, str]
    missed: tuple[str, ...]


def verdicts(results: Mapping[str, FamilyResults], other: str) -> list[Verdict]:
    """Return the verdict on each goal, compared with another contestant, by the means of the families."""
    found = []
    for goal, measure in (
        (f"at most {MOVES}x the moves, {MOVES_OF_LARGE}x with large bundles", _moves),
        ("a smaller mean range", _range),
        (f"p99 of the hottest broker at most {HOTTER} points higher", _hottest),
        (f"at most {DISTURBED}x the disturbed load", _disturbed),
    ):
        measured = {name: measure(name, family, other) for name, family in results.items()}
        missed = tuple(name for name, (_, reached) in measured.items() if not reached)
        found.append(Verdict(goal, {name: text for name, (text, _) in measured.items()}, missed))
    return found


def _moves(name: str, family: FamilyResults, other: str) -> tuple[str, bool]:
    multiple = ratio({name: family}, GAIN, "moves_per_day", 1, to=other)
    return f"{multiple:.2f}x", multiple <= (MOVES_OF_LARGE if name in LARGE else MOVES)


def _range(name: str, family: FamilyResults, other: str) -> tuple[str, bool]:
    multiple = ratio({name: family}, GAIN, "range_mean", to=other)
    return f"{multiple:.2f}x", multiple < 1


def _hottest(name: str, family: FamilyResults, other: str) -> tuple[str, bool]:
    points = family.mean(GAIN)["hottest_p99"] - family.mean(other)["hottest_p99"]
    return f"{points:+.1f}", points <= HOTTER


def _disturbed(name: str, family: FamilyResults, other: str) -> tuple[str, bool]:
    multiple = ratio({name: family}, GAIN, "disturbed_per_day", 1, to=other)
    return f"{multiple:.2f}x", multiple <= DISTURBED


def loses_clearly(results: Mapping[str, FamilyResults], control: str) -> bool:
    """Return whether a control is no better than GainShedder in moves and range, and clearly worse in one of them.

    Each is the mean over the families of the ratio to GainShedder.
    """
    multiples = ratio(results, control, "moves_per_day", 1, to=GAIN), ratio(results, control, "range_mean", to=GAIN)
    return min(multiples) >= 1 and max(multiples) >= CLEARLY
