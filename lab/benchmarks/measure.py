"""Seconds and memory of processes, measured in turns with what they are compared with, and goals for them."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]


class BenchmarkError(Exception):
    """The measured program failed, or its result differs from that of its yardstick."""


@dataclass(frozen=True)
class Taken:
    """The cost of one repetition.

    Attributes:
        seconds: wall-clock time.
        mib: peak resident memory of the process and its descendants together, MiB.
    """

    seconds: float
    mib: float = 0.0


@dataclass(frozen=True)
class Goal:
    """The number of seconds that a median should not exceed.

    Attributes:
        seconds: goal computed from the medians of the yardsticks.
        least: the same, computed from their fastest repetitions.
        most: the same, computed from their slowest repetitions.
        words: how the yardsticks decide it; empty for a fixed goal.
    """

    seconds: float
    least: float
    most: float
    words: str = ""

    @classmethod
    def of(cls, rule: Callable[..., float], *yardsticks: Sequence[Taken], words: str = "") -> Goal:
        """Return the goal that a rule gives for the seconds of its yardsticks."""
        seconds = [[one.seconds for one in yardstick] for yardstick in yardsticks]
        middle, least, most = (rule(*map(chosen, seconds)) for chosen in (statistics.median, min, max))
        return cls(middle, least, most, words)

    @classmethod
    def fixed(cls, seconds: float, words: str = "") -> Goal:
        """Return a goal without a yardstick."""
        return cls(seconds, seconds, seconds, words)

    def verdict(self, taken: Sequence[Taken]) -> str:
        """Return `met` or `missed`, and `within noise` where repetitions or yardsticks are on both sides."""
        own = [one.seconds for one in taken]
        verdicts = {median(taken) <= limit for limit in (self.least, self.seconds, self.most)}
        verdicts |= {seconds <= self.seconds for seconds in (min(own), max(own))}
        return ("met" if median(taken) <= self.seconds else "missed") + " within noise" * (len(verdicts) > 1)


@dataclass(frozen=True)
class Comparison:
    """One line of a part: what was measured, next to its yardsticks.

    Attributes:
        name: what was measured, such as `AvgShedder, 200 x 128`.
        taken: repetitions by subject; the first subject is what is measured.
        goal: goal for the first subject's seconds.
        goal_mib: goal for its peak memory, MiB.
        notes: further results, such as the number of bundles moved.
        remark: text for the page's table, next to the values.
    """

    name: str
    taken: dict[str, list[Taken]]
    goal: Goal | None = None
    goal_mib: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    remark: str = ""


def median(taken: Sequence[Taken]) -> float:
    """Return the median seconds of repetitions."""
    return statistics.median(one.seconds for one in taken)


def peak(taken: Sequence[Taken]) -> float:
    """Return the largest memory of repetitions, MiB."""
    return max(one.mib for one in taken)


def alternately(subjects: Mapping[str, Callable[[], Taken]], repetitions: int) -> dict[str, list[Taken]]:
    """Measure subjects in turns, so that anything that slows the machine down temporarily affects all of them."""
    taken: dict[str, list[Taken]] = {name: [] for name in subjects}
    for _ in range(repetitions):
        for name, measured in subjects.items():
            taken[name].append(measured())
    return taken


def process(
    command: Sequence[str], environment: Mapping[str, str] | None = None, *, says: bool = False, given: str = ""
) -> Taken:
    """Run a command to its end.

    Args:
        command: program and arguments.
        environment: the process's environment; None for that of this process.
        says: True if the last word of the output is the result in seconds; False to time the whole process.
        given: standard input of the process.

    Raises:
        BenchmarkError: the command failed; the message has the end of its output.
    """
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
    return Taken(float(output.split()[-1]) if says else seconds, memory.peak)


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
            processes = _tree(self._pid)
            # One that was just begun still shows the memory of the process that began it.
            known = [one for one in processes if one.pid in self._before]
            self._before = {one.pid for one in processes}
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
