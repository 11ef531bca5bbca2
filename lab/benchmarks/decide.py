"""`decide`: the Spark application as a process, next to the least that Spark takes and that deciding takes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lab.benchmarks import clusters, connect
from lab.benchmarks.measure import ROOT, BenchmarkError, Comparison, Goal, Taken, alternately, peak
from lab.benchmarks.spark import submit
from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.operators.spark_application import app_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


SIZES = ((200, 128), (1000, 100), (10000, 100))
OTHERS = ((Strategy.GAIN, 1000, 100), (Strategy.THRESHOLD, 10000, 100))
APPLICATION, FLOOR = "application", "Spark floor"
LEARNING = (10000, 100)
DEARER = 1.3
"""What a strategy that learns may need, in multiples of what AvgShedder needs."""
GOAL_MIB = 3 * 1024
GOAL_S = 20.0
"""Of a million bundles."""


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure every size of AvgShedder, the other strategies: what has `only` in its name."""
    with tempfile.TemporaryDirectory() as folder:
        for strategy, brokers, each in (*((Strategy.AVG, *size) for size in SIZES), *OTHERS):
            name = f"{strategy}, {brokers:,} x {each}"
            if only in name:
                yield _measured(folder, name, strategy, brokers, each, repetitions)
        name = f"GainShedder, {LEARNING[0]:,} x {LEARNING[1]}"
        if only in name:
            yield _learning(folder, name, repetitions)
        if only in connect.NAME:
            yield connect.measure(repetitions)


def floor(folder: str) -> Callable[[], Taken]:
    """Return what runs the trivial Spark application once."""
    row = Path(folder) / "row.parquet"
    pq.write_table(pa.table({"n": [1]}), row)
    return submit(
        str(ROOT / "lab" / "benchmarks" / "spark_floor.py"), str(row), str(Path(folder) / "row-written.parquet")
    )


def _measured(folder: str, name: str, strategy: Strategy, brokers: int, each: int, repetitions: int) -> Comparison:
    with tempfile.TemporaryDirectory(dir=folder) as root:
        run = clusters.make(root, brokers, each, strategy=strategy)
        decided = _anew(root, submit(app_path("application"), "--root", root, "--run", run.uri))
        taken = alternately({APPLICATION: decided, FLOOR: floor(root)}, repetitions)
        summary = Summary.read(run)
        if not summary.bundles_taken:
            raise BenchmarkError(f"{name}: nothing was moved")
        if strategy is Strategy.AVG and summary.pairs_fired < (brokers - 2) // 2:
            raise BenchmarkError(f"{summary.pairs_fired} of {summary.pairs} pairs fired, all should")
        notes: dict[str, Any] = {"hash": summary.hash, "moves": summary.bundles_taken}
        notes |= json.loads(json.dumps(summary.bundle_skip_reasons))
    goal = _goal(strategy, brokers, taken)
    return Comparison(name, taken, goal, GOAL_MIB if brokers == 10000 else None, notes)


def _learning(folder: str, name: str, repetitions: int) -> Comparison:
    """Measure a strategy that learns next to AvgShedder, on the same cluster."""
    brokers, each = LEARNING
    with tempfile.TemporaryDirectory(dir=folder) as learning, tempfile.TemporaryDirectory(dir=folder) as usual:
        roots = {Strategy.GAIN: learning, Strategy.AVG: usual}
        runs = {of: clusters.make(root, brokers, each, strategy=of) for of, root in roots.items()}
        decided = {
            str(of): _anew(root, submit(app_path("application"), "--root", root, "--run", runs[of].uri))
            for of, root in roots.items()
        }
        taken = alternately(decided, repetitions)
        notes: dict[str, Any] = {}
        for of, run in runs.items():
            summary = Summary.read(run)
            notes |= {f"{of}: pairs fired": summary.pairs_fired, f"{of}: moves": summary.bundles_taken}
            if not summary.bundles_taken:
                raise BenchmarkError(f"{name}: {of} moved nothing")
    goal = Goal.of(lambda avg: DEARER * avg, taken[Strategy.AVG], words=f"{DEARER} x AvgShedder")
    return Comparison(name, taken, goal, DEARER * peak(taken[Strategy.AVG]), notes)


def _goal(strategy: Strategy, brokers: int, taken: dict[str, list[Taken]]) -> Goal | None:
    if strategy is Strategy.AVG and brokers == 200:
        return Goal.of(lambda floor: floor + 1.5, taken[FLOOR], words="floor + 1.5 s")
    return Goal.fixed(GOAL_S, "a million bundles") if brokers == 10000 else None


def _anew(root: str, decided: Callable[[], Taken]) -> Callable[[], Taken]:
    def anew() -> Taken:
        forget(root)
        return decided()

    return anew


def forget(root: str) -> None:
    """Remove the files of the state that an earlier repetition wrote: they would not be written again."""
    state = ClusterStorage(root, clusters.NAME).state
    for name in state.entry_names():
        if "-1-" not in name:
            (state / name).delete()
