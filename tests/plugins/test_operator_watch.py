from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER
from tests.plugins.receivers import Webhook, webhook

from pulsar_rebalancer.alerts import AlertsState
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer_airflow.alerts import notifier as notifier_module
from pulsar_rebalancer_airflow.operators import WatchOperator
from pulsar_rebalancer_airflow.state_store import ALERTS, WATCH, StateStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.airflow_context import MemoryState

SETTINGS = Settings(alert_connection="alerts", alert_quiet_minutes=0, interval_seconds=60, alert_after_intervals=3)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setattr(notifier_module, "TIMEOUT_SECONDS", 120)
    with webhook() as found:
        config = {"path": f"json://127.0.0.1:{found.port}/"}
        monkeypatch.setenv("AIRFLOW_CONN_ALERTS", json.dumps({"conn_type": "apprise", "extra": {"config": config}}))
        yield found


def watch(state: MemoryState) -> float:
    given = context(CLUSTER, state, dag_id=f"pulsar_watch__{CLUSTER}")
    return WatchOperator(task_id="watch", cluster=CLUSTER, settings=SETTINGS).execute(given)


def ran(state: MemoryState, seconds_ago: float) -> None:
    """What report leaves."""
    StateStore(state).put_alerts(AlertsState(run_at=datetime.now(UTC) - timedelta(seconds=seconds_ago)))


def test_runs_that_do_not_end_are_told_once_and_their_return_once(state: MemoryState, hook: Webhook) -> None:
    ran(state, 181)
    for _ in range(3):
        assert watch(state) >= 181
    ran(state, 10)
    for _ in range(2):
        watch(state)

    assert hook.titles == ["Pulsar east: no run", "Pulsar east: over: no run"]
    assert "no_run x1" in hook.messages[0]["message"]
    assert re.search(r"seconds without the end of a run: \d+, limit 180", hook.messages[0]["message"])
    assert "/dags/pulsar_watch__east/runs/manual__1" in hook.messages[0]["message"]


def test_the_watch_leaves_the_document_of_report_alone(state: MemoryState, hook: Webhook) -> None:
    ran(state, 100)
    state.writes.clear()

    watch(state)

    assert state.writes == [WATCH]
    assert hook.paths == []


def test_a_cluster_that_never_ran_is_told_from_the_first_look(state: MemoryState, hook: Webhook) -> None:
    assert watch(state) == 0
    first = datetime.now(UTC) - timedelta(seconds=181)
    StateStore(state).put_alerts(StateStore(state).alerts(WATCH).model_copy(update={"began_at": first}), WATCH)

    assert watch(state) >= 181

    (message,) = hook.messages
    assert "no run has ended yet" in message["message"]
    assert ALERTS not in state.documents
