"""`replay`: recorded load through 45 variants as a process, next to an hour of it."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lab.benchmarks.measure import BenchmarkError, Comparison, Goal, Taken, alternately
from lab.benchmarks.recordings import START, write
from lab.benchmarks.spark import submit
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.replay.variants import ANSWER, ReplayRequest
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.operators.spark_application import app_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BROKERS, BUNDLES_EACH = 200, 128
DAY, HOUR = 24 * 60, 60
GOAL, GOAL_MIB = Goal.fixed(60.0, "a minute"), 4096.0
NAME = "bench"
GRID: list[dict[str, Any]] = [
    {"strategy": "AvgShedder", "low_threshold": [10, 12, 20, 25, 30], "hit_count_low": [4, 6, 10, 12]},
    {"strategy": "ThresholdShedder", "average_threshold": [4, 6, 8, 10, 12, 15, 20, 25]},
    {"strategy": "UniformLoadShedder", "rate_difference": [20, 30, 40, 50, 60, 80, 100, 150]},
    {"strategy": "OverloadShedder", "overloaded_threshold": [70, 75, 80, 90]},
    {"strategy": "TransferShedder", "target_std": [0.05, 0.1, 0.15, 0.25]},
]
VARIANTS = 45
"""Of the grid, with the current settings."""


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure a recorded day, and by turns an hour of it, most of which is start-up."""
    name = f"{BROKERS} x {BUNDLES_EACH}, {VARIANTS} variants"
    if only in name:
        with tempfile.TemporaryDirectory() as root:
            storage = ClusterStorage(root, NAME)
            write(storage, BROKERS, BUNDLES_EACH, DAY)
            subjects = {"24 h": _replay(storage, DAY), "1 h": _replay(storage, HOUR)}
            yield Comparison(name, alternately(subjects, repetitions), GOAL, GOAL_MIB)


def _replay(storage: ClusterStorage, minutes: int) -> Callable[[], Taken]:
    """Return what runs the application once, all of its seconds counted."""
    end = START + timedelta(minutes=minutes - 1)  # whose sample belongs to the replay
    request = ReplayRequest(cluster=NAME, settings=Settings(), start=START, end=end, grid=GRID)

    def once() -> Taken:
        folder = storage.new_replay_folder(START)
        request.write(folder)
        taken = submit(app_path("replay"), "--root", storage.root, "--replay", folder.uri)()
        answer = (folder / ANSWER).read_json()
        if (answer["variants"], answer["coverage"]["samples"]) != (VARIANTS, minutes):
            raise BenchmarkError(f"{answer['variants']} variants over {answer['coverage']['samples']} samples")
        return taken

    return once
