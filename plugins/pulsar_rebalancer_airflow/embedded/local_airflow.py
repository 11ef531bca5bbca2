"""Airflow and a simulated cluster as child processes that end with this process; a client for Airflow's REST API."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypedDict
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx
import psutil
from pydantic import JsonValue

from pulsar_rebalancer_airflow.embedded import MakeRunError
from pulsar_rebalancer_airflow.embedded.airflow_home import AirflowHome

_STOP_GRACE_SECONDS = 10
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
        with _delay_signals(), log.open("ab") as output:
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
        """Run a process until it ends. Raises MakeRunError with the last lines of its log if it failed."""
        self.start(name, command, environment, log)
        process, _ = self._started[name]
        if process.wait():
            self.check_alive()
        del self._started[name]

    def is_listening(self, port: int) -> bool:
        """Return whether a started process or one of its descendants listens on this TCP port."""
        for process in _process_tree(self._session_leader_pids()):
            with suppress(psutil.Error):
                listening = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
                if any(connection.laddr.port == port for connection in listening):
                    return True
        return False

    def check_alive(self) -> None:
        """Raise MakeRunError, with the last lines of the log, if a started process has ended."""
        for name, (process, log) in self._started.items():
            if process.poll() is not None:
                raise MakeRunError(
                    f"{name} ended with status {process.returncode}; its log {log} ends with:\n{last_lines(log)}"
                )

    def stop(self) -> None:
        """Terminate all started processes and their descendants; kill those still alive after ten seconds."""
        with _delay_signals():
            leaders = self._session_leader_pids()
            for send in (psutil.Process.terminate, psutil.Process.kill):
                _signal_all(send, _process_tree(leaders))
            for leader, _ in self._started.values():
                leader.wait()
            self._started.clear()

    def _session_leader_pids(self) -> set[int]:
        return {process.pid for process, _ in self._started.values()}


@contextmanager
def _delay_signals() -> Iterator[None]:
    """Delay signals during a `with` block; at its end, handle the first signal."""
    held: list[int] = []
    before = {number: signal.signal(number, lambda which, _: held.append(which)) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])


def _signal_all(send_signal: Callable[[psutil.Process], None], processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            send_signal(process)
    psutil.wait_procs(processes, timeout=_STOP_GRACE_SECONDS)


def _process_tree(roots: set[int]) -> list[psutil.Process]:
    family: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.pid in roots or os.getsid(process.pid) in roots:
                family[process.pid] = process
                family.update((child.pid, child) for child in process.children(recursive=True))
        except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            continue
    return list(family.values())


def last_lines(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])


_CLUSTER_START_SECONDS = 60


def start_cluster(
    processes: Processes, folder: Path, *, brokers: int = 8, bundles: int = 200, hot_score: float = 85
) -> dict[str, JsonValue]:
    """Start a simulated cluster, wait until its brokers answer, and return the Airflow connection to it.

    `hot_score` is in percent. Raises MakeRunError if the cluster ended or is not ready within a minute.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ready, token, log = folder / "ready.json", folder / "token", folder / "simulation.log"
    ready.unlink(missing_ok=True)
    options = {"token-file": token, "ready-file": ready, "brokers": brokers, "bundles": bundles, "hot-score": hot_score}
    # New values every second: otherwise a run would not see the moves of the run just before, and move too much.
    options |= {"stats-period": 1, "host-check-period": 1}
    command = [sys.executable, "-m", "pulsar_simulator", *(f"--{name}={value}" for name, value in options.items())]
    processes.start("the simulated cluster", command, os.environ, log)
    limit = time.monotonic() + _CLUSTER_START_SECONDS
    while not ready.exists():
        processes.check_alive()
        if time.monotonic() > limit:
            raise MakeRunError(f"the simulated cluster was not ready within {_CLUSTER_START_SECONDS} s; see {log}")
        time.sleep(0.1)
    url, password = urlsplit(json.loads(ready.read_text())["urls"][0]), token.read_text().strip()
    return {"conn_type": "pulsar_admin", "schema": "http", "host": url.hostname, "port": url.port, "password": password}


