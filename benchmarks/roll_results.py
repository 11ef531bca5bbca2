"""Committed results of `benchmarks.roll`, and the table that docs/rolling-restarts.md shows of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.measure import ROOT
from benchmarks.trials import Trial, Trials, lost, markdown, verdict

ROLL, SIGTERM, STAY = "roll", "SIGTERM", "roll without the return"
MOST_MOVES, LARGEST_SHARE, LARGEST_RANGE, UNTOUCHED_RANGE = 2, 0.5, 10, 30
"""Goals: moves per bundle, gaps as a share of those under SIGTERM, the range after a roll and without the return."""

JUDGED_AFTER_S = 120
"""Seconds after the last restart at which the range is judged: two runs, one a minute."""


@dataclass(frozen=True, kw_only=True)
class RollTrial(Trial):
    """All brokers restarted once.

    Attributes:
        kind: `ROLL`, `SIGTERM` or `STAY`.
        manager: load manager, modular or extensible.
        seconds: from the first step to the end of the last one.
        moves: number of bundles by number of moves.
        again: unloads beyond one for each move.
        gaps: seconds between two acknowledgements, one for each unload: the longest gaps of its bundle's producer.
        ranges: for each run after the last restart that saw a new host sample of every broker, and for the first one
            after `JUDGED_AFTER_S`: seconds since the restart, and points between the highest and the lowest score. Not
            awaited under `SIGTERM`.
    """

    kind: str
    manager: str
    seconds: float
    moves: dict[int, int]
    again: int
    gaps: list[float]
    ranges: list[tuple[float, float]]

    @property
    def last_range(self) -> float:
        """Return the range that is judged."""
        return self.ranges[-1][1]


def table(trials: list[RollTrial]) -> str:
    """Return a Markdown table: a row for each manager and kind, and one for the goals of the manager."""
    lines = [
        ["", "trials", "moves per bundle", "acknowledged", "lost", "longest gap", "99th percentile", "range after"],
        ["---"] * 8,
    ]
    by_manager: dict[str, dict[str, list[RollTrial]]] = defaultdict(lambda: defaultdict(list))
    for trial in sorted(trials, key=lambda trial: (trial.manager != "modular", trial.kind != ROLL)):
        by_manager[trial.manager][trial.kind].append(trial)
    for manager, kinds in by_manager.items():
        lines += [[f"{manager}, {kind}", *_row(of_kind)] for kind, of_kind in kinds.items()]
        lines.append([f"{manager}: goals of a roll", "", *_goals(kinds)])
    return markdown(lines)


def _row(trials: list[RollTrial]) -> list[str]:
    ranges = [trial.last_range for trial in trials if trial.ranges]
    return [
        str(len(trials)),
        _most_moves(trials),
        f"{sum(trial.acked for trial in trials):,}",
        f"{lost(trials):,}",
        f"{_longest(trials):.1f} s",
        f"{_percentile(trials):.1f} s",
        "-".join(f"{each:.0f}" for each in sorted({min(ranges), max(ranges)})) if ranges else "",
    ]


def _goals(kinds: dict[str, list[RollTrial]]) -> list[str]:
    """Return each goal with its verdict; empty where the trials do not show it."""
    roll, sigterm, stay = (kinds.get(kind, []) for kind in (ROLL, SIGTERM, STAY))
    if not roll:
        return [""] * 6
    most = max(count for trial in roll for count in trial.moves)
    after = max(trial.last_range for trial in roll)
    goals = [verdict(f"at most {MOST_MOVES}", most <= MOST_MOVES), "", verdict("none", lost(roll) == 0)]
    for figure in (_longest, _percentile):
        limit = LARGEST_SHARE * figure(sigterm) if sigterm else 0.0
        goals.append(verdict(f"{limit:.1f} s", figure(roll) <= limit) if sigterm else "")
    without = min((trial.last_range for trial in stay), default=None)
    above = (
        "" if without is None else verdict(f", above {UNTOUCHED_RANGE} without the return", without > UNTOUCHED_RANGE)
    )
    return [*goals, verdict(f"below {LARGEST_RANGE}", after < LARGEST_RANGE) + above]


def _most_moves(trials: list[RollTrial]) -> str:
    counts = sorted({count for trial in trials for count in trial.moves})
    return f"{counts[0]}-{counts[-1]}" if len(counts) > 1 else str(counts[0])


def _longest(trials: list[RollTrial]) -> float:
    return max(max(trial.gaps) for trial in trials)


def _percentile(trials: list[RollTrial]) -> float:
    return float(np.percentile([gap for trial in trials for gap in trial.gaps], 99))


TRIALS = Trials(
    RollTrial,
    file=Path(__file__).with_name("roll_results.json"),
    document=ROOT / "docs" / "rolling-restarts.md",
    part="roll",
    table=table,
)


if __name__ == "__main__":
    TRIALS.write(TRIALS.read())
