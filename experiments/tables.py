"""The results as rows of text, for the report and for docs/experiments.md."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from experiments.problems import PROBLEMS, PUBLISHED, judge
from experiments.variants import BASELINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.problems import Judgement
    from experiments.results import Results, Spread
    from experiments.scenario import Scenario

MEASURES = {
    "unload_events": "unload events",
    "bundles_moved": "bundles moved",
    "disturbed": "disturbed, MiB/s",
    "settled_after": "settled after, min",
    "range_mean": "range, points",
    "range_end": "range at the end",
    "std_mean": "std, points",
    "std_end": "std at the end",
    "client_seconds": "client-seconds without a broker",
    "minutes_above_80": "minutes above 80 %",
    "hot_placements": "placed on a hot broker",
    "traffic_ratio_end": "busiest by idlest at the end",
}
"""Title of each measure that the tables show."""


class Table(NamedTuple):
    """A head and rows of text."""

    head: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return it as Markdown."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def of_scenario(results: Results) -> Table:
    """Return the measures of each variant: the median over the seeds, with the least and the largest."""
    rows = [[variant, *(_text(results.spread(variant, name)) for name in MEASURES)] for variant in results.runs]
    return Table(["", *MEASURES.values()], rows)


def of_problems(results: Mapping[str, Results], variants: Sequence[str]) -> Table:
    """Return the five problems: measured by the stated rules, and below it what was published."""
    rows = []
    for variant in variants:
        if variant.startswith(BASELINE):
            continue
        rows.append([variant, *map(_verdict, judge(results, variant))])
        if variant in PUBLISHED:
            rows.append(["published", *PUBLISHED[variant]])
    return Table(["", *(problem.title for problem in PROBLEMS)], rows)


def document(results: Mapping[str, Results], scenarios: Mapping[str, Scenario]) -> str:
    """Return all tables as Markdown."""
    variants = list(dict.fromkeys(name for each in results.values() for name in each.runs))
    parts = ["### The five problems", of_problems(results, variants).markdown()]
    parts.append("\n".join(f"* **{problem.title}**: {problem.rule}" for problem in PROBLEMS))
    for name, each in results.items():
        scenario = scenarios[name]
        parts += [f"### {scenario.title}", f"`{name}`, seeds {seeds(each)}. {scenario.about}"]
        parts.append(of_scenario(each).markdown())
        if scenario.published:
            parts.append("Published: " + "; ".join(f"{who}: {what}" for who, what in scenario.published.items()) + ".")
    return "\n\n".join(parts)


def seeds(results: Results) -> str:
    """Return the seeds in few words."""
    found = results.seeds
    whole = found == tuple(range(found[0], found[-1] + 1))
    return f"{found[0]} to {found[-1]}" if whole and len(found) > 1 else ", ".join(map(str, found))


def _verdict(judgement: Judgement | None) -> str:
    if judgement is None:
        return "not run"
    overall = "" if judgement.overall is None else f"; over all {judgement.overall:.3g} %"
    return f"{judgement.verdict} ({judgement.text}{overall}; {judgement.flip})"


def _text(spread: Spread) -> str:
    text = "never" if spread.median is None else _figure(spread.median)
    if not spread.known:
        return text
    beside = list(dict.fromkeys(map(_figure, (spread.known[0], spread.known[-1]))))
    words = [" to ".join(beside)] if len(beside) > 1 or spread.missing else []
    words += [f"{spread.missing} never"] if spread.missing else []
    return f"{text} ({', '.join(words)})" if words else text


def _figure(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.1f}"
