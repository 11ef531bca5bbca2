"""Run scenarios with every variant and seed, and write tables of the results.

    python -m lab.experiments [NAME ...] [--seeds 10] [--strategy package.module:function] [--page | --draw]

Results of a scenario are one file. The report, or docs/evidence.md, is drawn from all files in the folder, so scenarios
may be run one by one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.drawing import ROOT

from lab import evidence
from lab.experiments import page
from lab.experiments.results import Results, gathered, read_all, write
from lab.experiments.run import StrategyError, run
from lab.experiments.scenario import FOLDER, Scenario, load_all, named
from lab.experiments.variants import VARIANTS, Variant, from_outside
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lab.experiments.run import Run

CHANGED = " with changes"
"""After a commit whose sources were changed since."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit code: 2 if an argument names something that does not exist or is invalid."""
    options = _options(arguments)
    if options.draw:
        evidence.draw()
        return 0
    commit = commit_of_sources()
    try:
        scenarios = load_all(options.scenarios)
        chosen = named(options.names, scenarios, "scenario")
        variants = (*VARIANTS, *map(from_outside, options.strategy))
        if options.page:
            refuse_changes(commit)
    except (RebalancerError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    folder = page.COMMITTED if options.page else options.output / "results"
    for results in run_all(chosen, variants, range(1, options.seeds + 1), options.processes, commit):
        write(folder, results)
    if options.page:
        evidence.draw()
    else:
        report = options.output / "report.md"
        report.write_text(page.report(read_all(folder, scenarios), scenarios), encoding="utf-8")
        print(report, flush=True)
    return 0


def run_all(
    scenarios: Iterable[Scenario], variants: Sequence[Variant], seeds: Sequence[int], processes: int, commit: str
) -> Iterable[Results]:
    """Run every scenario with every variant and seed, in several processes; yield each scenario when it is done.

    A variant whose strategy raises an exception is named and left out of that scenario.
    """
    started = time.monotonic()
    # The shortest first: a month takes longer than all others together.
    in_order = sorted(scenarios, key=lambda scenario: scenario.minutes * scenario.broker_count)
    with ProcessPoolExecutor(processes) as pool:
        begun = [
            (scenario, variant.name, [pool.submit(run, scenario, variant, seed) for seed in seeds])
            for scenario in in_order
            for variant in variants
        ]
        for scenario, of_variants in groupby(begun, key=itemgetter(0)):
            runs: list[Run] = []
            for _, variant, futures in of_variants:
                try:
                    runs += [future.result() for future in futures]
                except StrategyError as error:
                    print(f"{scenario.name}, {variant}: {error}", file=sys.stderr, flush=True)
            print(f"{time.monotonic() - started:6.0f} s  {scenario.name}: {number_of(len(runs), 'run')}", flush=True)
            yield gathered(scenario.name, commit, runs)


def commit_of_sources() -> str:
    """Return the commit of the sources, and whether they were changed since; empty outside a repository."""
    try:
        changed = _git("status", "--porcelain", "--", ".", *(f":!{name}" for name in page.DRAWN))
        return _git("rev-parse", "--short=12", "HEAD") + (CHANGED if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def refuse_changes(commit: str) -> None:
    """Refuse to write committed results if the sources have uncommitted changes.

    Raises:
        ValueError: the sources have uncommitted changes, or there is no repository.
    """
    if not commit or commit.endswith(CHANGED):
        raise ValueError("--page commits results, and results name the commit of their sources: commit these first")


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.experiments", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios (default: all)")
    parser.add_argument("--seeds", type=positive, default=10, help="number of seeds, starting with 1 (10)")
    parser.add_argument("--processes", type=positive, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument("--strategy", action="append", default=[], help="a custom shedder, package.module:name")
    parser.add_argument("--scenarios", type=Path, default=FOLDER, help="folder of scenario files")
    parser.add_argument("--output", type=Path, default=ROOT / ".run" / "experiments", help="folder for results")
    documents = parser.add_mutually_exclusive_group()
    documents.add_argument("--page", action="store_true", help="renew the committed results, then docs/evidence.md")
    documents.add_argument("--draw", action="store_true", help="draw docs/evidence.md from the committed results")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    """Return the value of an argument that must be a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
