"""Committed blocks of `benchmarks.gain_proof`, and the table that docs/gain-shedder.md shows of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scripts import markdown

from benchmarks.gain_recording import AVG, GAIN, replayed
from benchmarks.measure import ROOT
from benchmarks.trials import Trial, Trials, lost, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.replay.variant_outcome import Figures

NONE = "without shedding"
LEAST_MINUTES, LEAST_RANGE = 180, 30
"""What a comparison asks for: minutes of each strategy, and the mean range without shedding."""


COLUMNS = (
    *("blocks", "minutes", "moves", "mean range", "95th percentile", "hottest"),
    *("acknowledged", "lost", "longest gap", "with the restart"),
)


@dataclass(frozen=True, kw_only=True)
class Block(Trial):
    """The script of load, played once.

    Attributes:
        strategy: `NONE`, `AVG` or `GAIN`.
        runs: runs that succeeded.
        moves: bundles that the strategy unloaded.
        again: unloads beyond one for each move.
        ranges: points between the highest and the lowest score, for each run in which all brokers took part.
        hottest: highest score, percent, for each of these runs.
        gap: longest time between two acknowledgements of a producer, seconds; of those whose bundle was on the broker
            that was restarted, `gap_of_restarted`.
    """

    strategy: str
    runs: int
    moves: int
    again: int
    ranges: list[float]
    hottest: list[float]
    gap: float
    gap_of_restarted: float


def table(blocks: list[Block], replays: Iterable[Figures]) -> str:
    """Return a Markdown table: a row for each strategy, for what the comparison asks for, and for each replay."""
    lines = [["", *COLUMNS], ["---"] * (1 + len(COLUMNS))]
    of = {strategy: [block for block in blocks if block.strategy == strategy] for strategy in (NONE, AVG, GAIN)}
    lines += [[strategy, *_row(own)] for strategy, own in of.items() if own]
    lines += [["asked for", *_goals(of)]] if blocks else []
    for replay in replays:
        figures = [str(replay.moved), f"{replay.range_mean:.1f}", f"{replay.range_p95:.1f}"]
        lines.append([f"{replay.variant}, replayed", "", "", *figures, *[""] * 5])
    return markdown.table(lines)


def _row(blocks: list[Block]) -> list[str]:
    ranges = _ranges(blocks)
    moves = [block.moves for block in blocks]
    return [
        str(len(blocks)),
        str(_minutes(blocks)),
        f"{sum(moves)} ({', '.join(map(str, moves))})" if len(moves) > 1 else str(moves[0]),
        f"{np.mean(ranges):.1f}",
        f"{np.percentile(ranges, 95):.1f}",
        f"{max(max(block.hottest) for block in blocks):.0f}",
        f"{sum(block.acked for block in blocks):,}",
        f"{lost(blocks):,}",
        f"{max(block.gap for block in blocks):.1f} s",
        f"{max(block.gap_of_restarted for block in blocks):.1f} s",
    ]


def _goals(of: dict[str, list[Block]]) -> list[str]:
    """Return each demand with its verdict; empty where the blocks do not show it."""
    fewest = min(_minutes(of[AVG]), _minutes(of[GAIN]))
    without = _ranges(of[NONE])
    least = "at least "
    return [
        "",
        verdict(f"{least}{LEAST_MINUTES} of each strategy", fewest >= LEAST_MINUTES),
        "",
        verdict(f"{least}{LEAST_RANGE} without shedding", float(np.mean(without)) >= LEAST_RANGE) if without else "",
        *[""] * 3,
        verdict("none", lost(block for own in of.values() for block in own) == 0),
        *[""] * 2,
    ]


def _minutes(blocks: list[Block]) -> int:
    return sum(int(block.settings["minutes"]) for block in blocks)


def _ranges(blocks: list[Block]) -> list[float]:
    return [each for block in blocks for each in block.ranges]


TRIALS = Trials(
    Block,
    file=Path(__file__).with_name("gain_results.json"),
    document=ROOT / "docs" / "gain-shedder.md",
    part="gain",
    table=lambda blocks: table(blocks, replayed()),
)


if __name__ == "__main__":
    TRIALS.write(TRIALS.read())
