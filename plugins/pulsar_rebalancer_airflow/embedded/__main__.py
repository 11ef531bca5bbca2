"""`make run`: run a cluster, Airflow and the DAG on this machine, and print each run's result in the terminal."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from pydantic import JsonValue

from pulsar_rebalancer.config.field_types import DEFAULT_STRATEGY, Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import RebalancerError, SettingsError
from pulsar_rebalancer.pulsar import AdminConnection
from pulsar_rebalancer.strategies.shedders.registry import profile_of
from pulsar_rebalancer.texts import number_of
from pulsar_rebalancer_airflow.embedded import EmbeddedError, child_processes
from pulsar_rebalancer_airflow.embedded.airflow_home import SOURCE, AirflowHome, locked
from pulsar_rebalancer_airflow.embedded.child_processes import ENDING, Processes
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow
from pulsar_rebalancer_airflow.embedded.run_line import describe
from pulsar_rebalancer_airflow.options import PAGE_ROUTE
from pulsar_rebalancer_airflow.spark_archive import cached_archive

_CONNECTION = "pulsar_admin_embedded"
_SPARK: dict[str, JsonValue] = {"conn_type": "spark", "host": "local[2]"}
_BUNDLES_EACH = 25
_HOT_SCORE = 85.0
_ONCE_RUNS = 50
_ONCE_FAILURES = 3


def main(arguments: list[str] | None = None) -> int:
    """Run until interrupted or, with `--once`, until the cluster is balanced; return the exit code."""
    given = _parser().parse_args(arguments)
    os.umask(0o077)  # inherited by every child: only the owner may read the database, logs and runs
    # Shells start background commands with SIGINT ignored.
    for number in ENDING:
        signal.signal(number, _interrupt)
    processes = Processes()
    try:
        with locked(given.folder) as given.folder, processes:
            try:
                return _run(given, processes)
            except KeyboardInterrupt:
                _say("stopping all processes")
    except (EmbeddedError, RebalancerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # the signal arrived as the shutdown began, and interrupted it
        processes.stop()
    return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--once", action="store_true", help="exit once bundles have moved and the cluster is balanced")
    parser.add_argument("--pulsar", metavar="URL", help="observe this cluster instead of a simulated one")
    # Plain strings: the clusters file is YAML, which knows no enumeration.
    strategies = [strategy.value for strategy in Strategy]
    parser.add_argument("--strategy", choices=strategies, default=DEFAULT_STRATEGY, help="the shedder")
    parser.add_argument("--brokers", type=int, metavar="N", default=8, help="number of simulated brokers (8)")
    parser.add_argument("--interval", type=float, metavar="S", help="seconds between runs (15; 60 with --pulsar)")
    parser.add_argument("--folder", type=Path, default=SOURCE / ".run", help="folder for all files (.run)")
    return parser


def _run(given: argparse.Namespace, processes: Processes) -> int:
    name, entry, connection = _own_cluster(given) if given.pulsar else _simulated_cluster(given, processes)
    archive = cached_archive(SOURCE / ".cache", lambda: _say("preparing Spark's class archive (once, half a minute)"))
    home = AirflowHome(
        folder=given.folder / name,
        clusters={name: entry | {"connection": _CONNECTION}},
        connections={_CONNECTION: connection, "spark_default": _SPARK},
        spark_archive=archive,
    )
    home.prepare(keep=bool(given.pulsar))
    _say("starting Airflow (half a minute)")
    airflow = LocalAirflow(home, processes)
    airflow.start()
    dag_id = f"pulsar_rebalance__{name}"
    airflow.wait_for_dag(dag_id)
    _say(f"Airflow UI: {home.url}/dags/{dag_id}  login: admin  password: {airflow.password}")
    _say(f"cluster page in the same UI: {home.url}/dags/{dag_id}/plugin/{PAGE_ROUTE}-dag")
    _say(f"{entry['strategy']} every {entry['interval_seconds']:g} s in mode {entry['mode']}; Ctrl-C stops everything")
    _say("one line per run: range of scores, pairs over the low threshold, most hits of a pair, verdict, seconds")
    _say(f"decisions, moves and validation page of each run: {home.folder / 'storage' / name / 'runs'}")
    return _watch(airflow, dag_id, once=given.once, acts=not given.pulsar)


def _simulated_cluster(
    given: argparse.Namespace, processes: Processes
) -> tuple[str, dict[str, JsonValue], dict[str, JsonValue]]:
    bundles = _BUNDLES_EACH * given.brokers
    _say(f"starting the simulated cluster: {given.brokers} brokers, {bundles} bundles, one broker hot, one empty")
    settings = Settings(strategy=given.strategy)
    # Strategies with a fixed upper line need a broker well above it; others act on much smaller differences.
    lines = profile_of(settings).lines(settings, None)
    hot_score = max([_HOT_SCORE, *(line.upper + 10 for line in lines)])
    connection = child_processes.start(
        processes, given.folder / "simulation", brokers=given.brokers, bundles=bundles, hot_score=hot_score
    )
    interval = given.interval or 15
    # A run may take minutes on a busy machine; the delay must not reset the hits.
    entry: dict[str, JsonValue] = {
        "mode": "auto",
        "strategy": given.strategy,
        "interval_seconds": interval,
        # The simulated brokers sample their host every second.
        "host_usage_interval_minutes": 1 / 60,
        "state_max_gap": max(3, 600 / interval),
        # The simulated brokers report at once: two runs after an unload, the new load is shown.
        "shedding_delay_seconds": 2 * interval,
    }
    return "simulated", entry, connection


def _own_cluster(given: argparse.Namespace) -> tuple[str, dict[str, JsonValue], dict[str, JsonValue]]:
    """Return name, entry and connection; a read-only connection and the mode `observe` prevent any move."""
    try:
        url = urlsplit(AdminConnection(seeds=(given.pulsar,)).seeds[0])
    except SettingsError as error:
        raise EmbeddedError(
            f"PULSAR must be the address of a broker such as http://broker:8080 ({error.message})"
        ) from None
    if url.path:
        raise EmbeddedError(f"PULSAR must be the address of a broker such as http://broker:8080, without {url.path!r}")
    port = url.port or (8443 if url.scheme == "https" else 8080)
    connection: dict[str, JsonValue] = {
        "conn_type": "pulsar_admin",
        "schema": url.scheme,
        "host": url.hostname,
        "port": port,
        "password": os.environ.get("PULSAR_TOKEN", ""),
        "extra": {"read_only": True, "ca_file": os.environ.get("PULSAR_CA_FILE", "")},
    }
    # One name per cluster, so that clusters never share state or counters.
    name = re.sub(r"[^A-Za-z0-9.-]", "-", f"own-{url.hostname}-{port}")[:60]
    entry: dict[str, JsonValue] = {
        "mode": "observe",
        "strategy": given.strategy,
        "interval_seconds": given.interval or 60,
    }
    return name, entry, connection


def _watch(airflow: LocalAirflow, dag_id: str, *, once: bool, acts: bool) -> int:
    failures, moved, in_force = 0, not acts, ""
    for number, run in enumerate(airflow.ended_runs(dag_id), start=1):
        line = describe(airflow, dag_id, run, number)
        print(line.text, flush=True)
        # The start messages already named the mode; an order adds a semicolon.
        if line.in_force and line.in_force != in_force and ";" in line.in_force + in_force:
            _say(line.in_force)
        in_force = line.in_force or in_force
        failures = failures + 1 if line.failed else 0
        moved = moved or line.moved
        if once and line.balanced and moved:
            _say(f"balanced after {number_of(number, 'run')}: nothing more to move")
            return 0
        if once and failures == _ONCE_FAILURES:
            raise EmbeddedError(f"not balanced: {failures} runs in a row failed, the last one with: {line.failed}")
        if once and number == _ONCE_RUNS:
            missed = "not balanced" if moved else "nothing was moved"
            raise EmbeddedError(f"{missed} after {number_of(number, 'run')}; the last one: {line.text}")
    return 0


def _say(text: str) -> None:
    print(f"-- {text}", flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Interrupt the program at the first signal. Further signals are ignored, so that the shutdown completes."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
