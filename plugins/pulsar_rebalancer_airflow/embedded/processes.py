"""Child processes that end with their parent: every one that was started, their descendants, and no other."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Self

import psutil

from pulsar_rebalancer_airflow.embedded.errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_GRACE_SECONDS = 10


class Processes:
    """Starts processes, each in a session of its own, and ends them with all that came of them.

    A session of its own keeps a Ctrl-C away from the children, so that this process decides the order of ending, and
    tells orphans: `airflow standalone` leaves its children behind when it is terminated, but they keep its session.
    """

    def __init__(self) -> None:
        self._started: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Start a process whose output goes to a file; returns its process id."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started[name] = (process, log)
        return process.pid

    def check(self) -> None:
        """Raise when a process that should run has ended.

        Raises:
            EmbeddedError: with the last lines of its log.
        """
        for name, (process, log) in self._started.items():
            if process.poll() is not None:
                raise EmbeddedError(
                    f"{name} ended with status {process.returncode}; its log {log} ends with:\n{tail(log)}"
                )

    def stop(self) -> None:
        """End what was started and all that came of it: asked first, killed after ten seconds."""
        leaders = {process.pid for process, _ in self._started.values()}
        for send in (psutil.Process.terminate, psutil.Process.kill):
            family = _family(leaders)
            for process in family:
                try:
                    send(process)
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(family, timeout=_GRACE_SECONDS)
        for leader, _ in self._started.values():
            leader.wait()
        self._started.clear()


def _family(leaders: set[int]) -> list[psutil.Process]:
    """The leaders, their descendants, and whatever else lives in the leaders' sessions."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.pid in leaders or os.getsid(process.pid) in leaders:
                found[process.pid] = process
                found.update((child.pid, child) for child in process.children(recursive=True))
        except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            continue
    return list(found.values())


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
