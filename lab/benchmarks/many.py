"""`many`: clusters of 20 x 64, each decided once a minute over one warm Spark Connect server: CPU, seconds, memory.

`python -m lab.benchmarks.many --clusters 24 --minutes 60` prints what a decision takes by spark-submit, and then a
line every five minutes. All clusters are due at once; two applications run at the same time; a round that takes
longer than a minute is followed by the next. A plan that differs from the cluster's first one ends the measurement.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

from lab.benchmarks import clusters, connect, decide
from lab.benchmarks.conditions import load
from lab.benchmarks.measure import ROOT, BenchmarkError
from lab.benchmarks.spark import submit_command, with_archive
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer_airflow.operators.spark_application import app_path, driver_environment

AT_ONCE, EVERY = 2, 5
SUBMITTED = 5
"""Decisions by spark-submit."""


class Decided(NamedTuple):
    """Seconds of a decision, and CPU seconds of its process and those that it has waited for."""

    seconds: float
    cpu: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.many", description=__doc__)
    parser.add_argument("--clusters", type=int, default=24)
    parser.add_argument("--minutes", type=int, default=60)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, driver_environment(), ThreadPoolExecutor(AT_ONCE) as beside:
        roots = [f"{folder}/{number}" for number in range(given.clusters)]
        runs = {root: clusters.make(root, 20, 64, seed=number) for number, root in enumerate(roots)}
        hashes: dict[str, str] = {}

        def decided(root: str, command: Sequence[str], environment: Mapping[str, str]) -> Decided:
            decide.forget(root)
            taken = _process([*command, app_path("application"), "--root", root, "--run", runs[root].uri], environment)
            made = Summary.read(runs[root]).hash
            if hashes.setdefault(root, made) != made:
                raise BenchmarkError(f"another plan than at first: {runs[root].uri}")
            return taken

        submitted = [decided(roots[0], [*submit_command(), *with_archive()], {}) for _ in range(SUBMITTED)]
        print(f"by spark-submit: {_middle(submitted)}", flush=True)
        with connect.server(Path(folder)) as (java, address):
            begun, used, taken, lengths, told = time.monotonic(), _cpu(java), list[Decided](), list[float](), 0
            while told < given.minutes:
                since = time.monotonic()
                over = [beside.submit(decided, root, [sys.executable], address) for root in roots]
                taken += [each.result() for each in over]
                lengths.append(time.monotonic() - since)
                time.sleep(max(0.0, 60 - lengths[-1]))
                if time.monotonic() - begun >= 60 * (told + EVERY):
                    told += EVERY
                    _say(told, taken, lengths, _cpu(java) - used, java)
                    used, taken, lengths = _cpu(java), [], []


def _say(minute: int, taken: list[Decided], lengths: list[float], server: float, java: psutil.Process) -> None:
    cpu = f"{_middle(taken)} + server {server / len(taken):.2f}"
    rounds = f"all clusters in {statistics.median(lengths):.0f} s (longest {max(lengths):.0f})"
    said = f"{len(taken)} decisions, {cpu}; {rounds}; server {_mib(java)}; load {load():.1f}"
    print(f"minute {minute}: {said}", flush=True)


def _middle(taken: list[Decided]) -> str:
    seconds = sorted(each.seconds for each in taken)
    late, cpu = seconds[int(0.95 * len(seconds))], statistics.mean(each.cpu for each in taken)
    return f"{statistics.median(seconds):.1f} s (p95 {late:.1f}), CPU s {cpu:.2f}"


def _mib(java: psutil.Process) -> str:
    """Return the memory of the server, and what is left on its heap after a collection, MiB."""
    resident = java.memory_info().rss / 2**20
    subprocess.run(["jcmd", str(java.pid), "GC.run"], check=True, capture_output=True)
    heap = subprocess.run(["jcmd", str(java.pid), "GC.heap_info"], check=True, capture_output=True, text=True).stdout
    live = sum(int(used) for used in re.findall(r"(?:heap|generation).*used (\d+)K", heap)) / 1024
    return f"{resident:.0f} MiB, live {live:.0f}, threads {java.num_threads()}"


def _cpu(java: psutil.Process) -> float:
    return sum(java.cpu_times()[:2])


def _process(command: Sequence[str], environment: Mapping[str, str]) -> Decided:
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        running = subprocess.Popen(command, env=os.environ | environment, cwd=ROOT, stdout=output, stderr=output)
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        if running.returncode:
            raise BenchmarkError(f"{command} failed:\n{output.read().decode()[-3000:]}")
    return Decided(time.monotonic() - begun, used.ru_utime + used.ru_stime)


if __name__ == "__main__":
    main()
