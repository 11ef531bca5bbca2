"""`steps`: where the seconds of decide go, step by step, from a clock in it."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lab.benchmarks import clusters
from lab.benchmarks.decide import forget
from lab.benchmarks.measure import ROOT, Comparison, Taken
from lab.benchmarks.spark import submit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_rebalancer.storage.path import StoragePath

SIZES = ((200, 128), (10000, 100))


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure the steps at both sizes; a step is a line, a size is a column."""
    by_size = {}
    for brokers, each in SIZES:
        if only in (size := f"{brokers:,} x {each}"):
            with tempfile.TemporaryDirectory() as root:
                run = clusters.make(root, brokers, each)
                by_size[size] = [_once(root, run) for _ in range(repetitions)]
    for step in next(iter(by_size.values()))[0] if by_size else ():
        yield Comparison(step, {size: [Taken(steps[step]) for steps in runs] for size, runs in by_size.items()})


def _once(root: str, run: StoragePath) -> dict[str, float]:
    forget(root)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "times.json"
        decide = submit(str(ROOT / "lab" / "benchmarks" / "steps_once.py"), root, run.uri, str(file))
        begun = time.time()
        decide()
        ended, times = time.time(), json.loads(file.read_text(encoding="utf-8"))
    return {
        "Java and Python start": times["begun"] - begun,
        "Spark's session, during the imports of Python": times["session"] - times["begun"],
        "Python calling Java, without the queries": times["calls"],
        "query: means of all bundles": times["queries"],
        "after the last query: walk, caps, files, hash": times["ended"] - times["queried"],
        "Java stops": ended - times["ended"],
        "whole process": ended - begun,
    }
