"""Measure: `python -m benchmarks [PART ...]`; without a part, all of them.

Results go to `.benchmarks/<part>.json`, progress and tables to the terminal. Figures hold for one machine: compare what
was measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from benchmarks.measure import ROOT, BenchmarkError, commit, document, machine
from benchmarks.tables import line

PARTS = {"interval": 5, "decide": 3, "steps": 3, "unload": 3, "collect": 3, "validate": 3, "browser": 5, "replay": 2}
"""Parts, and how often each measurement is repeated."""

FOLDER = ROOT / ".benchmarks"


def main() -> int:
    """Measure the parts that are named; 1 when one cannot be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none is named")
    parser.add_argument("--repetitions", type=int, help="of every measurement")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure what has this in its name; keeps nothing")
    given = parser.parse_args()
    if unknown := set(given.part) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return max([_measured(part, given.repetitions or PARTS[part], given.only) for part in given.part or PARTS])


def _measured(part: str, repetitions: int, only: str) -> int:
    begun = time.monotonic()
    about: dict[str, Any] = {"part": part, "commit": commit(), "machine": machine(), "repetitions": repetitions}
    about["at"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    module = import_module(f"benchmarks.{part}")
    print(f"{part}: {(module.__doc__ or '').partition(': ')[2].splitlines()[0]}", flush=True)
    comparisons = []
    try:
        for comparison in module.measure(repetitions, only):
            comparisons.append(comparison)
            print(f"  {time.monotonic() - begun:4.0f} s  {line(comparison)}", flush=True)
    except BenchmarkError as error:
        print(f"  {part} was not measured: {error}", flush=True)
        return 1
    if only:
        return 0
    FOLDER.mkdir(exist_ok=True)
    about |= {"settings": module.SETTINGS, "comparisons": document(comparisons)}
    (FOLDER / f"{part}.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
