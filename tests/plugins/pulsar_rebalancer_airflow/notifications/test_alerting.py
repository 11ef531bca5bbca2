import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER, make_run
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import closed_port
from tests.plugins.pulsar_rebalancer_airflow.notifications.receivers import connect

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.show.alert_conditions import Condition
from pulsar_rebalancer.show.incidents import AlertsState, WatchState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow import notifications
from pulsar_rebalancer_airflow.operators import ReportOperator
from pulsar_rebalancer_airflow.options import FAILURE, MESSAGE, fail_unless_temporary

SETTINGS = Settings(mode="auto", alert_connection="alerts")
WITHOUT_ALERTS = Settings(mode="auto")
DONE = dict.fromkeys(("collect", "validate", "decide", "record", "gate"), "success")
BLOCK = Validation(findings=(Finding(reason=Reason.TOO_FEW_BROKERS, detail="1 broker"),))


@pytest.fixture(autouse=True)
def not_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "QUIET_PERIOD", timedelta(0))


def report(run: StoragePath | None, state: MemoryState, gate: str = "", **given: Any) -> dict[str, int]:
    settings = given.pop("settings", SETTINGS)
    xcoms = given.pop("xcoms", {}) | ({("gate", "reason"): gate} if gate else {})
    seen: dict[str, Any] = {"states": DONE, "started": datetime.now(UTC)} | given
    made: Any = context(CLUSTER, state, xcoms=xcoms, **seen)
    operator = ReportOperator(
        task_id="report", cluster=CLUSTER, run=run.uri if run else None, gate="gate", settings=settings
    )
    return operator.execute(made)


def blocked(storage: ClusterStorage) -> StoragePath:
    run = make_run(storage, validation=BLOCK)
    (run / "plan").delete()
    return run


VALIDATE_FAILED = {"collect": "success", "validate": "failed", "decide": "upstream_failed"}


def test_a_block_is_told_once_and_its_end_once(storage, state, hook, monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/ui/")
    for _ in range(3):
        report(blocked(storage), state, states=VALIDATE_FAILED)
    for _ in range(3):
        report(make_run(storage), state, gate="nothing_to_do")

    assert hook.titles == ["Pulsar east: validation failed", "[Resolved] Pulsar east: validation failed"]
    start, end = (message["message"] for message in hook.messages)
    assert "too_few_brokers x1" in start
    assert "findings: 1 block" in start
    assert "Run: https://airflow.example/ui/dags/pulsar_rebalance__east/runs/manual__1" in start
    assert "score range: 60.0 points (10.0 to 70.0 %) over 3 brokers" in end
    assert store_of(state).get(AlertsState).incidents == {}


def test_people_are_told_also_when_report_itself_fails(storage, state, hook):
    run = blocked(storage)
    (run / "outcome.json").write_bytes(b"{")

    with pytest.raises(SnapshotError):
        report(run, state, states=VALIDATE_FAILED)

    assert hook.titles == ["Pulsar east: validation failed"]


def test_a_receiver_that_is_down_does_no_harm_and_is_told_later(storage, state, hook, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    connect(monkeypatch, f"json://ada:S3cretPass@{closed_port()}/S3cretPath")

    assert report(blocked(storage), state, states=VALIDATE_FAILED) == {}

    own = [r for r in caplog.records if r.name.startswith("pulsar_rebalancer")]
    (warning,) = [r.getMessage() for r in own if r.levelno >= logging.WARNING]
    assert warning.startswith("Alerts: 0 of 1 messages sent through connection alerts. Failed receivers: ")
    assert store_of(state).get(AlertsState).incidents[Condition.BLOCKED].told is False
    connect(monkeypatch, hook.url)
    for _ in range(2):
        report(blocked(storage), state, states=VALIDATE_FAILED)
    assert hook.titles == ["Pulsar east: validation failed"]
    assert "S3cret" not in caplog.text
    assert "S3cret" not in json.dumps(state.documents)


def test_without_a_connection_nothing_is_told_or_kept_and_what_was_open_is_told_when_it_is_back(storage, state, hook):
    report(blocked(storage), state, states=VALIDATE_FAILED, settings=WITHOUT_ALERTS)
    assert (hook.paths, state.writes) == ([], [])

    report(blocked(storage), state, states=VALIDATE_FAILED)
    state.documents["watch"] = state.documents["alerts"]
    report(blocked(storage), state, states=VALIDATE_FAILED, settings=WITHOUT_ALERTS)
    assert store_of(state).get(WatchState).incidents == {}
    report(blocked(storage), state, states=VALIDATE_FAILED)

    assert hook.titles == ["Pulsar east: validation failed"] * 2


def test_a_task_leaves_the_reason_it_failed_with(state):
    given: Any = context(CLUSTER, state)

    with pytest.raises(Exception, match="state_lost"), fail_unless_temporary(given):
        raise StateError(Reason.STATE_LOST, "the store is empty")

    assert given["ti"].pushed == {FAILURE: "state_lost", MESSAGE: "the store is empty"}
