"""Figures of comparisons as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.measure import median, peak

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Comparison, Taken


def figure(taken: Sequence[Taken]) -> str:
    """Return median seconds and spread, such as `9.8 (9.7-10.1)`."""
    seconds = [each.seconds for each in taken]
    digits = 1 if median(taken) >= 1 else 2
    if len(seconds) == 1:
        return f"{seconds[0]:.{digits}f}"
    return f"{median(taken):.{digits}f} ({min(seconds):.{digits}f}-{max(seconds):.{digits}f})"


def memory(taken: Sequence[Taken]) -> str:
    """Return the peak memory in MiB; empty where none was measured."""
    return f"{peak(taken):,.0f}" if peak(taken) else ""


def verdict(comparison: Comparison) -> str:
    """Return the goal beside the figures, and whether they reach it; empty without a goal."""
    first = next(iter(comparison.taken.values()), [])
    parts = []
    if comparison.goal_seconds is not None:
        reached = median(first) <= comparison.goal_seconds
        words = f"{comparison.goal}: " if comparison.goal else ""
        parts.append(f"{words}{comparison.goal_seconds:.1f} s {'reached' if reached else 'not reached'}")
    if comparison.goal_mib is not None:
        reached = peak(first) <= comparison.goal_mib
        parts.append(f"{comparison.goal_mib:,.0f} MiB {'reached' if reached else 'not reached'}")
    return ", ".join(parts)


def line(comparison: Comparison) -> str:
    """Return a comparison in one line of the terminal."""
    parts = []
    for name, taken in comparison.taken.items():
        parts.append(f"{name} {figure(taken)} s" + (f", {memory(taken)} MiB" if memory(taken) else ""))
    parts += [f"{name} {value}" for name, value in comparison.notes.items()] + [comparison.remark] * bool(
        comparison.remark
    )
    goal = verdict(comparison)
    return f"{comparison.name}: {'; '.join(parts)}" + (f"; goal {goal}" if goal else "")
