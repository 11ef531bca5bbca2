"""Write the kept results into docs/performance.md: `python -m lab.benchmarks.page`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scripts import markdown

from lab.benchmarks.conditions import QUIET
from lab.benchmarks.measure import ROOT, BenchmarkError, median, peak
from lab.benchmarks.results import PARTS, of_one_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.benchmarks.measure import Comparison, Taken
    from lab.benchmarks.results import Result

PAGE = ROOT / "docs" / "performance.md"
CONDITIONS = "conditions"
"""The markers of what all parts share."""

SHOWN = tuple(part for part in PARTS if part != "steps")
"""Parts on the page; the others are profiles for the terminal."""


def renew() -> None:
    """Renew the page.

    Raises:
        BenchmarkError: the results are not of one commit and one machine; the page is as before.
    """
    results = of_one_run()
    text = renewed(PAGE.read_text(encoding="utf-8"), CONDITIONS, conditions(results))
    for result in results:
        if result.part in SHOWN:
            text = renewed(text, result.part, table(result.comparisons))
    PAGE.write_text(text, encoding="utf-8")


def renewed(text: str, part: str, content: str) -> str:
    """Return the page with this between the markers of the part."""
    return markdown.between(f"benchmark-{part}", content, text)


def table(comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown table: seconds, those of the yardsticks, memory, remarks."""
    lines = [["", "s", "compared with, s", "peak memory, MiB", ""]]
    for comparison in comparisons:
        (_, own), *others = comparison.taken.items()
        beside = ", ".join(f"{name} {middle(taken)}" for name, taken in others)
        lines.append([comparison.name, value(own), beside, memory(own), comparison.remark])
    filled = [n for n in range(len(lines[0])) if n < 2 or any(line[n] for line in lines[1:])]
    lines = [[line[n] for n in filled] for line in lines]
    lines.insert(1, ["---"] * len(filled))
    return markdown.table(lines)


def conditions(results: Sequence[Result]) -> str:
    """Return where all parts were measured, and which of them under load."""
    loaded = [f"{result.part} ({result.load:.1f})" for result in results if result.load >= QUIET]
    under = f"\n\n**Measured under load, so its values are too large:** {', '.join(loaded)}." * bool(loaded)
    return f"Measured on {results[0].machine}.{under}"


def value(taken: Sequence[Taken]) -> str:
    """Return median seconds and spread, such as `9.8 (9.7-10.1)`."""
    seconds = [one.seconds for one in taken]
    if len(seconds) == 1:
        return middle(taken)
    digits = _digits(taken)
    return f"{middle(taken)} ({min(seconds):.{digits}f}-{max(seconds):.{digits}f})"


def middle(taken: Sequence[Taken]) -> str:
    """Return median seconds, such as `9.8`."""
    return f"{median(taken):.{_digits(taken)}f}"


def _digits(taken: Sequence[Taken]) -> int:
    return 1 if median(taken) >= 1 else 2


def memory(taken: Sequence[Taken]) -> str:
    """Return the peak memory in MiB; empty where none was measured."""
    return f"{peak(taken):,.0f}" if peak(taken) else ""


def verdict(comparison: Comparison) -> str:
    """Return the goals next to the values, and whether they are met; empty without a goal."""
    first = next(iter(comparison.taken.values()))
    parts = []
    if (goal := comparison.goal) is not None:
        words = f"{goal.words}: " if goal.words else ""
        parts.append(f"{words}{goal.seconds:.1f} s {goal.verdict(first)}")
    if comparison.goal_mib is not None:
        parts.append(f"{comparison.goal_mib:,.0f} MiB {'met' if peak(first) <= comparison.goal_mib else 'missed'}")
    return ", ".join(parts)


def line(comparison: Comparison) -> str:
    """Return a comparison in one line of the terminal."""
    parts = []
    for name, taken in comparison.taken.items():
        parts.append(f"{name} {value(taken)} s" + (f", {memory(taken)} MiB" if memory(taken) else ""))
    parts += [f"{name} {value}" for name, value in comparison.notes.items()]
    parts += filter(None, [comparison.remark, verdict(comparison)])
    return f"{comparison.name}: {'; '.join(parts)}"


if __name__ == "__main__":
    try:
        renew()
    except BenchmarkError as error:
        sys.exit(str(error))
