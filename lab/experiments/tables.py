"""The results as rows of text."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from scripts import markdown

from lab.experiments.problems import PROBLEMS, PUBLISHED, judge
from lab.experiments.variants import BASELINE

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    from lab.experiments.problems import Judgement
    from lab.experiments.results import Results, Spread


class Column(NamedTuple):
    """A measure in the tables."""

    title: str
    meaning: str


MEASURES = {
    "unload_events": Column("unload events", "minutes in which the strategy unloaded anything"),
    "bundles_moved": Column("bundles moved", "total"),
    "disturbed": Column("disturbed, MiB/s", "total throughput of the moved bundles when they moved, in plus out"),
    "settled_after": Column(
        "settled after, min",
        "minutes from the disturbance to the last unload; *never*: bundles still moved in the last ten minutes",
    ),
    "range_mean": Column(
        "range, points",
        "largest minus least true score of the brokers: mean over time from the disturbance on",
    ),
    "range_end": Column("range at the end", "the same over the last ten minutes"),
    "std_mean": Column("std, points", "standard deviation of the true scores: mean over time from the disturbance on"),
    "std_end": Column("std at the end", "the same over the last ten minutes"),
    "client_seconds": Column(
        "client-seconds without a broker",
        "seconds in which a bundle had no broker, times its clients, added up; includes bundles whose broker stopped",
    ),
    "minutes_above_80": Column("minutes above 80 %", "minutes in which a broker's true score was above 80"),
    "hot_placements": Column(
        "placed on a hot broker",
        "bundles that went to a broker 5 points or more above the mean, including those that lost their broker, "
        "excluding those that come back in a swap that the strategy declares",
    ),
    "traffic_ratio_end": Column(
        "busiest by idlest at the end",
        "throughput of the busiest broker divided by that of the idlest, mean over the last ten minutes",
    ),
}
"""Each measure that the tables show."""


class Table(NamedTuple):
    """A head and rows of text; a cell may have several lines."""

    head: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return it as Markdown; of several lines in a cell the first is bold."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return markdown.table([*map(_cell, line)] for line in lines)


def of_scenario(results: Results) -> Table:
    """Return the measures of each variant: the median over the seeds, with the least and the largest."""
    cells = {variant: tuple(_text(results.spread(variant, name)) for name in MEASURES) for variant in results.measures}
    rows = [[also(variants), *cells[variants[0]]] for variants in alike(cells)]
    return Table(["", *(column.title for column in MEASURES.values())], rows)


def of_problems(results: Mapping[str, Results], shown: Collection[str] = ()) -> Table:
    """Return the judgements of the five problems, and what was published if it differs.

    Args:
        shown: the variants; empty: all.
    """
    names = dict.fromkeys(name for scenario in results.values() for name in scenario.measures)
    variants = [name for name in names if not name.startswith(BASELINE) and (not shown or name in shown)]
    cells = {
        variant: tuple(map(_verdict, judge(results, variant), PUBLISHED.get(variant, (None,) * len(PROBLEMS))))
        for variant in variants
    }
    rows = [[also(map(short, same)), *cells[same[0]]] for same in alike(cells)]
    return Table(["", *(problem.title for problem in PROBLEMS)], rows)


def of_measures(measures: Mapping[str, Column] = MEASURES) -> Table:
    """Return the meaning of each measure."""
    return Table(["measure", "meaning"], [[*column] for column in measures.values()])


def alike(values: Mapping[str, Hashable]) -> list[list[str]]:
    """Return the variants in groups of the same values."""
    groups: dict[Hashable, list[str]] = {}
    for variant, row in values.items():
        groups.setdefault(row, []).append(variant)
    return list(groups.values())


def also(variants: Iterable[str]) -> str:
    """Return the names of variants with the same values."""
    first, *others = variants
    beginning = f"{re.split(', | [+] ', first)[0]}, "
    names = "; ".join(other.removeprefix(beginning) for other in others)
    return f"{first} (also: {names})" if others else first


def short(variant: str) -> str:
    """Return the name of a variant without its placement."""
    return variant.partition(" + ")[0]


def seeds(results: Results) -> str:
    """Return the seeds as short text."""
    numbers = results.seeds
    whole = numbers == tuple(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]} to {numbers[-1]}" if whole and len(numbers) > 1 else ", ".join(map(str, numbers))


def _cell(text: str) -> str:
    first, *others = text.split("\n")
    return "<br>".join([f"**{first}**", *others]) if others else first


def _verdict(judgement: Judgement | None, published: str | None) -> str:
    if judgement is None:
        return "not run"
    differs = f"\npublished: {published}" if published not in (None, judgement.verdict) else ""
    return f"{judgement.verdict}\n{judgement.text}{differs}"


def _text(spread: Spread) -> str:
    counted = all(isinstance(value, int) for value in spread.known)
    text = "never" if spread.median is None else value(spread.median, counted=counted)
    if not spread.known:
        return text
    ends = list(dict.fromkeys(value(end, counted=counted) for end in (spread.known[0], spread.known[-1])))
    words = [" to ".join(ends)] if len(ends) > 1 or spread.missing else []
    words += [f"{spread.missing} never"] if spread.missing else []
    return f"{text} ({', '.join(words)})" if words else text


def value(value: float, *, counted: bool = True) -> str:
    """Return a value with a decimal only if it is below 100 and, if `counted`, not whole."""
    if math.isinf(value):
        return "∞"
    whole = value == 0 or abs(value) >= 100 or (counted and value == int(value))
    return f"{value:.0f}" if whole else f"{value:.1f}"
