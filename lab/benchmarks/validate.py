"""`validate`: the suites over a sample, in a process that has Great Expectations loaded, next to reading the files.

    python -m lab.benchmarks.validate RUN validate|read

validates a run in this process, as a task does whose parent has Great Expectations loaded: a small run is validated
before the clock starts. `read` only reads the files that the suites judge. Prints the seconds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import TYPE_CHECKING

from lab.benchmarks import clusters
from lab.benchmarks.measure import Comparison, Goal, Taken, alternately, process
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import INPUT
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.suites import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOALS = {(200, 128): (Goal.fixed(1.0), 2048.0), (10000, 100): (Goal.fixed(10.0), 2048.0)}
"""Goals of seconds and MiB by size."""


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure both sizes."""
    for (brokers, each), (goal, mib) in GOALS.items():
        name = f"{brokers:,} x {each}"
        if only in name:
            with tempfile.TemporaryDirectory() as root:
                run = clusters.make(root, brokers, each).uri
                subjects = {"validate": _once(run, "validate"), "reading the files": _once(run, "read")}
                yield Comparison(name, alternately(subjects, repetitions), goal, mib)


def _once(run: str, what: str) -> Callable[[], Taken]:
    return lambda: process([sys.executable, "-m", "lab.benchmarks.validate", run, what], says=True)


def main(address: str, what: str) -> None:
    """Validate or read; prints the seconds that it took."""
    run = StoragePath(address)
    with tempfile.TemporaryDirectory() as folder:
        validate(clusters.make(folder, 4, 10))
    begun = time.monotonic()
    if what == "read":
        for name in INPUT:
            Snapshot(run).read_table(name)
    else:
        validate(run)
    print(time.monotonic() - begun)


if __name__ == "__main__":
    main(*sys.argv[1:])
