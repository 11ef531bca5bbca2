from datetime import timedelta

import pytest
from tests.plugins.pulsar_rebalancer_airflow.operators.approve_scene import (
    MOVES,
    OTHERS,
    answer,
    asked,
    begun,
    gate,
    plan,
    question,
)

from pulsar_rebalancer.orders.manual_plans import Question
from pulsar_rebalancer.run.plan import Summary


def test_a_newer_plan_with_moves_ends_the_question_about_an_older_one(storage, state):
    first = plan(storage, state)
    assert gate(storage, state, first) == "awaiting_approval"
    one = question(state)
    assert (one.plan_id, begun(state)) == (first.name, [one.run_id])
    assert gate(storage, state, first, record=False, runs={}) == "awaiting_approval"  # a retry
    assert question(state) == one
    assert begun(state, {one.run_id: "running"}) == []

    second = plan(storage, state, OTHERS)
    assert gate(storage, state, second) == "awaiting_approval"
    two = question(state)
    assert (two.plan_id, begun(state, {one.run_id: "running"})) == (second.name, [one.run_id, two.run_id])
    assert begun(state, {one.run_id: "success", two.run_id: "queued"}) == []
    assert (asked(storage, state, one.run_id), answer(storage, state, "Approve", run_id=one.run_id)) == (
        "skipped",
        "plan_expired",
    )

    assert gate(storage, state, plan(storage, state, [])) == "nothing_to_do"
    assert question(state) == two


@pytest.mark.parametrize(
    ("moves", "age", "runs", "stands"),
    [
        (MOVES, 59, None, True),
        (MOVES, 61, None, False),
        (MOVES, 0, {}, False),  # it has come to its end
        (OTHERS, 0, None, False),
    ],
)
def test_the_very_same_moves_end_no_question(storage, state, moves, age, runs, stands):
    gate(storage, state, plan(storage, state, age=timedelta(minutes=age), max_plan_age_seconds=86400))
    first = question(state)

    assert gate(storage, state, plan(storage, state, moves), runs=runs) == "awaiting_approval"

    assert (question(state) == first) is stands


def test_a_question_that_is_lost_is_neither_asked_nor_answered(storage, state):
    state.documents[Question.KEY] = {"version": 99}

    assert asked(storage, state, "ask__1") == "state_lost"
    assert answer(storage, state, "Approve", run_id="ask__1") == "state_lost"
    assert gate(storage, state, plan(storage, state)) == "state_lost"


def test_nobody_is_asked_about_what_a_read_only_connection_would_refuse(storage, state, monkeypatch):
    monkeypatch.setenv(
        "AIRFLOW_CONN_PULSAR_TEST", '{"conn_type": "pulsar_admin", "host": "nowhere", "extra": {"read_only": true}}'
    )

    assert gate(storage, state, plan(storage, state)) == "read_only"
    assert begun(state) == []


@pytest.mark.parametrize(
    ("planned", "present", "reason"),
    [
        ({"mode": "auto"}, {}, "awaiting_approval"),
        ({}, {"mode": "auto"}, "awaiting_approval"),
        ({"mode": "auto"}, {"mode": "auto"}, "open"),
        ({}, {"pause": {"until": "2999-01-01T00:00:00Z", "reason": "x"}}, "paused"),
        ({}, {"max_bundles_per_run": 1}, "settings_changed"),
    ],
)
def test_the_stricter_mode_wins(storage, state, planned, present, reason):
    assert gate(storage, state, plan(storage, state, **planned), **present) == reason
    assert bool(question(state).plan_id) == (reason == "awaiting_approval")


@pytest.mark.parametrize(("age", "left"), [(50, 10), (63, 0)])
def test_a_person_is_shown_the_plan_until_it_is_too_old(storage, state, age, left):
    run = plan(storage, state, age=timedelta(minutes=age), max_plan_age_seconds=86400)
    gate(storage, state, run)

    text = asked(storage, state)

    assert text.startswith("Move 2 bundles in cluster east?\n")
    assert f"plan `{Summary.read(run).hash[:16]}`" in text
    assert "` load/test/0x10000000_0x20000000 `: ` a:1 ` to ` b:1 `" in text
    assert text.endswith(f"\n{left} minutes")


@pytest.mark.parametrize(
    ("attempt", "known", "asks"),
    [
        ((1, 2), False, True),
        ((2, 2), True, False),  # answered before the scheduler knew that it waits: the question still stands
        ((3, 2), True, False),
        ((2, 2), False, True),  # the first attempt came to no question
        ((2, 3), True, True),  # cleared
        ((3, 3), True, False),  # cleared, and answered too early
    ],
)
def test_a_question_is_asked_once_until_its_task_is_cleared(storage, state, attempt, known, asks):
    gate(storage, state, plan(storage, state))

    assert (asked(storage, state, attempt=attempt, known=known) != "stands") is asks
