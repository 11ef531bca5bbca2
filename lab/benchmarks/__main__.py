"""Measure: `python -m lab.benchmarks [PART ...]`; without a part, all of them.

Results are kept as `.benchmarks/<part>.json`; progress and tables go to the terminal. docs/performance.md is renewed
once all parts were measured at one commit on one machine. The values hold for that machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib import import_module
from multiprocessing import get_context
from typing import TYPE_CHECKING

from lab.benchmarks import page
from lab.benchmarks.conditions import DIRTY, WAIT_SECONDS, commit, load, machine, wait_until_quiet
from lab.benchmarks.measure import BenchmarkError
from lab.benchmarks.results import PARTS, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST = 3
"""Repetitions of every measurement, at least."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the named parts, and return the exit code: 1 if a part cannot be measured or put on the page."""
    given = _options(arguments)
    everything = not given.part and not given.only
    if everything and DIRTY in commit():
        print("benchmark: commit or stash all changes first: the page shows one commit", flush=True)
        return 1
    patience, measured = 0.0 if given.only else WAIT_SECONDS, True
    for part in given.part or PARTS:
        patience -= wait_until_quiet(patience)
        try:
            # In a process of its own: a part that runs Airflow must set its home before anything imports it.
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as alone:
                alone.submit(_measure, part, given.repetitions, given.only).result()
        except BenchmarkError as error:
            measured = False
            print(f"  {part} was not measured: {error}", flush=True)
    if not given.only:
        try:
            page.renew()
        except BenchmarkError as error:
            print(error, flush=True)
            return int(everything or not measured)
    return int(not measured)


def _measure(part: str, repetitions: int, only: str) -> None:
    begun, at, load_before, sources = time.monotonic(), datetime.now(UTC), load(), commit()
    module = import_module(f"lab.benchmarks.{part}")
    print(f"{part}: {(module.__doc__ or '').partition(': ')[2].splitlines()[0]}", flush=True)
    comparisons = []
    for comparison in module.measure(repetitions, only):
        comparisons.append(comparison)
        print(f"  {time.monotonic() - begun:4.0f} s  {page.line(comparison)}", flush=True)
    if only:
        return
    if commit() != sources:
        raise BenchmarkError(f"the sources changed meanwhile, from {sources} to {commit()}")
    Result(part, sources, machine(), load_before, at, repetitions, comparisons).keep()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none is named")
    parser.add_argument("--repetitions", type=int, default=FEWEST, help=f"repetitions of every measurement ({FEWEST})")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure what has this in its name; keeps nothing")
    given = parser.parse_args(arguments)
    if unknown := set(given.part) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if given.repetitions < FEWEST and not given.only:
        parser.error(f"{given.repetitions} repetitions; at least {FEWEST}, fewer only with --only, which keeps nothing")
    return given


if __name__ == "__main__":
    sys.exit(main())
