"""Child processes that are stopped, together with all their descendants, when this process ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psutil
from pydantic import JsonValue

from pulsar_rebalancer_airflow.embedded import EmbeddedError

_GRACE_SECONDS = 10
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Processes:
    """Starts processes, each in its own session, and stops them with all their descendants.

    In its own session, a child does not receive Ctrl-C, so this process determines the order of the shutdown;
    the session also identifies orphans. Signals that would end this process are delayed while a child is
    started and during the shutdown, so that no child is left running.
    """

    def __init__(self) -> None:
        self._started: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Start a process with its output redirected to a file, and return its process id."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with _signals_wait(), log.open("ab") as output:
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

    def run(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Run a process until it ends. Raises EmbeddedError with the last lines of its log if it failed."""
        self.start(name, command, environment, log)
        process, _ = self._started[name]
        if process.wait():
            self.check()
        del self._started[name]

    def listens(self, port: int) -> bool:
        """Return whether a started process or one of its descendants listens on this TCP port."""
        for process in _family(self._leaders()):
            with suppress(psutil.Error):
                listening = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
                if any(connection.laddr.port == port for connection in listening):
                    return True
        return False

    def check(self) -> None:
        """Raise EmbeddedError, with the last lines of the log, if a started process has ended."""
        for name, (process, log) in self._started.items():
            if process.poll() is not None:
                raise EmbeddedError(
                    f"{name} ended with status {process.returncode}; its log {log} ends with:\n{tail(log)}"
                )

    def stop(self) -> None:
        """Terminate all started processes and their descendants; kill those still alive after ten seconds."""
        with _signals_wait():
            leaders = self._leaders()
            for send in (psutil.Process.terminate, psutil.Process.kill):
                _send(send, _family(leaders))
            for leader, _ in self._started.values():
                leader.wait()
            self._started.clear()

    def _leaders(self) -> set[int]:
        return {process.pid for process, _ in self._started.values()}


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Delay signals during a `with` block; at its end, handle the first signal."""
    held: list[int] = []
    before = {number: signal.signal(number, lambda which, _: held.append(which)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])


def _send(send: Callable[[psutil.Process], None], family: Sequence[psutil.Process]) -> None:
    for process in family:
        with suppress(psutil.NoSuchProcess):
            send(process)
    psutil.wait_procs(family, timeout=_GRACE_SECONDS)


def _family(leaders: set[int]) -> list[psutil.Process]:
    family: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.pid in leaders or os.getsid(process.pid) in leaders:
                family[process.pid] = process
                family.update((child.pid, child) for child in process.children(recursive=True))
        except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            continue
    return list(family.values())


def tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])


_START_SECONDS = 60


def start(
    processes: Processes, folder: Path, *, brokers: int = 8, bundles: int = 200, hot_score: float = 85
) -> dict[str, JsonValue]:
    """Start a simulated cluster, wait until its brokers answer, and return the Airflow connection to it.

    `hot_score` is in percent. Raises EmbeddedError if the cluster ended or is not ready within a minute.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ready, token, log = folder / "ready.json", folder / "token", folder / "simulation.log"
    ready.unlink(missing_ok=True)
    options = {"token-file": token, "ready-file": ready, "brokers": brokers, "bundles": bundles, "hot-score": hot_score}
    # New values every second: otherwise a run would not see the moves of the run just before, and move too much.
    options |= {"stats-period": 1, "host-check-period": 1}
    command = [sys.executable, "-m", "pulsar_simulator", *(f"--{name}={value}" for name, value in options.items())]
    processes.start("the simulated cluster", command, os.environ, log)
    limit = time.monotonic() + _START_SECONDS
    while not ready.exists():
        processes.check()
        if time.monotonic() > limit:
            raise EmbeddedError(f"the simulated cluster was not ready within {_START_SECONDS} s; see {log}")
        time.sleep(0.1)
    url, password = urlsplit(json.loads(ready.read_text())["urls"][0]), token.read_text().strip()
    return {"conn_type": "pulsar_admin", "schema": "http", "host": url.hostname, "port": url.port, "password": password}
