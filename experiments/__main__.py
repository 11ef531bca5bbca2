"""Run scenarios with every variant and seed, and write tables and a report.

    python -m experiments [NAME ...] [--seeds 10] [--strategy package.module:function] [--output .run/experiments]

Results of a scenario are one file; the report is made of all files in the folder, so scenarios may be run one by one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.report import html
from experiments.results import Results, read, write
from experiments.run import Run, run
from experiments.scenario import FOLDER, Scenario, ScenarioError, load_all
from experiments.tables import document
from experiments.variants import VARIANTS, Variant, from_outside
from pulsar_rebalancer.errors import RebalancerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- results -->\n", "<!-- /results -->\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 2 when something that was named is wrong."""
    options = _options(arguments)
    try:
        scenarios = load_all(options.scenarios)
        unknown = set(options.names) - set(scenarios)
        if unknown:
            raise ScenarioError(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(scenarios)}")
        variants = (*VARIANTS, *map(from_outside, options.strategy))
    except (RebalancerError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    chosen = [scenarios[name] for name in options.names or scenarios]
    results = options.output / "results"
    for each in run_all(chosen, variants, range(1, options.seeds + 1), options.processes):
        write(results, each)
    report(results, scenarios, options.output, options.page)
    return 0


def run_all(
    scenarios: Iterable[Scenario], variants: Sequence[Variant], seeds: Iterable[int], processes: int
) -> Iterable[Results]:
    """Run every scenario with every variant and seed, one process per core; yield each scenario when it is done."""
    seeds, commit, started = tuple(seeds), _commit(), time.monotonic()
    # The shortest first: a month takes longer than all others together.
    in_order = sorted(scenarios, key=lambda scenario: scenario.minutes * scenario.broker_count)
    with ProcessPoolExecutor(processes) as pool:
        begun = [
            (scenario, [pool.submit(run, scenario, variant, seed) for variant in variants for seed in seeds])
            for scenario in in_order
        ]
        for scenario, futures in begun:
            done = [future.result() for future in as_completed(futures)]
            print(f"{time.monotonic() - started:6.0f} s  {scenario.name}: {len(done)} runs", flush=True)
            yield Results(scenario.name, commit, seeds, _by_variant(done, variants))


def report(results: Path, scenarios: dict[str, Scenario], output: Path, page: Path | None) -> None:
    """Write the page and the tables from all results in a folder; tables also into a document, between its marks."""
    found = [read(file) for file in sorted(results.glob("*.json"))]
    # In the order of the files; a scenario that is gone is left out.
    by_name = {each.scenario: each for each in found if each.scenario in scenarios}
    tables = document(by_name, scenarios)
    (output / "report.html").write_text(html(by_name, scenarios), encoding="utf-8")
    (output / "tables.md").write_text(tables + "\n", encoding="utf-8")
    print(f"{output / 'report.html'}: {len(by_name)} scenarios", flush=True)
    if page is not None:
        text = page.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        page.write_text(f"{before}{BEGIN}\n{tables}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def _by_variant(runs: Iterable[Run], variants: Sequence[Variant]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {variant.name: [] for variant in variants}
    for each in sorted(runs, key=lambda each: each.seed):
        found[each.variant].append(each)
    return found


def _commit() -> str:
    """Return the commit of the sources, and whether they were changed since; empty outside a repository."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; all without any")
    parser.add_argument("--seeds", type=_count, default=10, help="how many, from 1 on (10)")
    parser.add_argument("--processes", type=_count, default=os.cpu_count() or 1, help="one per core")
    parser.add_argument("--strategy", action="append", default=[], help="a shedder from outside, package.module:name")
    parser.add_argument("--scenarios", type=Path, default=FOLDER, help="folder of scenario files")
    parser.add_argument("--output", type=Path, default=ROOT / ".run" / "experiments", help="folder for results")
    parser.add_argument("--page", type=Path, help="a document whose tables are renewed, between its marks")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
