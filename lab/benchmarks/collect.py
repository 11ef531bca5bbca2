"""`collect`: a sample over HTTP from brokers that take a tenth of a second each, next to the slowest single answer."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.benchmarks.measure import ROOT, BenchmarkError, Comparison, Goal, Taken, alternately, process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LATE = 0.1
SIZES = ((10, 100), (100, 100), (1000, 100))
GOALS = {(1000, 100): (Goal.fixed(4.0), 300.0)}
"""Goals of seconds and MiB by size."""

_PROBED = 10
_START_SECONDS = 120


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Measure clusters of each size, after one sample that makes the brokers' answers."""
    for brokers, each in SIZES:
        name = f"{brokers:,} x {each}"
        if only not in name:
            continue
        with slow_brokers(brokers, brokers * each, LATE) as (ports, token), tempfile.TemporaryDirectory() as folder:
            sample = _sample(ports[0], token, folder)
            sample()
            subjects = {"collect": sample, "slowest answer": lambda: _slowest(ports, token)}
            taken = alternately(subjects, repetitions)
        goal, mib = GOALS.get((brokers, each), (None, None))
        yield Comparison(name, taken, goal, mib)


@contextmanager
def slow_brokers(brokers: int, bundles: int, late: float) -> Iterator[tuple[list[int], str]]:
    """Start brokers whose answers are late by some seconds; yields their ports and the token."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [
            sys.executable,
            "-m",
            "lab.benchmarks.slow_brokers",
            str(brokers),
            str(bundles),
            str(late),
            str(ready),
        ]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) as running:
            limit = time.monotonic() + _START_SECONDS
            while not ready.exists():
                if running.poll() is not None or time.monotonic() > limit:
                    running.kill()
                    raise BenchmarkError("the slow brokers did not come up")
                time.sleep(0.1)
            found = json.loads(ready.read_text())
            yield found["ports"], found["token"]


def _sample(port: int, token: str, folder: str) -> Callable[[], Taken]:
    command = [sys.executable, "-m", "lab.benchmarks.collect_once", str(port), folder]
    return lambda: process(command, says=True, given=token)


def _slowest(ports: list[int], token: str) -> Taken:
    """Return the slowest of some load reports, asked for one after the other."""
    slowest = 0.0
    for port in ports[:: max(1, len(ports) // _PROBED)]:
        request: Any = urllib.request.Request(f"http://127.0.0.1:{port}/admin/v2/broker-stats/load-report")
        request.add_header("Authorization", f"Bearer {token}")
        begun = time.monotonic()
        with urllib.request.urlopen(request) as answer:
            answer.read()
        slowest = max(slowest, time.monotonic() - begun)
    return Taken(slowest)
