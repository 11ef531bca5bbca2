"""`validate`: the suites over a sample, in a process that has Great Expectations loaded, beside reading the files."""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING

from benchmarks import clusters
from benchmarks.measure import Comparison, Taken, alternately, process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOALS = {(200, 128): (1.0, 2048.0), (10000, 100): (10.0, 2048.0)}
"""Seconds and MiB by size."""

SETTINGS = {"cluster": clusters.FIRING}


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure both sizes."""
    for (brokers, each), (seconds, mib) in GOALS.items():
        name = f"{brokers:,} x {each}"
        if only in name:
            with tempfile.TemporaryDirectory() as root:
                run = clusters.make(root, brokers, each).uri
                subjects = {"validate": _once(run, "validate"), "reading the files": _once(run, "read")}
                yield Comparison(name, alternately(subjects, repetitions), "", seconds, mib)


def _once(run: str, what: str) -> Callable[[], Taken]:
    return lambda: process([sys.executable, "-m", "benchmarks.validate_once", run, what], says=True)
