"""Validate a run in this process as a task does whose parent has Great Expectations loaded.

    python -m benchmarks.validate_once RUN validate|read

`validate` runs the suites, `read` only reads the files that they judge. A small run is validated before the clock
starts, which loads what the parent of tasks has loaded. Prints the seconds.
"""

from __future__ import annotations

import sys
import tempfile
import time

from benchmarks import clusters
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import INPUT
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.validation.suites import validate


def main(address: str, what: str) -> None:
    """Validate or read; prints the seconds that it took."""
    run = StoragePath(address)
    with tempfile.TemporaryDirectory() as folder:
        validate(clusters.make(folder, 4, 10))
    begun = time.monotonic()
    if what == "read":
        for name in INPUT:
            Snapshot(run).table(name)
    else:
        validate(run)
    print(time.monotonic() - begun)


if __name__ == "__main__":
    main(*sys.argv[1:])
