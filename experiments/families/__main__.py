"""Run families of sustained load with all strategies.

python -m experiments.families [NAME ...]     # training families; all without any
python -m experiments.families --grid         # AvgShedder's settings, on some of the training families
python -m experiments.families --seal         # held-out families: shows and writes only the hash of their results
python -m experiments.families --open         # held-out families again: writes their results if the hash is right
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.__main__ import commit_of_sources
from experiments.families.choosing import GRID_FAMILIES, GRID_SEEDS, best
from experiments.families.contestants import contestants, grid
from experiments.families.family import FOLDER, Family, load_all
from experiments.families.family_results import Seal, read_all, write
from experiments.families.family_run import run_all
from experiments.scenario import ScenarioError
from experiments.variants import from_outside
from pulsar_rebalancer.errors import RebalancerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.families.family_results import FamilyResults

RESULTS = FOLDER.parent / "results" / "families"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 2 when something that was named is wrong, 1 when held-out results are not as sealed."""
    options = _options(arguments)
    try:
        families = _chosen(load_all(options.families), options)
        compared = [*grid()] if options.grid else [*contestants(best(read_all(options.results / "grid")))]
        added = [from_outside(path) for path in options.strategy]
    except (RebalancerError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    seeds = GRID_SEEDS if options.grid else options.seeds
    results = run_all(
        families, [*compared, *added], seeds=seeds, processes=options.processes, commit=commit_of_sources()
    )
    covered = {variant.name for variant in compared}
    if options.open:
        return max([_opened(options.results, family, covered) for family in results])
    for family in results:
        if options.seal:
            Seal.of(family.only(covered)).write(options.results / "sealed" / f"{family.family}.json")
        else:
            write(options.results / ("grid" if options.grid else "training"), family)
    return 0


def _chosen(families: dict[str, Family], options: argparse.Namespace) -> list[Family]:
    """Return the families that are asked for: without names, all of the right kind.

    Raises:
        ScenarioError: there is no such family of that kind.
    """
    kind = "held-out" if options.seal or options.open else "training"
    there = {name: family for name, family in families.items() if family.kind == kind}
    unknown = set(options.names) - set(there)
    if unknown:
        raise ScenarioError(f"no {kind} family {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    return [there[name] for name in options.names or (GRID_FAMILIES if options.grid else there)]


def _opened(results: Path, family: FamilyResults, covered: set[str]) -> int:
    """Write held-out results if their hash is the sealed one; else return 1.

    Args:
        covered: contestants that the hash covers; shedders from outside came later.
    """
    sealed = Seal.read(results / "sealed" / f"{family.family}.json")
    if Seal.of(family.only(covered)).sha256 != sealed.sha256:
        print(f"{family.family}: not the results that commit {sealed.commit} sealed", file=sys.stderr)
        return 1
    write(results / "held_out", family)
    print(f"{family.family}: the results that commit {sealed.commit} sealed")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.families", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="families; all without any")
    parser.add_argument("--seeds", type=int, help="how many of each family's; all without it")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="one per core")
    parser.add_argument("--strategy", action="append", default=[], help="a shedder from outside, package.module:name")
    parser.add_argument("--families", type=Path, default=FOLDER, help="folder of family files")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for results")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--grid", action="store_true", help="try AvgShedder's settings on some training families")
    mode.add_argument("--seal", action="store_true", help="run held-out families and write the hash of their results")
    mode.add_argument("--open", action="store_true", help="run them again and write their results if the hash is right")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
