"""Run families of sustained load with all strategies.

    python -m lab.families [NAME ...]     # training families; all by default
    python -m lab.families --grid         # AvgShedder's settings, on some of the training families
    python -m lab.families --seal         # held-out families: keeps only the hashes of their results
    python -m lab.families --open         # held-out families again: writes results whose hash is the sealed one

With --page, the results are those that are committed, and the page is drawn from them.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.drawing import ROOT

from lab.experiments import page
from lab.experiments.__main__ import commit_of_sources, refuse_changes
from lab.experiments.scenario import named
from lab.experiments.variants import from_outside
from lab.families import family_page
from lab.families.choosing import GRID_FAMILIES, GRID_SEEDS, best
from lab.families.contestants import contestants, grid, joined_later
from lab.families.family import FOLDER, Family, load_all
from lab.families.family_results import Seal, read_all, write
from lab.families.family_run import run_all
from lab.families.family_tables import of_family
from pulsar_rebalancer.errors import RebalancerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.families.family_results import FamilyResults


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 2 if an argument is wrong, 1 if held-out results differ from the seal."""
    options = _options(arguments)
    commit = commit_of_sources()
    try:
        if options.page:
            refuse_changes(commit)
        families = _chosen(load_all(options.families), options)
        compared = [*grid()] if options.grid else [*contestants(best(read_all(family_page.RESULTS / "grid")))]
        added = [*(() if options.grid else joined_later()), *(from_outside(path) for path in options.strategy)]
    except (RebalancerError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    folder, covered = family_page.RESULTS if options.page else options.output, {variant.name for variant in compared}
    seeds = GRID_SEEDS if options.grid else options.seeds
    failed = 0
    for family in run_all(families, [*compared, *added], seeds=seeds, processes=options.processes, commit=commit):
        if options.seal:
            Seal.of(family.only(covered)).write(folder / "sealed" / f"{family.family}.json")
        elif options.open:
            failed |= _opened(folder, family, covered)
        elif options.grid:
            write(folder / "grid", family)
        else:
            write(folder / "training", family)
            print(of_family(family).markdown(), flush=True)
    if options.page:
        page.draw(family_page.written())
    return failed


def _chosen(families: dict[str, Family], options: argparse.Namespace) -> list[Family]:
    """Return the requested families; without names, all of the requested kind. Opened ones have the sealed seeds.

    Raises:
        ScenarioError: there is no such family of that kind.
    """
    kind = "held-out" if options.seal or options.open else "training"
    there = {name: family for name, family in families.items() if family.kind == kind}
    chosen = named(options.names or (GRID_FAMILIES if options.grid else ()), there, f"{kind} family")
    if not options.open:
        return chosen
    return [family.model_copy(update={"seeds": _sealed(family.name).seeds}) for family in chosen]


def _opened(folder: Path, family: FamilyResults, covered: set[str]) -> int:
    """Write held-out results if their hash is the sealed one; else return 1.

    Args:
        covered: contestants that the hash covers; GainShedder and custom shedders came later.
    """
    sealed = _sealed(family.family)
    if Seal.of(family.only(covered)).sha256 != sealed.sha256:
        print(f"{family.family}: not the results that commit {sealed.commit} sealed", file=sys.stderr)
        return 1
    write(folder / "held_out", family)
    print(f"{family.family}: the results that commit {sealed.commit} sealed", flush=True)
    return 0


def _sealed(family: str) -> Seal:
    return Seal.read(family_page.RESULTS / "sealed" / f"{family}.json")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.families", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="families (default: all)")
    parser.add_argument("--seeds", type=int, help="number of each family's seeds (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument("--strategy", action="append", default=[], help="a custom shedder, package.module:name")
    parser.add_argument("--families", type=Path, default=FOLDER, help="folder of family files")
    parser.add_argument("--output", type=Path, default=ROOT / ".run" / "families", help="folder for results")
    parser.add_argument("--page", action="store_true", help="renew the committed results, then the page")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--grid", action="store_true", help="try AvgShedder's settings on some training families")
    mode.add_argument("--seal", action="store_true", help="run held-out families and write the hash of their results")
    mode.add_argument("--open", action="store_true", help="run them again and write their results if the hash is right")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
