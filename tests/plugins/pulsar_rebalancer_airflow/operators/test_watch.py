import re
from datetime import UTC, datetime, timedelta

import pytest
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.show.incidents import AlertsState, WatchState
from pulsar_rebalancer_airflow import notifications
from pulsar_rebalancer_airflow.operators import WatchOperator

SETTINGS = Settings(alert_connection="alerts", interval_seconds=60, alert_after_intervals=3)


@pytest.fixture(autouse=True)
def not_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "QUIET_PERIOD", timedelta(0))


def watch(state: MemoryState, settings: Settings = SETTINGS) -> float:
    given = context(CLUSTER, state, dag_id=f"pulsar_watch__{CLUSTER}")
    return WatchOperator(task_id="watch", cluster=CLUSTER, settings=settings).execute(given)


def ran(state: MemoryState, seconds_ago: float) -> None:
    store_of(state).put(AlertsState(run_at=datetime.now(UTC) - timedelta(seconds=seconds_ago)))


def test_runs_that_do_not_end_are_told_once_and_their_return_once(state, hook):
    ran(state, 181)
    for _ in range(3):
        assert watch(state) >= 181
    ran(state, 10)
    for _ in range(2):
        watch(state)

    assert hook.titles == ["Pulsar east: no run", "[Resolved] Pulsar east: no run"]
    assert "no_run x1" in hook.messages[0]["message"]
    assert re.search(r"seconds since a run last ended: \d+, limit 180", hook.messages[0]["message"])
    assert "/dags/pulsar_watch__east/runs/manual__1" in hook.messages[0]["message"]


def test_a_cluster_that_never_ran_is_told_from_the_first_look(state, hook):
    assert watch(state) == 0
    first = datetime.now(UTC) - timedelta(seconds=181)
    store_of(state).put(store_of(state).get(WatchState).model_copy(update={"began_at": first}))

    assert watch(state) >= 181

    (message,) = hook.messages
    assert "no run has ended yet" in message["message"]
    assert AlertsState.KEY not in state.writes


def test_a_run_that_ended_before_the_clock_was_set_back_counts_as_none(state):
    ran(state, -3600)
    store_of(state).put(WatchState(began_at=datetime.now(UTC) - timedelta(seconds=181)))

    assert watch(state) >= 181
