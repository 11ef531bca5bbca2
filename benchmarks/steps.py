"""`steps`: where the seconds of decide go, step by step, from a clock in it and Spark's event log."""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import clusters
from benchmarks.decide import forget, submit
from benchmarks.measure import ROOT, Comparison, Taken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_rebalancer.storage.path import StoragePath

SIZES = ((200, 128), (10000, 100))
SETTINGS = {"cluster": clusters.FIRING}
_MEANS, _OTHER = "query: means of all bundles", "query: another"


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure the steps at both sizes; a step is a line, a size is a column."""
    found: dict[str, dict[str, list[Taken]]] = defaultdict(dict)
    remarks: dict[str, dict[str, str]] = defaultdict(dict)
    for brokers, each in SIZES:
        size = f"{brokers:,} x {each}"
        if only not in size:
            continue
        with tempfile.TemporaryDirectory() as root:
            run = clusters.make(root, brokers, each)
            for _ in range(repetitions):
                steps, counts = _once(root, run, brokers * each)
                for name, seconds in steps.items():
                    found[name].setdefault(size, []).append(Taken(seconds))
                for name, count in counts.items():
                    remarks[name][size] = count
    for name, taken in found.items():
        yield Comparison(name, taken, remark="; ".join(f"{size}: {said}" for size, said in remarks[name].items()))


def _once(root: str, run: StoragePath, bundles: int) -> tuple[dict[str, float], dict[str, str]]:
    forget(root)
    with tempfile.TemporaryDirectory() as folder:
        said, log = Path(folder) / "times.json", Path(folder) / "events"
        log.mkdir()
        conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri()}
        conf |= {"spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false"}
        begun = time.time()
        application = str(ROOT / "benchmarks" / "steps_once.py")
        submit(application, root, run.uri, str(said), bundles=bundles, conf=conf)()
        ended, times = time.time(), json.loads(said.read_text(encoding="utf-8"))
        queries = _queries(next(log.iterdir()))
    steps = {
        "Java and Python start": times["begun"] - begun,
        "Spark's session, during the imports of Python": times["session"] - times["begun"],
        "Python calling Java, without the queries": times["call_seconds"],
        **{query["name"]: query["ended"] - query["begun"] for query in queries},
        "after the last query: walk, caps, files, hash": times["ended"] - max(query["ended"] for query in queries),
        "Java stops": ended - times["ended"],
        "whole process": ended - begun,
    }
    counts = {query["name"]: f"{query['jobs']} jobs, {query['tasks']} tasks, {query['cpu']:.1f} s" for query in queries}
    return steps, counts | {"Python calling Java, without the queries": f"{times['calls']} calls"}


def _queries(log: Path) -> list[dict[str, Any]]:
    """Return name, times, jobs, tasks and CPU seconds of the tasks of every query in an event log."""
    found: dict[int, dict[str, Any]] = {}
    query_of: dict[int, int] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerSQLExecutionStart":
            plan = event["physicalPlanDescription"]
            name = _MEANS if "means-" in plan.partition("Arguments: file:")[2] else _OTHER
            begun = {"name": name, "begun": event["time"] / 1000, "jobs": 0, "tasks": 0, "cpu": 0.0}
            found[event["executionId"]] = begun
        elif kind == "SparkListenerSQLExecutionEnd":
            found[event["executionId"]]["ended"] = event["time"] / 1000
        elif kind == "SparkListenerJobStart":
            query = int(event["Properties"]["spark.sql.execution.id"])
            found[query]["jobs"] += 1
            query_of |= dict.fromkeys(event["Stage IDs"], query)
        elif kind == "SparkListenerTaskEnd":
            query = query_of[event["Stage ID"]]
            found[query]["tasks"] += 1
            found[query]["cpu"] += event["Task Metrics"]["Executor CPU Time"] / 1e9
    return list(found.values())
