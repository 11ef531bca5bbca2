"""`decide`: the Spark application as a process, next to the least that Spark takes and that deciding takes."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType

from lab.benchmarks import clusters, connect
from lab.benchmarks.measure import ROOT, BenchmarkError, Comparison, Goal, Taken, alternately, peak, process
from lab.benchmarks.spark import SETTINGS as SPARK
from lab.benchmarks.spark import submit
from pulsar_rebalancer.config.enums import Placement, Strategy
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.operators.spark_application import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_rebalancer.storage.path import StoragePath

SIZES = ((10, 100), (200, 128), (1000, 100), (10000, 100))
OTHERS: tuple[tuple[Strategy, Placement | None, int, int], ...] = (
    *((strategy, None, 1000, 100) for strategy in Strategy if strategy is not Strategy.AVG),
    (Strategy.THRESHOLD, None, 10000, 100),
    # The pair that PIP-364 compares AvgShedder with.
    (Strategy.THRESHOLD, Placement.LEAST_USAGE, 10000, 100),
)
APPLICATION, FLOOR, LIMIT, LARGEST = "application", "Spark floor", "limit program", "the largest only"
LEARNING = (10000, 100)
DEARER = 1.3
"""What a strategy that learns may need, in multiples of what AvgShedder needs."""
SMALL = 7
"""Clusters of ten brokers that are decided in one application with one a hundred times as large."""
GOAL_MIB = 3 * 1024
GOAL_OTHERS_S = 20.0
"""Of a million bundles under another strategy than AvgShedder."""
SETTINGS = SPARK | {"cluster": clusters.FIRING}


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure every size of AvgShedder, the other strategies, several clusters: what has `only` in its name."""
    with tempfile.TemporaryDirectory() as folder:
        for strategy, placement, brokers, each in (*((Strategy.AVG, None, *size) for size in SIZES), *OTHERS):
            name = f"{strategy}{f' with {placement}' if placement else ''}, {brokers:,} x {each}"
            if only in name:
                yield _measured(folder, name, strategy, placement, brokers, each, repetitions)
        for name, hits in (("all pairs fire", {}), ("one pair in twenty fires", clusters.ONE_IN_TWENTY)):
            if only in (title := f"GainShedder, {LEARNING[0]:,} x {LEARNING[1]}, {name}"):
                yield _learning(folder, title, hits, repetitions)
        name = f"AvgShedder, 1,000 x 100 with {SMALL} clusters of 10 x 100"
        if only in name:
            yield _together(folder, name, repetitions)
        if only in connect.NAME:
            yield connect.measure(repetitions)


def floor(folder: str) -> Callable[[], Taken]:
    """Return what runs the trivial Spark application once."""
    row = Path(folder) / "row.parquet"
    pq.write_table(pa.table({"n": [1]}), row)
    return submit(
        str(ROOT / "lab" / "benchmarks" / "spark_floor.py"), str(row), str(Path(folder) / "row-written.parquet")
    )


def _measured(
    folder: str, name: str, strategy: Strategy, placement: Placement | None, brokers: int, each: int, repetitions: int
) -> Comparison:
    with tempfile.TemporaryDirectory(dir=folder) as root:
        own: dict[str, Any] = {"placement": placement} if placement else {}
        if strategy is Strategy.TRANSFER:
            own |= clusters.EAGER_TRANSFER
        run = clusters.make(root, brokers, each, strategy=strategy, **own)
        if strategy is Strategy.TRANSFER:
            # It would only try the coldest broker, which is reserved, and move nothing.
            Policies().write(run)
        decided = _anew(root, submit(path_of("application"), "--root", root, "--run", run.uri))
        subjects: dict[str, Callable[[], Taken]] = {APPLICATION: decided, FLOOR: floor(root)}
        if strategy is Strategy.AVG:
            limit = [sys.executable, "-m", "lab.benchmarks.limit", run.uri, root]
            subjects[LIMIT] = lambda: process(limit)
        taken = alternately(subjects, repetitions)
        summary = Summary.read(run)
        if not summary.bundles_taken:
            raise BenchmarkError(f"{name}: nothing was moved")
        if strategy is Strategy.AVG:
            _same(run, root)
            if summary.pairs_fired < (brokers - 2) // 2:
                raise BenchmarkError(f"{summary.pairs_fired} of {summary.pairs} pairs fired, all should")
        notes: dict[str, Any] = {"hash": summary.hash, "moves": summary.bundles_taken}
        notes |= json.loads(json.dumps(summary.bundles_passed_over))
    goal = _goal(strategy, brokers, taken)
    return Comparison(name, taken, goal, GOAL_MIB if brokers == 10000 else None, notes)


