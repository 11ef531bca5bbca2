"""Report how old the latest outcome and decision of a cluster are.

Run this command on a machine without Airflow, because a scheduler that is down
sends no alerts. The command prints one line and exits as a Nagios plugin does:

  0  OK
  1  WARNING: runs end, but no decision was committed within the limit
  2  CRITICAL: no run ended with an outcome within the limit, the files cannot be
     read, or an option is wrong
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import CLUSTER_NAME
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import MAX_CLOCK_SKEW, ClusterStorage, CommitMark, last_committed_run

OK, WARNING, CRITICAL = 0, 1, 2
_STATUS_NAMES = {OK: "OK", WARNING: "WARNING", CRITICAL: "CRITICAL"}


@dataclass(frozen=True)
class RunAges:
    outcome: float | None
    decision: float | None


def read_ages(storage: ClusterStorage, now: datetime) -> RunAges:
    return RunAges(_seconds_since(_outcome_time(storage, now), now), _seconds_since(_decision_time(storage, now), now))


def _seconds_since(time: datetime | None, now: datetime) -> float | None:
    return None if time is None else max(0.0, (now - time).total_seconds())


def _outcome_time(storage: ClusterStorage, now: datetime) -> datetime | None:
    # Ignore runs from the future: a clock has since been set back.
    for run in storage.latest_runs(now + MAX_CLOCK_SKEW):
        file = run / "outcome.json"
        if file.exists():
            try:
                return datetime.fromisoformat(file.read_json()["ended_at"]).astimezone(UTC)
            except (KeyError, TypeError, ValueError):
                raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri} has no valid ended_at") from None
    return None


def _decision_time(storage: ClusterStorage, now: datetime) -> datetime | None:
    run = last_committed_run(storage, now + MAX_CLOCK_SKEW)
    return CommitMark.read(run).at if run else None


def status_code(ages: RunAges, max_age_s: float) -> int:
    if ages.outcome is None or ages.outcome > max_age_s:
        return CRITICAL
    return WARNING if ages.decision is None or ages.decision > max_age_s else OK


def status_line(cluster: str, ages: RunAges, max_age_s: float) -> str:
    text = f"last outcome: {_age(ages.outcome)}; last committed decision: {_age(ages.decision)}; limit: {max_age_s:g} s"
    values = {"outcome_age": ages.outcome, "decision_age": ages.decision}
    data = " ".join(f"{name}={age:.0f}s;;{max_age_s:g}" for name, age in values.items() if age is not None)
    return f"{_STATUS_NAMES[status_code(ages, max_age_s)]} - cluster {cluster}: {text} | {data}".removesuffix(" | ")


def _age(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.0f} s old"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", required=True, help="the storage root, a path or an object-store URI")
    parser.add_argument("--cluster", required=True, type=_parse_cluster, help="cluster's name in the clusters file")
    parser.add_argument("--max-age-seconds", required=True, type=_parse_age, help="maximum age of outcome and decision")


def _parse_cluster(text: str) -> str:
    if CLUSTER_NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a cluster name: use only letters, digits, . _ -")
    return text


def _parse_age(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def run(args: argparse.Namespace) -> int:
    try:
        measured = read_ages(ClusterStorage(args.root, args.cluster), datetime.now(UTC))
    except (SnapshotError, OSError, ValueError) as error:
        text = error.message if isinstance(error, SnapshotError) else f"--root cannot be read: {type(error).__name__}"
        print(f"{_STATUS_NAMES[CRITICAL]} - cluster {args.cluster}: {text}")
        return CRITICAL
    print(status_line(args.cluster, measured, args.max_age_seconds))
    return status_code(measured, args.max_age_seconds)
