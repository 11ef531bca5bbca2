"""Runs in which report tells people, by a real webhook."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER, bundle, make_run, move_row
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import closed_port
from tests.plugins.pulsar_rebalancer_airflow.notifications.receivers import connect

from pulsar_rebalancer.carry_out.move_history import WaveHistory
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import MoveOutcome
from pulsar_rebalancer.run.plan import read_moves
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.show.alert_conditions import Condition
from pulsar_rebalancer.show.incidents import AlertsState, WatchState
from pulsar_rebalancer.state.state_documents import MovesState
from pulsar_rebalancer_airflow.failures import FAILURE, MESSAGE, final_unless_passing
from pulsar_rebalancer_airflow.operators import ReportOperator
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from tests.airflow_context import MemoryState
    from tests.plugins.pulsar_rebalancer_airflow.notifications.receivers import Webhook

    from pulsar_rebalancer.storage.documents import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

SETTINGS = Settings(mode="auto", alert_connection="alerts", alert_quiet_minutes=0)
WITHOUT_ALERTS = Settings(mode="auto")
DONE = dict.fromkeys(("collect", "validate", "decide", "record", "gate"), "success")
BLOCK = Validation(findings=(Finding(reason=Reason.TOO_FEW_BROKERS, detail="1 broker"),))


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


def test_a_block_is_told_once_and_its_end_once(
    storage: ClusterStorage, state: MemoryState, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/ui/")
    for _ in range(3):
        report(blocked(storage), state, states=VALIDATE_FAILED)
    for _ in range(3):
        report(make_run(storage), state, gate="nothing_to_do")

    assert hook.titles == ["Pulsar east: validation failed", "Pulsar east: over: validation failed"]
    start, end = (message["message"] for message in hook.messages)
    assert "too_few_brokers x1" in start
    assert "findings: 1 block" in start
    assert "Run: https://airflow.example/ui/dags/pulsar_rebalance__east/runs/manual__1" in start
    assert "score range: 60.0 points (10.0 to 70.0 %) over 3 brokers" in end
    assert StateStore(state).get(AlertsState).incidents == {}


def unloaded(storage: ClusterStorage, state: MemoryState, *reasons: str) -> StoragePath:
    """A run whose unloads ended for these reasons."""
    run = make_run(storage, [move_row(n, "a:1", "b:1") for n in range(len(reasons))])
    history = WaveHistory(StateStore(state).get(MovesState), StateStore(state).change_moves, run, 0)
    moves = read_moves(run)
    history.plan(moves, datetime.now(UTC))
    for move, reason in zip(moves, reasons, strict=True):
        history.add(
            MoveOutcome(bundle=move.bundle, source="a:1", destination="b:1", reason=reason, attempts=1),
            datetime.now(UTC),
        )
    history.write()
    return run


def test_unloads_that_always_fail_are_told_once_however_long_the_hits_between_them_take(
    storage: ClusterStorage, state: MemoryState, hook: Webhook
) -> None:
    for reason in ("astray", "astray", "moved"):
        report(unloaded(storage, state, reason), state, gate="open")
        for _ in range(7):
            report(make_run(storage), state, gate="nothing_to_do")

    assert hook.titles == ["Pulsar east: unloading failed", "Pulsar east: over: unloading failed"]


def test_in_mode_off_every_open_condition_ends_and_says_that_nobody_looks_any_more(
    storage: ClusterStorage, state: MemoryState, hook: Webhook
) -> None:
    report(blocked(storage), state, states=VALIDATE_FAILED)
    report(unloaded(storage, state, "astray"), state, gate="open")
    for _ in range(2):
        report(None, state, states={"collect": "skipped"}, settings=SETTINGS.model_copy(update={"mode": Mode.OFF}))

    assert hook.titles[-1] == "Pulsar east: over: unloading failed"
    assert "mode_off: The cluster's mode is off." in hook.messages[-1]["message"]
    assert StateStore(state).get(AlertsState).incidents == {}


def test_moves_astray_are_told_with_figures(storage: ClusterStorage, state: MemoryState, hook: Webhook) -> None:
    run = unloaded(storage, state, "moved", "astray", "moved")

    counts = report(run, state, gate="open")

    assert counts == {"moved": 2, "astray": 1}
    (message,) = hook.messages
    assert message["title"] == "Pulsar east: unloading failed"
    for said in ("astray x1", "moves: 2 of 3 verified, 1 astray", "score range: 60.0 points", "hits: most low 8 of 8"):
        assert said in message["message"]
    assert bundle(1) not in message["message"]


def test_a_run_that_collected_nothing_is_told_with_its_reason(
    state: MemoryState, hook: Webhook, storage: ClusterStorage
) -> None:
    xcoms = {("collect", FAILURE): "state_lost"}

    assert report(None, state, states={"collect": "failed"}, xcoms=xcoms, run_type="scheduled") == {}

    (message,) = hook.messages
    assert message["title"] == "Pulsar east: a run failed"
    assert "state_lost x1: The state store is empty" in message["message"]
    assert "none: the run did not get that far" in message["message"]


def test_people_are_told_also_when_report_itself_fails(
    storage: ClusterStorage, state: MemoryState, hook: Webhook
) -> None:
    run = blocked(storage)
    (run / "outcome.json").write_bytes(b"{")

    with pytest.raises(SnapshotError):
        report(run, state, states=VALIDATE_FAILED)

    assert hook.titles == ["Pulsar east: validation failed"]


def test_a_receiver_that_is_down_does_no_harm_and_is_told_later(
    storage: ClusterStorage,
    state: MemoryState,
    hook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    connect(monkeypatch, f"json://ada:S3cretPass@{closed_port()}/S3cretPath")

    assert report(blocked(storage), state, states=VALIDATE_FAILED) == {}

    own = [r for r in caplog.records if r.name.startswith("pulsar_rebalancer")]
    (warning,) = [r.getMessage() for r in own if r.levelno >= logging.WARNING]
    assert warning.startswith("Alerts: 0 of 1 sent through connection alerts. Failed: ")
    assert StateStore(state).get(AlertsState).incidents[Condition.BLOCKED].told is False
    connect(monkeypatch, hook.url)
    for _ in range(2):
        report(blocked(storage), state, states=VALIDATE_FAILED)
    assert hook.titles == ["Pulsar east: validation failed"]
    assert "S3cret" not in caplog.text
    assert "S3cret" not in json.dumps(state.documents)


@pytest.mark.parametrize(
    "document",
    [None, "no-json S3cretPass", {"conn_type": "apprise"}, {"conn_type": "apprise", "extra": {"config": "S3cretPass"}}],
)
def test_a_connection_that_cannot_be_used_is_a_warning(
    storage: ClusterStorage,
    state: MemoryState,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    document: object,
) -> None:
    if document is not None:
        monkeypatch.setenv("AIRFLOW_CONN_ALERTS", document if isinstance(document, str) else json.dumps(document))

    report(blocked(storage), state, states=VALIDATE_FAILED)

    (warning,) = [r.getMessage() for r in caplog.records if r.name.startswith("pulsar_rebalancer")]
    assert warning.startswith("Alerts: connection alerts cannot be used (")
    assert "S3cret" not in caplog.text
    assert StateStore(state).get(AlertsState).incidents[Condition.BLOCKED].told is False


def test_a_store_that_fails_is_a_warning(
    storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(key: str, value: Any) -> None:
        raise ConnectionError("S3cretPass")

    monkeypatch.setattr(state, "set", fail)

    report(make_run(storage), state, gate="nothing_to_do")

    assert "Alerts: nothing could be sent about this run (ConnectionError)" in caplog.text
    assert "S3cret" not in caplog.text


def test_a_run_that_took_too_long_is_told(storage: ClusterStorage, state: MemoryState, hook: Webhook) -> None:
    report(make_run(storage), state, gate="nothing_to_do", started=datetime.now(UTC) - timedelta(seconds=75))

    (message,) = hook.messages
    assert message["title"] == "Pulsar east: runs take too long"
    assert state.writes == ["alerts"]  # a document of their own
    assert ", interval 60 s)" in message["message"]


def test_without_a_connection_nothing_is_told_or_kept_and_what_was_open_is_told_when_it_is_back(
    storage: ClusterStorage, state: MemoryState, hook: Webhook
) -> None:
    report(blocked(storage), state, states=VALIDATE_FAILED, settings=WITHOUT_ALERTS)
    assert (hook.paths, state.writes) == ([], [])

    report(blocked(storage), state, states=VALIDATE_FAILED)
    state.documents["watch"] = state.documents["alerts"]
    report(blocked(storage), state, states=VALIDATE_FAILED, settings=WITHOUT_ALERTS)
    assert StateStore(state).get(WatchState).incidents == {}
    report(blocked(storage), state, states=VALIDATE_FAILED)

    assert hook.titles == ["Pulsar east: validation failed"] * 2


def test_a_task_leaves_the_reason_it_failed_with(state: MemoryState) -> None:
    given: Any = context(CLUSTER, state)

    with pytest.raises(Exception, match="state_lost"), final_unless_passing(given):
        raise StateError(Reason.STATE_LOST, "the store is empty")

    assert given["ti"].pushed == {FAILURE: "state_lost", MESSAGE: "the store is empty"}


def test_a_rolling_restart_that_no_run_continues_is_told_with_its_id(
    storage: ClusterStorage, state: MemoryState, hook: Webhook
) -> None:
    day_ago = datetime.now(UTC) - timedelta(days=1)
    StateStore(state).put(Roll(id="0a1b", order=("a:1", "b:1"), at=day_ago, looked_at=day_ago))
    report(make_run(storage), state, gate="nothing_to_do")

    assert hook.titles == ["Pulsar east: a rolling restart is not continued"]
    assert "plan 0a1b" in hook.messages[0]["message"]
