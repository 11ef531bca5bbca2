"""Run families of sustained load with all strategies: `python -m lab.families [NAME ...]`.

Without names, all training families. With --page, the results are those that are committed, and docs/evidence.md is
drawn from them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.drawing import ROOT

from lab import evidence
from lab.experiments.__main__ import commit_of_sources, positive, refuse_changes
from lab.experiments.scenario import named
from lab.experiments.variants import from_outside
from lab.families import family_page
from lab.families.contestants import contestants
from lab.families.family import FOLDER, load_all
from lab.families.family_results import FamilyResults, write
from lab.families.family_run import run
from pulsar_rebalancer.errors import RebalancerError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 2 if an argument is wrong."""
    options = _options(arguments)
    commit, started = commit_of_sources(), time.monotonic()
    try:
        if options.page:
            refuse_changes(commit)
        families = load_all(options.families)
        training = [name for name, family in families.items() if family.kind == "training"]
        chosen = named(options.names or training, families, "family")
        own = {path: from_outside(path) for path in options.strategy}
    except (RebalancerError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    folder = family_page.RESULTS if options.page else options.output
    with ProcessPoolExecutor(options.processes) as pool:
        begun = {
            (family.name, name): [pool.submit(run, family, variant, seed) for seed in family.seeds[: options.seeds]]
            for family in chosen
            for name, variant in (contestants(family.kind) | own).items()
        }
        for family in chosen:
            runs = {
                name: [future.result() for future in seeds] for (of, name), seeds in begun.items() if of == family.name
            }
            results = FamilyResults(family.name, commit, family.seeds[: options.seeds], runs)
            write(folder / family.kind, results)
            print(f"{time.monotonic() - started:6.0f} s  {family.name}", flush=True)
            print(family_page.of_family(results).markdown(), flush=True)
    if options.page:
        evidence.draw()
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.families", description=__doc__.partition(":")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="families (default: all training families)")
    parser.add_argument("--seeds", type=positive, help="number of each family's seeds (default: all)")
    parser.add_argument("--processes", type=positive, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument("--strategy", action="append", default=[], help="a custom shedder, package.module:name")
    parser.add_argument("--families", type=Path, default=FOLDER, help="folder of family files")
    parser.add_argument("--output", type=Path, default=ROOT / ".run" / "families", help="folder for results")
    parser.add_argument("--page", action="store_true", help="renew the committed results, then docs/evidence.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
