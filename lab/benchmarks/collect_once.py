"""Collect a cluster in this process and say how long that took: `python -m lab.benchmarks.collect_once PORT FOLDER`.

The token is read from standard input. What a task has imported already when it begins is imported before the clock
starts; with the scheduler's settings of `make run` and the image that is pandas as well, which Arrow asks for.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pandas  # noqa: F401
from pydantic import SecretStr

from pulsar_rebalancer.collect.collector import RunTrigger, collect_sample, write_sample
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.storage.documents import ClusterStorage

if TYPE_CHECKING:
    from pulsar_rebalancer.collect.collector import Sample


async def once(port: int, token: str) -> Sample:
    """Return one sample of the cluster."""
    connection = AdminConnection(seeds=(f"http://127.0.0.1:{port}",), token=SecretStr(token))
    entry = ClusterEntry(name="bench", given={}, settings=Settings())
    async with PulsarAdmin(connection) as admin:
        return await collect_sample(admin, entry, RunTrigger(datetime.now(UTC), "benchmark"))


def main(port: int, folder: str) -> None:
    """Collect and save; prints brokers, bundles and seconds."""
    token = sys.stdin.read().strip()
    begun = time.monotonic()
    gc.freeze()  # as the task does
    collected = asyncio.run(once(port, token))
    write_sample(collected, ClusterStorage(folder, "bench").new_run_folder(datetime.now(UTC)))
    seconds = time.monotonic() - begun
    found = collected.input_tables["cluster"].to_pylist()[0]
    print(found["brokers_reported"], found["bundles"], seconds)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
