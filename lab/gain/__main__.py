"""Run the proof for GainShedder, in one process.

    python -m lab.gain parts [FAMILY ...]    # without one of its parts, and controls
    python -m lab.gain prices [FAMILY ...]   # other values of min_gain
    python -m lab.gain cases                 # single cases, minute by minute

With --page, the results are those that are committed, and docs/evidence.md is drawn from them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scripts.drawing import ROOT

from lab import evidence
from lab.experiments.__main__ import commit_of_sources, refuse_changes
from lab.families.contestants import GAIN, contestants, priced
from lab.families.family import load_all
from lab.families.family_results import FamilyResults, write
from lab.families.family_run import run
from lab.gain import gain_page
from lab.gain.parts import PARTS, without
from lab.gain.single_cases import run_cases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lab.experiments.variants import Variant
    from lab.families.family import Family
    from lab.families.family_results import Values

PRICES = (10, 20, 30, 45, 60, 80)
"""Values of `min_gain`."""


class _Question(NamedTuple):
    """What is run, and on what; without names of families, on all training families.

    Attributes:
        contestants: by name, which says what part is taken away, if any.
    """

    families: tuple[str, ...]
    seeds: tuple[int, ...]
    contestants: Mapping[str, Variant]


_ALL = contestants()
QUESTIONS = {
    "parts": _Question(
        ("daily", "hidden_cost", "unequal", "bursts"), (1, 2, 3, 4, 5), dict.fromkeys((GAIN, *PARTS), _ALL[GAIN])
    ),
    "prices": _Question((), (1, 2, 3, 4, 5), {variant.name: variant for variant in map(priced, PRICES)}),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _options(arguments)
    commit, folder = commit_of_sources(), gain_page.RESULTS if options.page else options.output
    if options.page:
        refuse_changes(commit)
    families = load_all()
    if question := QUESTIONS.get(options.what):
        training = [name for name, family in families.items() if family.kind == "training"]
        for name in options.families or question.families or training:
            seeds = question.seeds[: options.seeds]
            write(folder / options.what, _compared(families[name], question.contestants, seeds, commit))
    else:
        run_cases(folder / "cases", commit)
    if options.page:
        evidence.draw()
    return 0


def _compared(family: Family, variants: Mapping[str, Variant], seeds: tuple[int, ...], commit: str) -> FamilyResults:
    """Return the results of each contestant."""
    runs: dict[str, list[Values]] = {}
    for name, variant in variants.items():
        with without(name):
            runs[name] = [run(family, variant, seed) for seed in seeds]
        print(f"{time.process_time():6.0f} s of CPU  {family.name}: {name}", flush=True)
    return FamilyResults(family.name, commit, seeds, runs)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.gain", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=(*QUESTIONS, "cases"))
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--seeds", type=int, help="number of seeds (default: all)")
    parser.add_argument("--output", type=Path, default=ROOT / ".run" / "gain", help="folder for results")
    parser.add_argument("--page", action="store_true", help="renew the committed results, then docs/evidence.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
