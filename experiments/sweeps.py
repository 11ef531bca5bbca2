"""Sweep assumptions, one at a time, in the scenarios whose verdicts they may change.

    python -m experiments.sweeps [NAME ...] [--seeds 5] [--page]

The outcome of an assumption is one file. All values and all strategies share the seeds and what is drawn with them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.drawing import ROOT

from experiments import assumption, page, scenario
from experiments.__main__ import commit_of_sources, positive, refuse_changes
from experiments.problems import PROBLEMS
from experiments.results import Results, gathered
from experiments.run import run
from experiments.sweep_results import COMMITTED, Outcome, Sweep, read_all, write
from experiments.sweep_tables import markdown
from experiments.variants import BASELINE, VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from experiments.assumption import Assumption
    from experiments.problems import Problem
    from experiments.scenario import Scenario
    from experiments.variants import Variant


SWEPT = tuple(variant for variant in VARIANTS if variant.name in page.SHOWN or variant.name.startswith(BASELINE))
"""One variant for each shedder, and those without shedding."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit code: 2 if an argument names something that does not exist or is invalid."""
    options = _options(arguments)
    try:
        scenarios, assumptions = scenario.load_all(options.scenarios), assumption.load_all(options.assumptions)
        chosen = scenario.named(options.names, assumptions, "assumption")
        for assumed in assumptions.values():
            assumed.default(scenarios)
        commit = commit_of_sources()
        if options.page:
            refuse_changes(commit)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    folder, started = COMMITTED if options.page else options.output, time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        sweeper = Sweeper(pool, scenarios, SWEPT, range(1, options.seeds + 1), commit)
        for assumed in chosen:
            write(folder, sweeper.sweep(assumed))
            print(f"{time.monotonic() - started:6.0f} s  {assumed.name}", flush=True)
    if options.page:
        page.draw(page.written())
    else:
        tables = options.output / "sweeps.md"
        tables.write_text(markdown(read_all(folder), assumptions) + "\n", encoding="utf-8")
        print(tables, flush=True)
    return 0


class Sweeper:
    """Runs scenarios with each value of an assumption. Runs that several assumptions share are made only once.

    Args:
        scenarios: unchanged scenarios, by name.
    """

    def __init__(
        self,
        pool: ProcessPoolExecutor,
        scenarios: dict[str, Scenario],
        variants: Sequence[Variant],
        seeds: Sequence[int],
        commit: str,
    ) -> None:
        self._pool = pool
        self._scenarios = scenarios
        self._variants = variants
        self._seeds = seeds
        self._commit = commit
        self._results: dict[str, Results] = {}

    def sweep(self, assumed: Assumption) -> Sweep:
        """Return the outcome for each value of an assumption."""
        swept = {name: self._scenarios[name] for name in (*assumed.scenarios, *assumed.figures)}
        problems = [problem for problem in PROBLEMS if swept.keys() & set(problem.scenarios)]
        needed = {name: self._scenarios[name] for problem in problems for name in problem.scenarios}
        changed = {
            label: needed | {name: assumed.with_value(label, given) for name, given in swept.items()}
            for label in assumed.values
        }
        self._run(given for scenarios in changed.values() for given in scenarios.values())
        of_values = [self._of(scenarios) for scenarios in changed.values()]
        variants = [variant.name for variant in self._variants if not variant.name.startswith(BASELINE)]
        return Sweep(
            assumption=assumed.name,
            commit=self._commit,
            seeds=tuple(self._seeds),
            values=tuple(changed),
            default=assumed.default(self._scenarios),
            outcomes={
                variant: {problem.title: _outcomes(problem, of_values, variant) for problem in problems}
                for variant in variants
            },
            figures={
                name: {
                    variant: tuple(results[name].spread(variant, measure).median for results in of_values)
                    for variant in variants
                }
                for name, measure in assumed.figures.items()
            },
        )

    def _run(self, scenarios: Iterable[Scenario]) -> None:
        missing = {given.model_dump_json(): given for given in scenarios}
        begun = {
            key: [self._pool.submit(run, given, *each) for each in product(self._variants_in(given), self._seeds)]
            for key, given in missing.items()
            if key not in self._results
        }
        for key, futures in begun.items():
            runs = [future.result() for future in futures]
            self._results[key] = gathered(missing[key].name, self._commit, runs)

    def _variants_in(self, given: Scenario) -> list[Variant]:
        """Return the variants that a scenario is run with: those without shedding only where a rule needs them."""
        compared = any(problem.compared and given.name in problem.scenarios for problem in PROBLEMS)
        return [variant for variant in self._variants if compared or not variant.name.startswith(BASELINE)]

    def _of(self, scenarios: Mapping[str, Scenario]) -> dict[str, Results]:
        return {name: self._results[given.model_dump_json()] for name, given in scenarios.items()}


def _outcomes(problem: Problem, of_values: Iterable[Mapping[str, Results]], variant: str) -> tuple[Outcome, ...]:
    judgements = (problem.judge(results, variant) for results in of_values)
    return tuple(Outcome(judgement.verdict, judgement.text) for judgement in judgements)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.sweeps", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="assumptions (default: all)")
    parser.add_argument("--seeds", type=positive, default=5, help="number of seeds, starting with 1 (5)")
    parser.add_argument("--processes", type=positive, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument("--scenarios", type=Path, default=scenario.FOLDER, help="folder of scenario files")
    parser.add_argument("--assumptions", type=Path, default=assumption.FOLDER, help="folder of assumption files")
    parser.add_argument("--output", type=Path, default=ROOT / ".run" / "sweeps", help="folder for results")
    parser.add_argument("--page", action="store_true", help="renew the committed results, then the documents")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
