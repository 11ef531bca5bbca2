"""The process of a task is killed, and Airflow's scheduler tries the task again."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from pulsar_rebalancer.plan import read_moves
from pulsar_rebalancer.simulation.clock import RealClock
from pulsar_rebalancer.simulation.load import QUIET
from pulsar_rebalancer.simulation.sampling import Timing
from pulsar_rebalancer.simulation.scenario import build
from pulsar_rebalancer.simulation.serve import running
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer_airflow.embedded.airflow import Airflow
from pulsar_rebalancer_airflow.embedded.archive import archive_path, make_archive
from pulsar_rebalancer_airflow.embedded.home import SOURCE, Home
from pulsar_rebalancer_airflow.embedded.processes import Processes
from pulsar_rebalancer_airflow.outcome import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.simulation.serve import Running

pytestmark = pytest.mark.integration

DAG = "pulsar_rebalance__east"


def connected(served: Running) -> psutil.Process:
    """The process that is connected to brokers."""
    ports = {int(url.rpartition(":")[2]) for url in served.urls}
    found = {c.pid for c in psutil.net_connections("tcp") if c.raddr and c.raddr.port in ports} - {None, os.getpid()}
    (pid,) = found
    return psutil.Process(pid)


def test_a_wave_whose_process_is_killed_is_carried_on_by_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bundles are unloaded, then the brokers fall silent and the process is killed."""
    cluster = build(
        brokers=4,
        bundles=60,
        noise=QUIET,
        timing=Timing(stats_period=1, host_check_period=1, report_max_interval=5),
        clock=RealClock(),
    )
    unloads: Counter[str] = Counter()
    silent = threading.Event()
    hop = cluster.unload_at

    def unload_at(at: int, namespace: str, range_text: str, destination: str | None = None) -> Any:
        further = hop(at, namespace, range_text, destination)
        if further is None:
            unloads[f"{namespace}/{range_text}"] += 1
            if sum(unloads.values()) == 2:
                cluster.faults.add("silent")
                silent.set()
        return further

    monkeypatch.setattr(cluster, "unload_at", unload_at)
    with running(cluster) as served, Processes() as processes:
        host = ",".join(url.removeprefix("http://") for url in served.urls)
        archive = archive_path(SOURCE / ".cache")
        if not archive.exists():
            make_archive(archive)
        home = Home(
            folder=tmp_path / "airflow",
            clusters={"east": {"mode": "auto", "interval_seconds": 86400, "unload_concurrency": 2}},
            connections={
                "pulsar_admin_default": {"conn_type": "pulsar_admin", "host": host, "password": served.token},
                "spark_default": {"conn_type": "spark", "host": "local[2]"},
            },
            spark_archive=archive,
        )
        home.prepare(keep=False)
        airflow = Airflow(home, processes)
        airflow.start()
        airflow.wait_for_dag(DAG)
        run_id = airflow.trigger(DAG, {"force": "a process will be killed", "force_threshold": 5})
        while not silent.wait(1):
            processes.check()
        victim = connected(served)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        cluster.faults.clear()
        run = airflow.wait(DAG, run_id)
        tries = sorted((task["task_id"], task["try_number"]) for task in airflow.tasks(DAG, run_id))
        folder = Folder(airflow.xcom(DAG, run_id, "collect"))

    assert run["state"] == "success", tries
    assert [task for task, number in tries if number > 1] == ["unload"]
    moves = read_moves(folder)
    assert len(moves) > 2
    assert {move.bundle: cluster.owner(move.bundle) for move in moves} == {m.bundle: m.destination for m in moves}
    assert Outcome.read(folder).counts == {"moved": len(moves)}
    assert unloads == dict.fromkeys((move.bundle for move in moves), 1)
