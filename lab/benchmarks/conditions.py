"""Conditions that values are measured under: the sources, the machine, its load."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

import psutil

from lab.benchmarks.measure import ROOT
from pulsar_rebalancer_airflow.java import java_version

QUIET = 1.0
"""A load below this disturbs no value."""
WAIT_SECONDS = 600.0
DIRTY = "-dirty"
WRITTEN = "docs/performance.md"
"""What benchmarks themselves write: it may differ from the commit."""
_POLL_SECONDS = 10.0


def commit() -> str:
    """Return the commit of the sources, with `-dirty` when files differ from it or are new; empty without git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", f":!{WRITTEN}")
    return git("rev-parse", "--short", "HEAD") + DIRTY * bool(changed)


def machine() -> str:
    """Return processor, memory, system, Python and Java."""
    names = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in names if line.startswith("model name")), "")
    parts = (
        f"{len(os.sched_getaffinity(0))} x {model or platform.processor() or platform.machine()}",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        java_version().splitlines()[0].replace('"', ""),
    )
    return ", ".join(parts)


def load() -> float:
    """Return the mean number of running processes in the last minute."""
    return os.getloadavg()[0]


def wait_until_quiet(most: float) -> float:
    """Wait for a load below `QUIET`, print how it develops; return the seconds that this took."""
    begun = time.monotonic()
    print(f"load of the machine: {load():.2f}", flush=True)
    while load() >= QUIET and (waited := time.monotonic() - begun) < most:
        print(
            f"  {waited:4.0f} s  load {load():.2f}, waiting for less than {QUIET:g}, {most:.0f} s at most", flush=True
        )
        time.sleep(_POLL_SECONDS)
    if load() >= QUIET:
        print(f"  goes on UNDER LOAD ({load():.2f}): its values are too large, and the page will say so", flush=True)
    return time.monotonic() - begun
