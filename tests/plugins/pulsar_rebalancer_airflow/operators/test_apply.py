"""Mode `approve`: the gate keeps the plan for a person, and what an answer does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, DagRunTriggerException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER
from tests.plugins.pulsar_rebalancer_airflow.operators.approve_scene import (
    MOVES,
    NOW,
    OTHERS,
    YES,
    apply,
    ask,
    awaiting,
    gate,
    plan,
    reject,
    show,
)

from pulsar_rebalancer.run.manual_request import ByHand, HandRequest
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.state.manual_plans import ApprovedPlans, HandedOver, ShownPlan
from pulsar_rebalancer.state.orders.control_document import Awaiting, Control, PauseOrder
from pulsar_rebalancer.state.state_documents import MovesState, Unload
from pulsar_rebalancer_airflow.operators import (
    EndOlderOperator,
)
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.storage.layout import ClusterStorage


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", '{"conn_type": "pulsar_admin", "host": "nowhere"}')


def test_the_newest_plan_with_moves_waits(storage: ClusterStorage, state: MemoryState) -> None:
    first = plan(storage, state)

    assert gate(storage, state, first) == "awaiting_approval"
    assert awaiting(state).plan_id == first.name
    assert (awaiting(state).asked, awaiting(state).older) == (f"ask__{first.name}", ())
    assert gate(storage, state, first, record=False) == "awaiting_approval"  # a retry
    assert awaiting(state).older == ()
    second = plan(storage, state, OTHERS)
    assert gate(storage, state, second) == "awaiting_approval"
    # The run that shows the first is not used again.
    assert (awaiting(state).asked, awaiting(state).older) == (f"ask__{second.name}", (f"ask__{first.name}",))
    empty = plan(storage, state, [])
    assert gate(storage, state, empty) == "nothing_to_do"
    assert awaiting(state).plan_id == second.name


@pytest.mark.parametrize(
    ("moves", "age", "present", "stands"),
    [
        (MOVES, 59, {}, True),
        (MOVES, 61, {}, False),
        (OTHERS, 4, {"min_awaiting_minutes": 5}, True),
        (OTHERS, 6, {"min_awaiting_minutes": 5}, False),
        (OTHERS, 0, {}, False),
        (OTHERS, 4, {"min_awaiting_minutes": 5, "max_awaiting_minutes": 3}, False),
    ],
)
def test_a_question_stands_long_enough_to_be_answered(
    storage: ClusterStorage, state: MemoryState, moves: Any, age: int, present: dict[str, Any], stands: bool
) -> None:
    gate(storage, state, plan(storage, state, age=timedelta(minutes=age), max_plan_age_seconds=86400))
    first = awaiting(state)
    newer = plan(storage, state, moves)

    assert gate(storage, state, newer, **present) == "awaiting_approval"

    assert (awaiting(state) == first) is stands
    for ended in ("running", "success", "failed"):  # it may have come to its end since the gate looked
        assert bool(ask(state, "awaiting_approval", {first.asked: ended})) is not stands
    # Once it has come to its end, the next plan is asked about.
    gate(storage, state, plan(storage, state, moves), runs={}, **present)
    assert awaiting(state).plan_id not in (first.plan_id, newer.name)


def test_what_a_person_made_by_hand_takes_the_place_of_a_question_at_once(
    storage: ClusterStorage, state: MemoryState
) -> None:
    gate(storage, state, plan(storage, state))
    run = plan(storage, state)
    by_hand = ByHand(by="ada", request=HandRequest(action="unload", bundles=("t/n",)))
    Summary.read(run).model_copy(update={"by_hand": by_hand}).write(run)
    gate(storage, state, run, min_awaiting_minutes=5)

    assert awaiting(state).plan_id == run.name


def test_what_cannot_be_read_does_not_stay(storage: ClusterStorage, state: MemoryState) -> None:
    state.documents[Awaiting.KEY] = {"damaged": True}

    assert gate(storage, state, plan(storage, state, mode="auto"), mode="auto") == "open"

    assert awaiting(state) == Awaiting()


def test_a_plan_that_waits_does_not_survive_one_that_is_carried_out(
    storage: ClusterStorage, state: MemoryState
) -> None:
    gate(storage, state, plan(storage, state))
    asked = awaiting(state).asked

    assert gate(storage, state, plan(storage, state), self_approval={"max_bundles": 2}) == "open"

    assert awaiting(state) == Awaiting(older=(asked,))
    assert ask(state, "open", {asked: "running"}) == f"pulsar_apply__{CLUSTER} {asked}"
    assert ask(state, "open", {asked: "success"}) == ""
    with pytest.raises(AirflowSkipException):
        show(storage, state, asked)


def test_a_document_that_cannot_be_read_is_written_anew(storage: ClusterStorage, state: MemoryState) -> None:
    state.documents[Awaiting.KEY] = {"damaged": True}
    run = plan(storage, state)

    assert gate(storage, state, run) == "awaiting_approval"
    assert awaiting(state).plan_id == run.name


def test_nobody_is_asked_about_what_a_read_only_connection_would_refuse(
    storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_PULSAR_TEST", '{"conn_type": "pulsar_admin", "host": "nowhere", "extra": {"read_only": true}}'
    )

    assert gate(storage, state, plan(storage, state)) == "read_only"
    assert awaiting(state).plan_id == ""


def ended(state: MemoryState, run_id: str, runs: dict[str, str]) -> str:
    """The question that a run of the apply DAG ends."""
    given: Any = context(CLUSTER, state, run_id=run_id)
    given["ti"].runs = runs
    with pytest.raises((DagRunTriggerException, AirflowSkipException)) as done:
        EndOlderOperator(task_id="end_older", cluster=CLUSTER).execute(given)
    return str(done.value.dag_run_id) if isinstance(done.value, DagRunTriggerException) else ""


def test_a_newer_question_ends_all_older_ones(storage: ClusterStorage, state: MemoryState) -> None:
    questions = []
    for number in range(4):
        gate(storage, state, plan(storage, state, [MOVES[0], MOVES[1] | {"destination": f"c{number}:1"}]))
        questions.append(awaiting(state).asked)
    first, second, third, newest = questions
    running = dict.fromkeys(questions, "running")

    # Each ends the one before it, also where a run in between never came to ask, or has come to its end.
    assert [ended(state, each, running) for each in reversed(questions)] == [third, second, first, ""]
    assert ended(state, newest, running | {third: "success"}) == second
    assert ended(state, newest, running | {third: "queued", second: "failed"}) == third
    assert ended(state, third, running | {second: "failed"}) == first
    for older in (first, second, third):
        with pytest.raises(AirflowSkipException):
            show(storage, state, older)
    # Those that have come to their end are not kept.
    gate(storage, state, plan(storage, state), runs={second: "running", third: "success"})
    assert awaiting(state).older == (second,)
    # Once another plan is carried out, all of them are to end.
    gate(storage, state, plan(storage, state), self_approval={"max_bundles": 2})
    assert awaiting(state).plan_id == ""
    assert ask(state, "open", dict.fromkeys(awaiting(state).older, "running")) == (
        f"pulsar_apply__{CLUSTER} {awaiting(state).older[-1]}"
    )


@pytest.mark.parametrize(
    ("planned", "present", "reason"),
    [
        ({"mode": "auto"}, {}, "awaiting_approval"),
        ({}, {"mode": "auto"}, "awaiting_approval"),
        ({"mode": "auto"}, {"mode": "auto"}, "open"),
        ({}, {"self_approval": {"max_bundles": 2}}, "open"),
        ({}, {"self_approval": {"max_bundles": 1}}, "awaiting_approval"),
        ({}, {"pause": {"until": "2999-01-01T00:00:00Z", "reason": "x"}}, "paused"),
        ({}, {"max_bundles_per_run": 1}, "over_cap"),
    ],
)
def test_the_stricter_mode_wins(
    storage: ClusterStorage, state: MemoryState, planned: dict[str, Any], present: dict[str, Any], reason: str
) -> None:
    assert gate(storage, state, plan(storage, state, **planned), **present) == reason
    assert bool(awaiting(state).plan_id) == (reason == "awaiting_approval")


@pytest.mark.parametrize(
    ("approved", "run_id", "reason"),
    [
        (True, "manual__1", "open"),
        (True, "manual__2", "awaiting_approval"),
        (False, "manual__1", "awaiting_approval"),
    ],
)
def test_what_was_approved_is_carried_out_by_its_own_run_alone(
    storage: ClusterStorage, state: MemoryState, approved: bool, run_id: str, reason: str
) -> None:
    carried = "a" * 64
    shown = ShownPlan(plan_id="p", action=None, at=NOW, by="")
    handed_over = HandedOver(plan=shown, run_id=run_id, at=NOW, by="ada", approved=approved)
    StateStore(state).put(ApprovedPlans(plans={carried: handed_over}))
    run = plan(storage, state)
    by_hand = ByHand(by="ada", request=HandRequest(plan=carried), carries_out=carried)
    Summary.read(run).model_copy(update={"by_hand": by_hand}).write(run)

    assert gate(storage, state, run) == reason


def test_a_plan_that_waits_is_asked_about(storage: ClusterStorage, state: MemoryState) -> None:
    assert ask(state, "awaiting_approval") == ""
    gate(storage, state, plan(storage, state))

    assert ask(state, "awaiting_approval") == f"pulsar_apply__{CLUSTER} {awaiting(state).asked}"
    assert ask(state, "nothing_to_do") == ""


def test_what_is_shown_is_handed_over_with_who_approved_it(storage: ClusterStorage, state: MemoryState) -> None:
    run = plan(storage, state)
    gate(storage, state, run)
    shown = show(storage, state)

    assert shown["subject"] == f"Move 2 bundles in cluster {CLUSTER}?"
    assert "` load/test/0x10000000_0x20000000 `: ` a:1 ` to ` b:1 `" in shown["body"]
    run_id = apply(storage, state, shown)
    found = StateStore(state).handed_over(shown["plan"], run_id)
    assert found is not None
    assert (found.plan.plan_id, found.by, found.approved) == (run.name, "ada", True)


@pytest.mark.parametrize(
    ("present", "reason"),
    [
        ({"pause": {"until": "2999-01-01T00:00:00Z", "reason": "x"}}, "paused"),
        ({"mode": "observe"}, "observe"),
        ({"max_awaiting_minutes": 0.0001}, "awaited_too_long"),
        ({"blackouts": [{"start": "2020-01-01T00:00", "end": "2999-01-01T00:00"}]}, "blackout"),
    ],
)
def test_what_holds_by_now_holds_in_spite_of_an_approval(
    storage: ClusterStorage, state: MemoryState, present: dict[str, Any], reason: str
) -> None:
    gate(storage, state, plan(storage, state, age=timedelta(seconds=10)))

    assert apply(storage, state, show(storage, state), **present) == reason
    assert ApprovedPlans.KEY not in state.documents


def test_a_pause_that_was_ordered_meanwhile_holds(storage: ClusterStorage, state: MemoryState) -> None:
    gate(storage, state, plan(storage, state))
    shown = show(storage, state)
    pause = PauseOrder(at=NOW, by="bob", reason="x", until=NOW + timedelta(days=1))
    StateStore(state).put_control(storage, Control(pause=pause))

    assert apply(storage, state, shown) == "paused"


def test_a_plan_that_was_superseded_is_not_carried_out(storage: ClusterStorage, state: MemoryState) -> None:
    gate(storage, state, plan(storage, state))
    shown, asked = show(storage, state), awaiting(state).asked
    gate(storage, state, plan(storage, state, OTHERS))

    assert apply(storage, state, shown, run_id=asked) == "superseded"


def test_a_plan_that_knows_nothing_of_later_moves_is_not_carried_out(
    storage: ClusterStorage, state: MemoryState
) -> None:
    gate(storage, state, plan(storage, state))
    shown = show(storage, state)
    unload = Unload(at=datetime.now(UTC) + timedelta(minutes=1), plan_id="p", source="a:1", destination="b:1")
    StateStore(state).put(MovesState(unloads={"t/n/0x0_0x1": unload}))

    assert apply(storage, state, shown) == "superseded"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        YES | {"chosen_options": ["Reject"]},
        YES | {"chosen_options": []},
        YES | {"responded_by_user": None},
        YES | {"responded_by_user": {"id": "", "name": ""}},
    ],
    ids=["marked as success", "rejected", "nothing chosen", "nobody", "no name"],
)
def test_nothing_is_carried_out_that_nobody_approved(storage: ClusterStorage, state: MemoryState, answer: Any) -> None:
    gate(storage, state, plan(storage, state))

    assert apply(storage, state, show(storage, state), answer=answer) == "not_approved"
    assert ApprovedPlans.KEY not in state.documents


def test_an_answer_that_somebody_wrote_into_an_xcom_approves_nothing(
    storage: ClusterStorage, state: MemoryState
) -> None:
    run = plan(storage, state)
    gate(storage, state, run)
    shown = show(storage, state)

    assert apply(storage, state, shown, answer=YES, noted=False) == "not_approved"
    reject(storage, state, run, "Approve", "ada", "it is quiet")
    reject(storage, state, run, "Reject", "ada", "no longer")
    assert apply(storage, state, shown, answer=YES, noted=False) == "not_approved"
    reject(storage, state, run, "Approve", "bob", "now it is")
    run_id = apply(storage, state, shown, answer=YES, noted=False)

    found = StateStore(state).handed_over(shown["plan"], run_id)
    assert found is not None
    assert (found.by, found.reason) == ("bob", "now it is")


def test_a_second_approval_is_refused(storage: ClusterStorage, state: MemoryState) -> None:
    gate(storage, state, plan(storage, state))
    shown = show(storage, state)
    run_id = apply(storage, state, shown)

    assert apply(storage, state, shown, runs={run_id: "queued"}) == "plan_used"
    # Killed between the note and the start, it is handed over by the next attempt.
    assert apply(storage, state, shown) == run_id