def _learning(folder: str, name: str, hits: dict[str, Any], repetitions: int) -> Comparison:
    """Measure a strategy that learns next to AvgShedder, on the same cluster."""
    brokers, each = LEARNING
    with tempfile.TemporaryDirectory(dir=folder) as learning, tempfile.TemporaryDirectory(dir=folder) as usual:
        roots = {Strategy.GAIN: learning, Strategy.AVG: usual}
        runs = {of: clusters.make(root, brokers, each, strategy=of, **hits) for of, root in roots.items()}
        decided = {
            str(of): _anew(root, submit(path_of("application"), "--root", root, "--run", runs[of].uri))
            for of, root in roots.items()
        }
        taken = alternately(decided, repetitions)
        notes: dict[str, Any] = {}
        for of, root in roots.items():
            summary, files = Summary.read(runs[of]), [*_written(root), runs[of] / "plan" / "state.json"]
            notes |= {
                f"{of}: pairs fired": summary.pairs_fired,
                f"{of}: moves": summary.bundles_taken,
                f"{of}: state, MB": round(sum(map(size_of, files)) / 1e6, 1),
            }
            if not summary.bundles_taken:
                raise BenchmarkError(f"{name}: {of} moved nothing")
    goal = Goal.of(lambda avg: DEARER * avg, taken[Strategy.AVG], words=f"{DEARER} x AvgShedder")
    return Comparison(name, taken, goal, DEARER * peak(taken[Strategy.AVG]), notes)


def size_of(file: StoragePath) -> int:
    """Return the number of bytes of a file, or of all files in a folder that Spark wrote."""
    file_system, path = file.open()
    found = file_system.get_file_info(path)
    parts = file_system.get_file_info(FileSelector(path)) if found.type is FileType.Directory else [found]
    return sum(part.size or 0 for part in parts)


def _together(folder: str, name: str, repetitions: int) -> Comparison:
    """Measure several clusters in one application next to only the largest of them."""
    with tempfile.TemporaryDirectory(dir=folder) as large, tempfile.TemporaryDirectory(dir=folder) as several:
        alone = clusters.make(large, 1000, 100)
        # They have one name and one file of means: that of the largest, which is made last.
        runs = [clusters.make(several, brokers, 100) for brokers in (*[10] * SMALL, 1000)]
        named = [part for run in runs for part in ("--run", run.uri)]
        subjects = {
            APPLICATION: _anew(several, submit(path_of("application"), "--root", several, *named)),
            LARGEST: _anew(large, submit(path_of("application"), "--root", large, "--run", alone.uri)),
        }
        taken = alternately(subjects, repetitions)
        moves = [Summary.read(run).bundles_taken for run in runs]
        if not all(moves):
            raise BenchmarkError(f"{name}: {moves} moves")
    return Comparison(name, taken, notes={"moves": sum(moves)})


def _goal(strategy: Strategy, brokers: int, taken: dict[str, list[Taken]]) -> Goal | None:
    if strategy is not Strategy.AVG:
        return Goal.fixed(GOAL_OTHERS_S, "a million bundles") if brokers == 10000 else None
    if brokers == 200:
        return Goal.of(lambda floor: floor + 1.5, taken[FLOOR], words="floor + 1.5 s")
    if brokers == 10000:
        words = "floor + 2 x limit program"
        return Goal.of(lambda floor, limit: floor + 2 * limit, taken[FLOOR], taken[LIMIT], words=words)
    return None


def _anew(root: str, decided: Callable[[], Taken]) -> Callable[[], Taken]:
    def anew() -> Taken:
        forget(root)
        return decided()

    return anew


def forget(root: str) -> None:
    """Remove the files of the state that an earlier repetition wrote: they would not be written again."""
    for file in _written(root):
        file.delete()


def _written(root: str) -> list[StoragePath]:
    """Return the files of the state that *decide* wrote: means, and costs if a strategy learns."""
    state = ClusterStorage(root, clusters.NAME).state
    return [state / name for name in state.names() if "-1-" not in name]


def _same(run: StoragePath, root: str) -> None:
    """Raise when the limit program's moves or means are not those of the application."""
    (means,) = _written(root)
    for name, file, by in (("moves", run / "plan" / "moves.parquet", ("pair", "rank")), ("means", means, ("bundle",))):
        order: Any = [(key, "ascending") for key in by]
        ours = file.read_table().sort_by(order)
        limit = pq.read_table(Path(root) / f"{name}.parquet").sort_by(order)
        if not ours.equals(limit.select(ours.column_names).cast(ours.schema)):
            raise BenchmarkError(f"the limit program finds other {name}, in {limit.num_rows} rows, not {ours.num_rows}")
