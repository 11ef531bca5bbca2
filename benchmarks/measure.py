"""Seconds and memory of processes, measured in turns with what they are compared with, and where it was."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from pulsar_rebalancer_airflow.java import java_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]


class BenchmarkError(Exception):
    """What was to be measured failed, or did something else than what it is compared with."""


@dataclass(frozen=True)
class Taken:
    """What one repetition took.

    Attributes:
        seconds: by the wall clock.
        mib: peak resident memory of the process and all that came of it together, MiB.
        cpu_seconds: of all its processes.
    """

    seconds: float
    mib: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Comparison:
    """One line of a part: what was measured, beside its yardsticks.

    Attributes:
        name: what was measured, such as `AvgShedder, 200 x 128`.
        taken: repetitions by subject; the first subject is what is measured.
        goal: in words; empty when there is none.
        goal_seconds: the same as a figure of this run, as the yardsticks decide it.
        goal_mib: of peak memory.
        notes: what else is to be known, such as bundles moved.
        remark: what the page's table says beside the figures.
    """

    name: str
    taken: dict[str, list[Taken]]
    goal: str = ""
    goal_seconds: float | None = None
    goal_mib: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    remark: str = ""


def median(taken: Sequence[Taken]) -> float:
    """Return the median seconds of repetitions."""
    return statistics.median(each.seconds for each in taken)


def peak(taken: Sequence[Taken]) -> float:
    """Return the largest memory of repetitions, MiB."""
    return max(each.mib for each in taken)


def alternately(subjects: Mapping[str, Callable[[], Taken]], repetitions: int) -> dict[str, list[Taken]]:
    """Measure subjects in turns, so that what slows the machine down for a while slows all of them down."""
    found: dict[str, list[Taken]] = {name: [] for name in subjects}
    for _ in range(repetitions):
        for name, measured in subjects.items():
            found[name].append(measured())
    return found


def process(
    command: Sequence[str], environment: Mapping[str, str] | None = None, *, says: bool = False, given: str = ""
) -> Taken:
    """Run a command to its end.

    Args:
        command: program and arguments.
        environment: of the process, that of this one if not given.
        says: whether the last word of its output is the seconds that count; else the whole process counts.
        given: its standard input.

    Raises:
        BenchmarkError: it failed; with the end of its output.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    with subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        memory = TreeMemory(running.pid)
        memory.start()
        output, _ = running.communicate(given)
        seconds = time.monotonic() - begun
        memory.stop()
    if running.returncode:
        raise BenchmarkError(f"{' '.join(command)[:300]} failed:\n{output[-3000:]}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Taken(float(output.split()[-1]) if says else seconds, memory.peak, cpu)


class TreeMemory(threading.Thread):
    """Samples the resident memory of a process and its descendants, MiB, until it is stopped."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self._pid = pid
        self._before: set[int] = set()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Sample ten times a second."""
        while not self._stopped.wait(0.1):
            found = _tree(self._pid)
            # One that was just begun still shows the memory of the process that began it.
            known = [each for each in found if each.pid in self._before]
            self._before = {each.pid for each in found}
            self.peak = max(self.peak, sum(map(_resident, known)) / 2**20)

    def stop(self) -> None:
        """Take no further samples."""
        self._stopped.set()
        self.join()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _resident(one: psutil.Process) -> int:
    try:
        return int(one.memory_info().rss)
    except psutil.Error:
        return 0


def machine() -> dict[str, str]:
    """Return what the figures were measured on."""
    names = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in names if line.startswith("model name")), "")
    return {
        "processor": f"{len(os.sched_getaffinity(0))} x {model or platform.processor() or platform.machine()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": str(java_version()),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def commit() -> str:
    """Return the commit of the sources, with a mark when files differ from it; empty without git."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def document(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return comparisons as JSON holds them."""
    return [asdict(each) for each in comparisons]
