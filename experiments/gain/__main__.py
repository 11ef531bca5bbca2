"""Run the proof for GainShedder, in one process.

    python -m experiments.gain parts [FAMILY ...]    # without one of its parts, and controls
    python -m experiments.gain spread [FAMILY ...]   # twenty further seeds
    python -m experiments.gain cases                 # single cases, minute by minute
    python -m experiments.gain traces                # CSV traces through the replay
    python -m experiments.gain draw                  # the page, from the committed results

With --page, the results are those that are committed. The held-out families are opened by `experiments.families`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.drawing import ROOT

from experiments import page
from experiments.__main__ import commit_of_sources, refuse_changes
from experiments.families import family_page
from experiments.families.choosing import best
from experiments.families.contestants import GAIN, contestants, joined_later
from experiments.families.family import load_all
from experiments.families.family_results import FamilyResults, read_all, write
from experiments.families.family_run import run
from experiments.gain import gain_page
from experiments.gain.parts import PARTS, without
from experiments.gain.single_cases import run_cases
from experiments.gain.traces import run_traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.families.family import Family
    from experiments.families.family_results import Figures

PART_FAMILIES = ("daily", "hidden_cost", "unequal", "bursts")
PART_SEEDS = (1, 2, 3, 4, 5)
SPREAD_FAMILIES = ("mix",)
SPREAD_SEEDS = tuple(range(6, 26))
"""Seeds on which nothing was tuned."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _options(arguments)
    commit, folder = commit_of_sources(), gain_page.RESULTS if options.page else options.output
    if options.page:
        refuse_changes(commit)
    families = load_all()
    if options.what == "parts":
        for name in options.families or PART_FAMILIES:
            write(folder / "parts", _parts(families[name], PART_SEEDS[: options.seeds], commit))
    elif options.what == "spread":
        for name in options.families or SPREAD_FAMILIES:
            write(folder / "spread", _spread(families[name], SPREAD_SEEDS[: options.seeds], commit))
    elif options.what == "cases":
        run_cases(folder / "cases", commit)
    elif options.what == "traces":
        run_traces(folder / "traces.json", commit)
    if options.page or options.what == "draw":
        page.draw(gain_page.written())
    return 0


def _parts(family: Family, seeds: tuple[int, ...], commit: str) -> FamilyResults:
    """Return GainShedder and its results without each part."""
    (gain,) = joined_later()
    runs: dict[str, list[Figures]] = {}
    for part in (GAIN, *PARTS):
        with without(part):
            runs[part] = [run(family, gain, seed) for seed in seeds]
        _say(family.name, part)
    return FamilyResults(family.name, commit, seeds, runs)


def _spread(family: Family, seeds: tuple[int, ...], commit: str) -> FamilyResults:
    """Return the results of AvgShedder, its best settings of the grid, and GainShedder."""
    compared = contestants(chosen := best(read_all(family_page.RESULTS / "grid")))[: 1 + len(chosen)]
    runs = {}
    for variant in (*compared, *joined_later()):
        runs[variant.name] = [run(family, variant, seed) for seed in seeds]
        _say(family.name, variant.name)
    return FamilyResults(family.name, commit, seeds, runs)


def _say(family: str, contestant: str) -> None:
    print(f"{time.process_time():6.0f} s of CPU  {family}: {contestant}", flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.gain", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("parts", "spread", "cases", "traces", "draw"))
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--seeds", type=int, help="number of seeds (default: all)")
    parser.add_argument("--output", type=Path, default=ROOT / ".run" / "gain", help="folder for results")
    parser.add_argument("--page", action="store_true", help="renew the committed results, then the page")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
