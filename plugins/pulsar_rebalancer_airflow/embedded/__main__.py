"""`make run`: run a cluster, Airflow and the DAG on this machine, and print each run's result in the terminal."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from pydantic import JsonValue

from pulsar_rebalancer.config.field_types import DEFAULT_STRATEGY, Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import RebalancerError, SettingsError, SnapshotError
from pulsar_rebalancer.pulsar import AdminConnection
from pulsar_rebalancer.reasons import Effect, Reason, Trait, reasons_text
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import Threshold
from pulsar_rebalancer.strategies.shedders.registry import profile_of
from pulsar_rebalancer.texts import number_of
from pulsar_rebalancer_airflow.embedded import MakeRunError, local_airflow
from pulsar_rebalancer_airflow.embedded.airflow_home import CHECKOUT, AirflowHome, lock_folder
from pulsar_rebalancer_airflow.embedded.local_airflow import ENDING_SIGNALS, DagRun, LocalAirflow, Processes
from pulsar_rebalancer_airflow.options import PAGE_ROUTE, PREFIX
from pulsar_rebalancer_airflow.spark_archive import cached_archive


@dataclass(frozen=True)
class RunLine:
    """The line printed for one run, and the run's result.

    Attributes:
        is_balanced: the run plans no moves, and hit counts or a grace period delay none. If the strategy pairs
            brokers, the score range is also below the low threshold.
        has_moved: at least one move was verified.
        why_failed: why the run failed; empty if it succeeded.
        orders_text: sentence about the orders at the run's end and who gave them; empty if unknown.
    """

    text: str
    is_balanced: bool = False
    has_moved: bool = False
    why_failed: str = ""
    orders_text: str = ""


def describe_run(airflow: LocalAirflow, dag_id: str, run: DagRun, number: int) -> RunLine:
    begun, ended = (datetime.fromisoformat(run[name]) for name in ("start_date", "end_date"))
    head = f"{begun.astimezone():%H:%M:%S}  run {number:<3}"
    seconds = f"{(ended - begun).total_seconds():.1f} s"
    uri = airflow.xcom(dag_id, run["dag_run_id"], "collect")
    if run["state"] == "failed":
        reason = _failure_text(airflow, dag_id, run["dag_run_id"], uri)
        return RunLine(f"{head} FAILED  {reason}  {seconds}", why_failed=reason)
    try:
        summary, outcome = Summary.read(StoragePath(uri)), Outcome.read(StoragePath(uri))
    except (SnapshotError, AttributeError):
        return RunLine(f"{head} the run ended without a plan  {seconds}")
    text = f"{head} {_scores_text(summary)}  {_progress_text(summary)}  {_verdict_text(summary, outcome)}  {seconds}"
    moved = any(move.ok for move in outcome.moves)
    return RunLine(text, is_balanced(summary), has_moved=moved, orders_text=outcome.in_force)


def is_balanced(summary: Summary) -> bool:
    later = Reason.RECENTLY_UNLOADED in summary.bundle_skip_reasons
    if summary.bundles_taken or later or Reason.with_trait(Trait.WAITING) & summary.reasons.keys():
        return False
    thresholds = _thresholds(summary)
    return not thresholds or summary.score_range < thresholds["low"].gap


def _thresholds(summary: Summary) -> Mapping[str, Threshold]:
    settings = summary.resolved.settings
    return profile_of(settings).thresholds(settings)


def _scores_text(summary: Summary) -> str:
    if summary.score_min is None or summary.score_max is None:
        return "no broker has a score"
    return f"range {summary.score_range:4.1f} ({summary.score_min:.1f} to {summary.score_max:.1f} %)"


def _progress_text(summary: Summary) -> str:
    thresholds = _thresholds(summary)
    if not thresholds:
        return f"{summary.resolved.settings.strategy}: {summary.sentence}"
    over = f"pairs over threshold: {summary.pairs_over} of {summary.pairs}"
    required = ((kind, threshold.hits) for kind, threshold in thresholds.items())
    hits = (f"{have}/{need} {kind}" for have, (kind, need) in zip(summary.hits, required, strict=False))
    return f"{over}, hits {' '.join(hits)}" if summary.pairs_over else over


def _verdict_text(summary: Summary, outcome: Outcome) -> str:
    if outcome.moves:
        verified = sum(move.ok for move in outcome.moves)
        others: dict[Reason, int] = {
            reason: count
            for reason, count in outcome.move_counts.items()
            if reason not in (Reason.MOVED, Reason.ALREADY_THERE)
        }
        named = f", {reasons_text(others)}" if others else ""
        return f"fired: {verified} of {number_of(len(outcome.moves), 'bundle')} moved and verified{named}"
    if summary.bundles_taken:
        return f"would move {number_of(summary.bundles_taken, 'bundle')}. {outcome.verdict.meaning}"
    if Reason.with_trait(Trait.STUCK) & summary.reasons.keys():
        return "unbalanced, but no move helps"
    if summary.pairs_fired:
        return "fired, but nothing to move"
    return "waiting" if Reason.with_trait(Trait.WAITING) & summary.reasons.keys() else "balanced: nothing to do"


def _failure_text(airflow: LocalAirflow, dag_id: str, run_id: str, uri: str | None) -> str:
    tasks = [task["task_id"] for task in airflow.tasks(dag_id, run_id) if task["state"] == "failed"]
    where = ", ".join(tasks) or "the run"
    if uri and (StoragePath(uri) / "validation.json").exists():
        blocks = Validation.read(StoragePath(uri)).reason_counts(Effect.BLOCK)
        if blocks:
            return f"{where}: " + " ".join(f"{code}: {Reason(code).meaning} {Reason(code).action}" for code in blocks)
    return f"{where} failed; see the log in the UI"


_CONNECTION_ID = "pulsar_admin_embedded"
_SPARK_CONNECTION: dict[str, JsonValue] = {"conn_type": "spark", "host": "local[2]"}
_BUNDLES_PER_BROKER = 25
_HOT_SCORE = 85.0
_MAX_RUNS_UNTIL_BALANCED = 50
_MAX_FAILED_RUNS = 3


def main(arguments: list[str] | None = None) -> int:
    """Run until interrupted or, with `--once`, until the cluster is balanced; return the exit code."""
    args = _parser().parse_args(arguments)
    os.umask(0o077)  # inherited by every child: only the owner may read the database, logs and runs
    # Shells start background commands with SIGINT ignored.
    for number in ENDING_SIGNALS:
        signal.signal(number, _raise_interrupt)
    processes = Processes()
    try:
        with lock_folder(args.folder) as args.folder, processes:
            try:
                return _run(args, processes)
            except KeyboardInterrupt:
                _say("stopping all processes")
    except (MakeRunError, RebalancerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # the signal arrived as the shutdown began, and interrupted it
        processes.stop()
    return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--once", action="store_true", help="exit once bundles have moved and the cluster is balanced")
    parser.add_argument("--pulsar", metavar="URL", help="observe this broker's cluster instead of a simulated one")
    # Plain strings: the clusters file is YAML, which knows no enumeration.
    strategies = [strategy.value for strategy in Strategy]
    parser.add_argument("--strategy", choices=strategies, default=DEFAULT_STRATEGY, help="the shedder to use")
    parser.add_argument("--brokers", type=int, metavar="N", default=8, help="number of simulated brokers (default: 8)")
    parser.add_argument("--interval", type=float, metavar="S", help="seconds between runs (15; 60 with --pulsar)")
    parser.add_argument("--folder", type=Path, default=CHECKOUT / ".run", help="folder for all files (default: .run)")
    return parser


def _run(args: argparse.Namespace, processes: Processes) -> int:
    name, entry, connection = _existing_cluster(args) if args.pulsar else _start_simulated_cluster(args, processes)
    archive = cached_archive(CHECKOUT / ".cache", lambda: _say("preparing Spark's class archive (once, half a minute)"))
    home = AirflowHome(
        folder=args.folder / name,
        cluster_settings={name: entry | {"connection": _CONNECTION_ID}},
        connections={_CONNECTION_ID: connection, "spark_default": _SPARK_CONNECTION},
        spark_archive=archive,
    )
    home.prepare(keep_data=bool(args.pulsar))
    _say("starting Airflow (half a minute)")
    airflow = LocalAirflow(home, processes)
    airflow.start()
    dag_id = f"pulsar_rebalance__{name}"
    airflow.wait_for_dag(dag_id)
    _say(f"Airflow UI: {home.url}/dags/{dag_id}  login: admin  password: {airflow.password}")
    _say(f"cluster page in the same UI: {home.url}/plugin/{PAGE_ROUTE}{PREFIX}/page/{dag_id}")
    _say(f"{entry['strategy']} every {entry['interval_seconds']:g} s in mode {entry['mode']}; Ctrl-C stops everything")
    _say("one line per run: range of scores, pairs over the low threshold, most hits of a pair, verdict, seconds")
    _say(f"decisions, moves and validation page of each run: {home.folder / 'storage' / name / 'runs'}")
    return _watch_runs(airflow, dag_id, one_run=args.once, may_act=not args.pulsar)


def _start_simulated_cluster(
    args: argparse.Namespace, processes: Processes
) -> tuple[str, dict[str, JsonValue], dict[str, JsonValue]]:
    bundles = _BUNDLES_PER_BROKER * args.brokers
    _say(f"starting the simulated cluster: {args.brokers} brokers, {bundles} bundles, one broker hot, one empty")
    settings = Settings(strategy=args.strategy)
    # Strategies with a fixed upper line need a broker well above it; others act on much smaller differences.
    lines = profile_of(settings).lines(settings, None)
    hot_score = max([_HOT_SCORE, *(line.upper + 10 for line in lines)])
    connection = local_airflow.start_cluster(
        processes, args.folder / "simulation", brokers=args.brokers, bundles=bundles, hot_score=hot_score
    )
    interval = args.interval or 15
    # A run may take minutes on a busy machine; the delay must not reset the hits.
    entry: dict[str, JsonValue] = {
        "mode": "auto",
        "strategy": args.strategy,
        "interval_seconds": interval,
        # The simulated brokers sample their host every second.
        "host_usage_interval_minutes": 1 / 60,
        "state_max_gap": max(3, 600 / interval),
        # The simulated brokers report at once: two runs after an unload, the new load is shown.
        "shedding_delay_seconds": 2 * interval,
    }
    return "simulated", entry, connection


def _existing_cluster(args: argparse.Namespace) -> tuple[str, dict[str, JsonValue], dict[str, JsonValue]]:
    """Return name, entry and connection; a read-only connection and the mode `observe` prevent any move."""
    try:
        url = urlsplit(AdminConnection(seeds=(args.pulsar,)).seeds[0])
    except SettingsError as error:
        raise MakeRunError(
            f"PULSAR must be the address of a broker such as http://broker:8080 ({error.message})"
        ) from None
    if url.path:
        raise MakeRunError(f"PULSAR must be the address of a broker such as http://broker:8080, without {url.path!r}")
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
        "strategy": args.strategy,
        "interval_seconds": args.interval or 60,
    }
    return name, entry, connection


def _watch_runs(airflow: LocalAirflow, dag_id: str, *, one_run: bool, may_act: bool) -> int:
    failures, moved, in_force = 0, not may_act, ""
    for number, run in enumerate(airflow.ended_runs(dag_id), start=1):
        line = describe_run(airflow, dag_id, run, number)
        print(line.text, flush=True)
        # The start messages already named the mode; an order adds a semicolon.
        if line.orders_text and line.orders_text != in_force and ";" in line.orders_text + in_force:
            _say(line.orders_text)
        in_force = line.orders_text or in_force
        failures = failures + 1 if line.why_failed else 0
        moved = moved or line.has_moved
        if one_run and line.is_balanced and moved:
            _say(f"balanced after {number_of(number, 'run')}: nothing more to move")
            return 0
        if one_run and failures == _MAX_FAILED_RUNS:
            raise MakeRunError(f"not balanced: {failures} runs in a row failed. Last failure: {line.why_failed}")
        if one_run and number == _MAX_RUNS_UNTIL_BALANCED:
            missed = "not balanced" if moved else "nothing was moved"
            raise MakeRunError(f"{missed} after {number_of(number, 'run')}; the last run: {line.text}")
    return 0


def _say(text: str) -> None:
    print(f"-- {text}", flush=True)


def _raise_interrupt(_number: int, _frame: FrameType | None) -> None:
    """Interrupt the program at the first signal. Further signals are ignored, so that the shutdown completes."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
