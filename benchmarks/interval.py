"""Seconds of each task and of a whole run through real Airflow, and the peak memory of each process.

Runs the embedded Airflow against simulated clusters of two sizes. The runs that are measured are scheduled, one behind
the other, in mode observe: each of them counts hits, fires and picks bundles, and leaves the cluster as it is for the
next. Then one forced run moves bundles. Figures hold for the machine that they were measured on; compare columns of one
run with each other.

    python benchmarks/interval.py [--runs 5] [--size 8x25 --size 200x128]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from datetime import datetime
from itertools import islice
from pathlib import Path

import psutil

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.embedded import simulated_cluster
from pulsar_rebalancer_airflow.embedded.airflow_home import SOURCE, AirflowHome
from pulsar_rebalancer_airflow.embedded.local_airflow import DagRun, LocalAirflow, TaskInstance
from pulsar_rebalancer_airflow.embedded.processes import Processes
from pulsar_rebalancer_airflow.spark_archive import cached_archive

TASKS = ("collect", "validate", "decide", "record", "gate", "report")
OBSERVED, MOVED = "pulsar_rebalance__observed", "pulsar_rebalance__moved"
MOST_MOVED = 10
UNLOAD = "unload, per bundle"
EACH_RUN_FIRES = {"hit_count_low": 1, "hit_count_high": 1, "interval_seconds": 5, "state_max_gap": 100}


class PeakMemory(threading.Thread):
    """Samples the resident memory of all descendants, by kind of process, until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peaks: dict[str, float] = defaultdict(float)
        self._stop_event = threading.Event()

    def run(self) -> None:
        """Sample four times a second."""
        while not self._stop_event.wait(0.25):
            for process in psutil.Process().children(recursive=True):
                try:
                    kind, mib = _kind(process.cmdline()), process.memory_info().rss / 2**20
                except psutil.Error:
                    continue
                self.peaks[kind] = max(self.peaks[kind], mib)

    def stop(self) -> None:
        """Take no further samples."""
        self._stop_event.set()
        self.join()


def _kind(command: list[str]) -> str:
    text = " ".join(command)
    marks = {
        "SparkSubmit": "Spark driver (JVM)",
        "rebalance.py": "Spark driver (Python)",
        "pulsar_simulator": "simulated cluster",
        "scheduler": "Airflow scheduler",
        "dag-processor": "Airflow DAG processor",
        "dag_processor": "Airflow DAG processor",
        "api-server": "Airflow API server",
        "api_server": "Airflow API server",
        "triggerer": "Airflow triggerer",
        "LocalExecutor": "Airflow executor",
        "airflow supervisor": "Airflow task supervisor",
        "task runner": "Airflow task",
    }
    return next((kind for mark, kind in marks.items() if mark in text), "other Airflow processes")


def measure(brokers: int, bundles_each: int, runs: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds per task and whole run, and peak memory in MiB by kind of process."""
    archive = cached_archive(SOURCE / ".cache")
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        cluster = simulated_cluster.start(processes, Path(folder), brokers=brokers, bundles=brokers * bundles_each)
        home = AirflowHome(
            folder=Path(folder) / "airflow",
            clusters={
                "observed": EACH_RUN_FIRES | {"connection": "bench"},
                # An interval of a day: one run in the beginning, beside the first one of the other, and the forced one.
                "moved": {
                    "connection": "bench",
                    "mode": "auto",
                    "interval_seconds": 86400,
                    "max_bundles_per_run": MOST_MOVED,
                },
            },
            connections={"bench": cluster.connection(), "spark_default": {"conn_type": "spark", "host": "local[2]"}},
            spark_archive=archive,
        )
        home.prepare(keep=False)
        airflow = LocalAirflow(home, processes)
        airflow.start()
        airflow.wait_for_dag(OBSERVED)
        memory = PeakMemory()
        memory.start()
        seconds = _observed(airflow, runs)
        _stop(airflow, OBSERVED)
        seconds[UNLOAD] = [_moved(airflow)]
        memory.stop()
    return seconds, memory.peaks


def _observed(airflow: LocalAirflow, runs: int) -> dict[str, list[float]]:
    """Seconds per task and whole run; the first run, which warms caches, is left out."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for run in islice(airflow.ended_runs(OBSERVED), 1, runs + 1):
        summary = Summary.read(_folder(airflow, OBSERVED, run))
        if summary.counting != "counted" or not summary.bundles_taken:
            raise SystemExit(f"{run['dag_run_id']}: sample {summary.counting}, {summary.sentence}")
        seconds["whole run"].append(_seconds(run))
        for task in airflow.tasks(OBSERVED, run["dag_run_id"]):
            if task["task_id"] in TASKS:
                seconds[task["task_id"]].append(_seconds(task))
    return seconds


def _stop(airflow: LocalAirflow, dag_id: str) -> None:
    """Pause the DAG, whose present run then stops behind its present task, and wait for that."""
    airflow.patch(f"/dags/{dag_id}", {"is_paused": True})
    (*_, run) = airflow.runs(dag_id)
    while any(task["state"] in ("queued", "running") for task in airflow.tasks(dag_id, run["dag_run_id"])):
        time.sleep(0.5)


def _moved(airflow: LocalAirflow) -> float:
    """Seconds of the unload task by bundle moved; one wave behind the other."""
    run = airflow.wait(MOVED, airflow.trigger(MOVED, {"force": "benchmark"}))
    counts = Outcome.read(_folder(airflow, MOVED, run)).counts
    if counts.keys() != {Reason.MOVED}:
        raise SystemExit(f"{run['dag_run_id']} moved: {counts or 'nothing'}")
    tasks = [task for task in airflow.tasks(MOVED, run["dag_run_id"]) if task["task_id"] == "unload"]
    return sum(map(_seconds, tasks)) / counts[Reason.MOVED]


def _folder(airflow: LocalAirflow, dag_id: str, run: DagRun) -> StoragePath:
    if run["state"] != "success":
        raise SystemExit(f"{run['dag_run_id']} ended {run['state']}; see {airflow.home.folder / 'logs'}")
    return StoragePath(airflow.xcom(dag_id, run["dag_run_id"], "collect"))


def _seconds(item: DagRun | TaskInstance) -> float:
    begun, ended = map(datetime.fromisoformat, (item["start_date"], item["end_date"]))
    return (ended - begun).total_seconds()


def main() -> None:
    """Measure and print one Markdown table per subject."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--size", action="append", help="brokers x bundles each (8x25, 200x128)")
    given = parser.parse_args()
    sizes = given.size or ["8x25", "200x128"]
    results = {}
    for size in sizes:
        brokers, bundles_each = map(int, size.split("x"))
        results[size] = measure(brokers, bundles_each, given.runs)
    print(f"\nmedian seconds of {given.runs} runs (brokers x bundles each)\n")
    print("| task | " + " | ".join(sizes) + " |\n| --- |" + " --- |" * len(sizes))
    for name in (*TASKS, "whole run", UNLOAD):
        print(f"| {name} | " + " | ".join(f"{statistics.median(results[s][0][name]):.1f}" for s in sizes) + " |")
    print("\npeak resident memory, MiB\n")
    print("| process | " + " | ".join(sizes) + " |\n| --- |" + " --- |" * len(sizes))
    for kind in sorted({kind for s in sizes for kind in results[s][1]}):
        print(f"| {kind} | " + " | ".join(f"{results[s][1].get(kind, 0):.0f}" for s in sizes) + " |")


if __name__ == "__main__":
    main()
