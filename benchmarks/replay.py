"""`replay`: recorded load through 45 variants as a process, beside fewer of them and fewer cores."""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from benchmarks.measure import BenchmarkError, Comparison, Taken, alternately, process
from benchmarks.recordings import START, write
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.replay.replay_request import ANSWER, ReplayRequest
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.operators.spark_application import (
    CONF,
    JAVA_OPTIONS,
    LOCAL_CONF,
    driver_environment,
    path_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BROKERS, BUNDLES_EACH = 200, 128
DAY, HOUR = 24 * 60, 60
GOAL_SECONDS, GOAL_MIB = 360.0, 4096.0
NAME = "bench"
GRID: list[dict[str, Any]] = [
    {"strategy": "AvgShedder", "low_threshold": [10, 12, 20, 25, 30], "hit_count_low": [4, 6, 10, 12]},
    {"strategy": "ThresholdShedder", "average_threshold": [4, 6, 8, 10, 12, 15, 20, 25]},
    {"strategy": "UniformLoadShedder", "rate_difference": [20, 30, 40, 50, 60, 80, 100, 150]},
    {"strategy": "OverloadShedder", "overloaded_threshold": [70, 75, 80, 90]},
    {"strategy": "TransferShedder", "target_std": [0.05, 0.1, 0.15, 0.25]},
]
"""44 variants beside the current settings."""
FEWER = [GRID[0] | {"low_threshold": [10, 20]}, GRID[1] | {"average_threshold": [5, 10, 20]}, *GRID[3:4]]
"""14 of them, the share of each strategy about the same."""
SETTINGS = {"conf": CONF | LOCAL_CONF, "java": JAVA_OPTIONS, "grid": GRID}


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure a day once, and an hour by turns with half the cores and with a third of the variants."""
    sizes = {DAY: f"24 h, {BROKERS} x {BUNDLES_EACH}", HOUR: f"1 h, {BROKERS} x {BUNDLES_EACH}"}
    for minutes, name in sizes.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as root:
            write(ClusterStorage(root, NAME), BROKERS, BUNDLES_EACH, minutes)
            all_of_them = {"45 variants, local[2]": _replay(root, minutes, GRID, "local[2]", 45)}
            if minutes == DAY:
                yield Comparison(name, alternately(all_of_them, 1), "six minutes", GOAL_SECONDS, GOAL_MIB)
                continue
            fewer = {
                "45 variants, local[1]": _replay(root, minutes, GRID, "local[1]", 45),
                "16 variants, local[2]": _replay(root, minutes, FEWER, "local[2]", 16),
            }
            yield Comparison(name, alternately(all_of_them | fewer, repetitions))


def _replay(root: str, minutes: int, grid: list[dict[str, Any]], master: str, variants: int) -> Callable[[], Taken]:
    """Return what runs the application once, all of its seconds counted."""
    storage = ClusterStorage(root, NAME)
    end = START + timedelta(minutes=minutes)
    request = ReplayRequest(cluster=NAME, settings=Settings(), start=START, end=end, grid=grid)
    command = ["spark-submit", "--master", master, "--driver-java-options", JAVA_OPTIONS]
    command += [part for name, value in (CONF | LOCAL_CONF).items() for part in ("--conf", f"{name}={value}")]

    def once() -> Taken:
        folder = storage.new_replay(START)
        request.write(folder)
        replay = path_of("replay")
        with driver_environment():
            taken = process([*command, replay, "--root", root, "--replay", folder.uri], dict(os.environ))
        found = (folder / ANSWER).read_json()
        if (found["variants"], found["coverage"]["samples"]) != (variants, minutes):
            raise BenchmarkError(f"{found['variants']} variants over {found['coverage']['samples']} samples")
        return taken

    return once