_START_SECONDS, _RUN_SECONDS = 300, 600
_PAUSE_SECONDS = 0.5
_ENDED_STATES = {"success", "failed", "skipped", "upstream_failed", "removed"}

# Not `airflow standalone`, which would serve task logs on all addresses. Here task logs are read from files.
_COMPONENTS = (["api-server"], ["scheduler", "--skip-serve-logs"], ["dag-processor"])


class DagRun(TypedDict):
    """A DAG run from the API, with the fields used here; times are ISO 8601 strings, None until reached."""

    dag_run_id: str
    state: str
    start_date: str
    end_date: str


class TaskInstance(TypedDict):
    """A task instance from the API, with the fields used here; the state is None until scheduling."""

    task_id: str
    state: str | None
    start_date: str
    end_date: str


class LocalAirflow:
    """An Airflow installation with its own home folder. It is started once and used through its REST API."""

    def __init__(self, home: AirflowHome, processes: Processes) -> None:
        self.home = home
        self._processes = processes
        self._client = httpx.Client(base_url=home.url, timeout=30, trust_env=False)

    def start(self) -> None:
        """Start Airflow. Raises MakeRunError if a process ended or Airflow is not healthy in five minutes."""
        self._start_component(["db", "migrate"], self._processes.run)
        for arguments in _COMPONENTS:
            self._start_component(arguments, self._processes.start)
        for _ in self._poll_processes(_START_SECONDS):
            if self._is_healthy():
                self._log_in()
                self._start_component(["triggerer", "--skip-serve-logs"], self._processes.start)
                return
        raise MakeRunError(f"Airflow was not healthy within {_START_SECONDS} s; see {self.home.folder / 'logs'}")

    def _poll_processes(self, seconds: float) -> Iterator[None]:
        """Yield every half second for `seconds`; raise an error if a process has ended."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self._processes.check_alive()
            yield
            time.sleep(_PAUSE_SECONDS)

    def _start_component(self, arguments: list[str], start_process: Callable[..., object]) -> None:
        log = self.home.folder / "logs" / f"{arguments[0]}.log"
        command = [str(Path(sys.executable).parent / "airflow"), *arguments]
        start_process(f"airflow {arguments[0]}", command, self.home.environment(), log)

    def _is_healthy(self) -> bool:
        if not self._processes.is_listening(self.home.port):
            return False
        try:
            health = self._client.get("/api/v2/monitor/health").json()
        except (httpx.HTTPError, ValueError):
            return False
        parts = ("metadatabase", "scheduler", "dag_processor")
        return self.home.password_file.exists() and all(health[part]["status"] == "healthy" for part in parts)

    @property
    def password(self) -> str:
        return str(json.loads(self.home.password_file.read_text(encoding="utf-8"))["admin"])

    def _log_in(self) -> None:
        """Log in, but only to the server started here, so that no other program on the port receives the password."""
        if not self._processes.is_listening(self.home.port):
            raise MakeRunError(f"another program took port {self.home.port}; run the command again")
        login = {"username": "admin", "password": self.password}
        answer = self._send_request("POST", "/auth/token", json=login)
        if answer.is_error:
            raise MakeRunError(f"Airflow answered {answer.status_code} to the login: {answer.text[:500]}")
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def get(self, path: str, **query: Any) -> Any:
        return self.request("GET", path, httpx.codes.NOT_FOUND, params=query)

    def request(self, method: str, path: str, expected_status: int, **options: Any) -> Any:
        url = f"/api/v2{path}"
        answer = self._send_request(method, url, **options)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._log_in()
            answer = self._send_request(method, url, **options)
        if answer.status_code == expected_status:
            return None
        if answer.is_error:
            raise MakeRunError(f"Airflow answered {answer.status_code} to {method} {path}: {answer.text[:500]}")
        return answer.json() if answer.content else None

    def _send_request(self, method: str, url: str, **options: Any) -> httpx.Response:
        """Send a request; retry after a server error, because the machine might be busy or SQLite locked."""
        limit = time.monotonic() + _START_SECONDS
        while True:
            self._processes.check_alive()
            again = time.monotonic() < limit
            try:
                answer = self._client.request(method, url, **options)
            except httpx.TransportError as error:
                if not again:
                    raise MakeRunError(f"Airflow did not answer {method} {url} ({type(error).__name__})") from error
            else:
                if not (again and answer.is_server_error):
                    return answer
            time.sleep(_PAUSE_SECONDS)

    def wait_for_dag(self, dag_id: str) -> None:
        """Wait until the DAG processor has loaded a DAG.

        Raises MakeRunError if a DAG file cannot be imported, or the DAG does not appear within five minutes.
        """
        for _ in self._poll_processes(_START_SECONDS):
            if self.get(f"/dags/{dag_id}") is not None:
                return
            found = self.get("/importErrors")
            if found and found["import_errors"]:
                raise MakeRunError(f"a DAG file cannot be imported: {found['import_errors'][0]['stack_trace'][-800:]}")
        raise MakeRunError(f"DAG {dag_id} did not appear within {_START_SECONDS} s")

    def trigger(self, dag_id: str, conf: Mapping[str, JsonValue] | None = None) -> str:
        # With this id Airflow starts one run, however often it is asked to.
        run_id = f"manual__{uuid4()}"
        order = {"dag_run_id": run_id, "logical_date": None, "conf": conf or {}}
        self.request("POST", f"/dags/{dag_id}/dagRuns", httpx.codes.CONFLICT, json=order)
        return run_id

    def get_run(self, dag_id: str, run_id: str) -> DagRun:
        run: DagRun = self.get(f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}")
        return run

    def runs(self, dag_id: str) -> list[DagRun]:
        latest_first: list[DagRun] = self.get(f"/dags/{dag_id}/dagRuns", order_by="-run_after", limit=100)["dag_runs"]
        return latest_first[::-1]

    def tasks(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        path = f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances"
        instances: list[TaskInstance] = self.get(path, limit=200)["task_instances"]
        return instances

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        path = f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}/xcomEntries/return_value"
        entry = self.get(path)
        return None if entry is None else entry["value"]

    def wait(self, dag_id: str, run_id: str) -> DagRun:
        """Wait until a run has ended. Raises MakeRunError after ten minutes."""
        for _ in self._poll_processes(_RUN_SECONDS):
            run = self.get_run(dag_id, run_id)
            if run["state"] in ("success", "failed"):
                return run
        states = {task["task_id"]: task["state"] for task in self.tasks(dag_id, run_id)}
        logs = self.home.folder.glob(f"logs/dag_id={dag_id}/run_id={run_id}/**/*.log")
        latest = max(logs, key=lambda log: log.stat().st_mtime, default=None)
        said = f"; the latest log ends with:\n{last_lines(latest)}" if latest else ""
        raise MakeRunError(f"run {run_id} did not end within {_RUN_SECONDS} s; its tasks: {states}{said}")

    def ended_runs(self, dag_id: str) -> Iterator[DagRun]:
        """Yield each run of a DAG once, when the run and all its tasks have ended. This iterator never ends."""
        seen: set[str] = set()
        for _ in self._poll_processes(math.inf):
            for run in self.runs(dag_id):
                run_id = run["dag_run_id"]
                if run["state"] in ("success", "failed") and run_id not in seen and self._has_ended(dag_id, run_id):
                    seen.add(run_id)
                    yield run

    def _has_ended(self, dag_id: str, run_id: str) -> bool:
        return all(task["state"] in _ENDED_STATES for task in self.tasks(dag_id, run_id))
