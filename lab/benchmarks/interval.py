"""`interval`: the DAG of a cluster through real Airflow, task by task, next to the same tasks with nothing in them.

Both run in one Airflow against one simulated cluster, by turns. The runs that are measured are scheduled, in mode
observe: each of them counts hits, fires and picks bundles, and leaves the cluster as it is for the next.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lab.benchmarks.measure import ROOT, BenchmarkError, Comparison, Goal, Taken
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.embedded import local_airflow
from pulsar_rebalancer_airflow.embedded.airflow_home import AirflowHome
from pulsar_rebalancer_airflow.embedded.local_airflow import DagRun, LocalAirflow, Processes, TaskInstance
from pulsar_rebalancer_airflow.spark_archive import cached_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKERS, EACH = 200, 128
TASKS = ("collect", "validate", "decide")
WHOLE = "whole run"
OBSERVED, FLOOR = "pulsar_rebalance__observed", "benchmark_floor"
LONGEST = 1.4
"""How many times its floor a run may take."""

# Between two runs there is time for one of the floor.
EACH_RUN_FIRES = {"hit_count_low": 1, "hit_count_high": 1, "interval_seconds": 30, "state_max_gap": 100}


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure the DAG and its floor; the first runs of each, which warm caches, are left out."""
    size = f"{BROKERS} x {EACH}"
    if only not in size:
        return
    ours, floor = (defaultdict[str, list[Taken]](list) for _ in range(2))
    with tempfile.TemporaryDirectory() as place, Processes() as processes:
        airflow = _airflow(Path(place), processes)
        for number, run in enumerate(islice(airflow.ended_runs(OBSERVED), repetitions + 1)):
            _check(airflow, run)
            trivial = airflow.wait(FLOOR, airflow.trigger(FLOOR))
            if trivial["state"] != "success":
                raise BenchmarkError(f"{FLOOR} ended {trivial['state']}")
            if number:
                _note(ours, airflow, OBSERVED, run)
                _note(floor, airflow, FLOOR, trivial)
    for name in TASKS:
        yield Comparison(f"{size}, {name}", {"run": ours[name], "floor": floor[name]})
    words = f"{LONGEST} x floor, 10 s at most"
    goal = Goal.of(lambda seconds: min(LONGEST * seconds, 10.0), floor[WHOLE], words=words)
    yield Comparison(f"{size}, {WHOLE}", {"run": ours[WHOLE], "floor": floor[WHOLE]}, goal)


def _airflow(folder: Path, processes: Processes) -> LocalAirflow:
    """Start Airflow with both DAGs."""
    archive = cached_archive(ROOT / ".cache")
    connection = local_airflow.start_cluster(processes, folder, brokers=BROKERS, bundles=BROKERS * EACH)
    home = AirflowHome(
        folder=folder / "airflow",
        cluster_settings={"observed": EACH_RUN_FIRES | {"connection": "bench"}},
        connections={"bench": connection, "spark_default": {"conn_type": "spark", "host": "local[2]"}},
        spark_archive=archive,
        dags_folder=folder / "dags",
    )
    home.prepare(keep_data=False)
    shutil.copytree(ROOT / "dags", home.dags_folder)
    shutil.copy(ROOT / "lab" / "benchmarks" / "floor_dag.py", home.dags_folder)
    pq.write_table(pa.table({"n": [1]}), folder / "row.parquet")
    os.environ |= {"BENCHMARK_ROOT": str(ROOT), "BENCHMARK_FOLDER": str(folder)}
    airflow = LocalAirflow(home, processes)
    airflow.start()
    for dag in (OBSERVED, FLOOR):
        airflow.wait_for_dag(dag)
    return airflow


def _check(airflow: LocalAirflow, run: DagRun) -> None:
    """Raise an error unless a run fired and picked bundles."""
    if run["state"] != "success":
        raise BenchmarkError(f"{run['dag_run_id']} ended {run['state']}; see {airflow.home.folder / 'logs'}")
    summary = Summary.read(StoragePath(airflow.xcom(OBSERVED, run["dag_run_id"], "collect")))
    if summary.counting != "counted" or not summary.bundles_taken:
        raise BenchmarkError(f"{run['dag_run_id']}: sample {summary.counting}, {summary.sentence}")


def _note(seconds: dict[str, list[Taken]], airflow: LocalAirflow, dag: str, run: DagRun) -> None:
    seconds[WHOLE].append(Taken(_seconds(run)))
    for task in airflow.tasks(dag, run["dag_run_id"]):
        if task["task_id"] in TASKS:
            seconds[task["task_id"]].append(Taken(_seconds(task)))


def _seconds(item: DagRun | TaskInstance) -> float:
    begun, ended = map(datetime.fromisoformat, (item["start_date"], item["end_date"]))
    return (ended - begun).total_seconds()
