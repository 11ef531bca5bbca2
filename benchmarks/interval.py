"""Seconds of each task and of a whole run through real Airflow, and the peak memory of each process.

Runs the embedded Airflow against simulated clusters of two sizes, in mode observe so that every run has the same work.
Figures hold for the machine that they were measured on; compare columns of one run with each other.

    python benchmarks/interval.py [--runs 5] [--size 8x25 --size 200x128]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from pulsar_rebalancer_airflow.embedded import simulated
from pulsar_rebalancer_airflow.embedded.airflow import Airflow
from pulsar_rebalancer_airflow.embedded.archive import archive_path, make_archive
from pulsar_rebalancer_airflow.embedded.home import SOURCE, Home
from pulsar_rebalancer_airflow.embedded.processes import Processes

TASKS = ("collect", "validate", "decide", "record", "gate", "report")


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
        "pulsar_rebalancer.simulation": "simulated cluster",
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
    seconds: dict[str, list[float]] = defaultdict(list)
    archive = archive_path(SOURCE / ".cache")
    if not archive.exists():
        make_archive(archive)
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        cluster = simulated.start(processes, Path(folder), brokers=brokers, bundles=brokers * bundles_each)
        home = Home(
            folder=Path(folder) / "airflow",
            # An interval of a day: only the runs that are started here run.
            clusters={"bench": {"interval_seconds": 86400, "connection": "bench"}},
            connections={"bench": cluster.connection(), "spark_default": {"conn_type": "spark", "host": "local[2]"}},
            spark_archive=archive,
        )
        home.prepare(keep=False)
        airflow = Airflow(home, processes)
        airflow.start()
        airflow.wait_for_dag("pulsar_rebalance__bench")
        memory = PeakMemory()
        memory.start()
        for number in range(runs + 1):
            run_id = airflow.trigger("pulsar_rebalance__bench")
            run = airflow.wait("pulsar_rebalance__bench", run_id)
            if run["state"] != "success":
                raise SystemExit(f"{run_id} ended {run['state']}; see {home.folder / 'logs'}")
            if number:  # the first run warms caches
                seconds["whole run"].append(_seconds(run))
                for task in airflow.tasks("pulsar_rebalance__bench", run_id):
                    if task["task_id"] in TASKS and task["start_date"]:
                        seconds[task["task_id"]].append(_seconds(task))
        memory.stop()
    return seconds, memory.peaks


def _seconds(item: dict[str, Any]) -> float:
    begun, ended = (datetime.fromisoformat(item[name]) for name in ("start_date", "end_date"))
    return (ended - begun).total_seconds()


def main() -> None:
    """Measure and print one Markdown table per subject."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--size", action="append", help="brokers x bundles each (8x25, 200x128)")
    given = parser.parse_args()
    sizes = given.size or ["8x25", "200x128"]
    results = {size: measure(*(int(part) for part in size.split("x")), given.runs) for size in sizes}
    print(f"\nmedian seconds of {given.runs} runs (brokers x bundles each)\n")
    print("| task | " + " | ".join(sizes) + " |\n| --- |" + " --- |" * len(sizes))
    for name in (*TASKS, "whole run"):
        print(f"| {name} | " + " | ".join(f"{statistics.median(results[s][0][name]):.1f}" for s in sizes) + " |")
    print("\npeak resident memory, MiB\n")
    print("| process | " + " | ".join(sizes) + " |\n| --- |" + " --- |" * len(sizes))
    for kind in sorted({kind for s in sizes for kind in results[s][1]}):
        print(f"| {kind} | " + " | ".join(f"{results[s][1].get(kind, 0):.0f}" for s in sizes) + " |")


if __name__ == "__main__":
    main()
