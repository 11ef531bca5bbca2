from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER, make_run, move_row

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import Finding, ManualPlanRecord, Validation, parse_form
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import GateOperator, RecordOperator

MOVES = [move_row(1, "a:1", "b:1"), move_row(2, "a:1", "b:1", wave=2), move_row(3, "b:1", "a:1")]
HOLD = Validation(findings=(Finding(reason="builtin_shedding_on"),))
NOTICE = Validation(findings=(Finding(reason="not_recommended"),))
TOMORROW = datetime(2100, 1, 1, tzinfo=UTC)
YESTERDAY = datetime(2000, 1, 1, tzinfo=UTC)


def ask(run: StoragePath, state: MemoryState, **settings: Any) -> tuple[list[int], str]:
    given: Any = context(CLUSTER, state)
    now = Settings(**({"mode": "auto", "connection": "pulsar_test"} | settings))
    waves = GateOperator(task_id="gate", cluster=CLUSTER, settings=now, run=run.uri).execute(given)
    return waves, given["ti"].pushed["reason"]


def record(storage: ClusterStorage, run: StoragePath, state: MemoryState) -> None:
    RecordOperator(task_id="record", cluster=CLUSTER, run=run.uri).execute(context(CLUSTER, state))


@pytest.mark.parametrize("given", [{}, {"validation": NOTICE}, {"pause": {"until": YESTERDAY, "reason": "over"}}])
def test_opens_for_the_recorded_plan(storage, state, given):
    run = make_run(storage, MOVES, **given)
    record(storage, run, state)

    assert ask(run, state) == ([0, 2], "open")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"mode": "observe"}, "observe"),
        ({"pause": {"until": TOMORROW, "reason": "migration"}}, "paused"),
        ({"validation": HOLD}, "on_hold"),
        ({"age": timedelta(seconds=200)}, "plan_too_old"),
        ({"moves": []}, "nothing_to_do"),
    ],
)
def test_closes_with_a_reason(storage, state, given, reason):
    run = make_run(storage, **{"moves": MOVES} | given)
    record(storage, run, state)

    assert ask(run, state) == ([], reason)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"mode": "observe"}, "observe"),
        ({"pause": {"until": TOMORROW, "reason": "stop"}}, "paused"),
        ({"connection": "pulsar_other"}, "settings_changed"),
    ],
)
def test_closes_when_the_clusters_file_says_so_by_now(storage, state, now, reason):
    run = make_run(storage, MOVES)
    record(storage, run, state)

    assert ask(run, state, **now) == ([], reason)


def test_closes_for_another_plan_than_the_recorded_one(storage, state):
    run = make_run(storage, MOVES)
    assert ask(run, state) == ([], "stale_plan")

    record(storage, run, state)
    record(storage, make_run(storage, MOVES, base_seq=1), state)

    assert ask(run, state) == ([], "stale_plan")


@pytest.mark.parametrize("recorded", [{"plan_id": "another"}, {"plan_hash": "0" * 64}])
def test_closes_if_the_recorded_id_or_hash_is_another(storage, state, recorded):
    run = make_run(storage, MOVES)
    record(storage, run, state)
    store_of(state).put(store_of(state).get(DecisionState).model_copy(update=recorded))

    assert ask(run, state) == ([], "stale_plan")


def test_closes_for_a_plan_that_was_altered(storage, state):
    run = make_run(storage, MOVES)
    record(storage, run, state)
    other = make_run(storage, [move_row(1, "a:1", "somewhere:1")])
    (run / "plan" / "moves.parquet").write_bytes((other / "plan" / "moves.parquet").read_bytes())

    assert ask(run, state) == ([], "plan_changed")


def test_closes_for_a_read_only_connection(storage, state, monkeypatch):
    monkeypatch.setenv(
        "AIRFLOW_CONN_PULSAR_TEST", '{"conn_type": "pulsar_admin", "host": "x", "extra": {"read_only": true}}'
    )
    run = make_run(storage, MOVES)
    record(storage, run, state)

    assert ask(run, state) == ([], "read_only")


@pytest.mark.parametrize(
    "cap",
    [
        {"max_bundles_per_run": 2},
        {"max_bundles_per_broker": 2},
        {"max_bundles_per_namespace": 2},
        {"max_bytes_per_run": 2993.5},
    ],
)
@pytest.mark.parametrize("of_the_plan", [True, False])
def test_closes_for_more_moves_than_the_stricter_cap_allows(storage, state, cap, of_the_plan):
    loose = {name: value + 1 for name, value in cap.items()}
    run = make_run(storage, MOVES, **(cap if of_the_plan else loose))
    record(storage, run, state)

    assert ask(run, state, **(loose if of_the_plan else cap)) == ([], "settings_changed")
    assert ask(run, state, **loose)[1] == ("settings_changed" if of_the_plan else "open")


def test_closes_for_traffic_that_is_no_number(storage, state):
    run = make_run(storage, [MOVES[0] | {"msg_throughput": float("nan")}])
    record(storage, run, state)

    assert ask(run, state, max_bytes_per_run=1e9) == ([], "settings_changed")


@pytest.mark.parametrize(
    ("overruled", "reason"), [((), "settings_changed"), (("caps",), "open"), (("policies",), "settings_changed")]
)
def test_a_person_may_overrule_the_caps_of_a_plan_made_by_hand(storage, state, overruled, reason):
    run = make_run(storage, MOVES)
    form = parse_form({"action": "unload", "bundles": ["t/n"], "overrule": overruled, "reason": "it has to be"})
    Summary.read(run).model_copy(update={"by_hand": ManualPlanRecord(by="ada", request=form)}).write(run)
    record(storage, run, state)

    assert ask(run, state, max_bundles_per_run=1)[1] == reason
