"""What people answer in mode `approve`: an approved plan is carried out once, what was rejected is not asked again."""

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, DagRunTriggerException
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER
from tests.plugins.pulsar_rebalancer_airflow.operators.approve_scene import (
    MOVES,
    OTHERS,
    answer,
    asked,
    carried_out,
    entry,
    gate,
    plan,
    question,
)

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.orders.manual_plans import Answers
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.run.plan import ForcedRun, Summary
from pulsar_rebalancer.run.request import DrainProgress, ManualPlanRecord, PlanRequest
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import CarryOutApprovedOperator, CollectOperator

PAUSE = {"until": "2999-01-01T00:00:00Z", "reason": "x"}
BLACKOUT = {"start": "2020-01-01T00:00", "end": "2999-01-01T00:00"}


@pytest.fixture
def waits(storage: ClusterStorage, state: MemoryState) -> StoragePath:
    run = plan(storage, state)
    gate(storage, state, run)
    return run


@pytest.mark.parametrize("by", ["bob", {"name": None, "id": "bob"}])
def test_an_approved_plan_is_handed_over_with_who_approved_it(storage, state, waits, by):
    answer(storage, state, "Approve", by=by, why="it is quiet")

    run_id, identity = carried_out(storage, state)

    assert identity == Summary.read(waits).hash
    found = store_of(state).handed_over_plan(identity, run_id)
    assert found is not None
    assert (found.plan.plan_id, found.by, found.reason, found.approved) == (waits.name, "bob", "it is quiet", True)
    assert store_of(state).handed_over_plan("f" * 64, run_id) is None
    assert store_of(state).handed_over_plan(identity, run_id[:-1]) is None


@pytest.mark.usefixtures("waits")
def test_the_run_of_an_approved_plan_is_noted_with_who_approved_it(storage, state):
    answer(storage, state, "Approve", why="it is quiet")
    given: Any = context(CLUSTER, state, user=None, run_id=question(state).run_id)
    with pytest.raises(DagRunTriggerException) as handed_over:
        CarryOutApprovedOperator(task_id="carry_out", entry=entry(), root=storage.root).execute(given)
    assert handed_over.value.note == "Approved by ada: it is quiet"


@pytest.mark.parametrize(
    ("present", "reason"),
    [({"pause": PAUSE}, "paused"), ({"mode": "observe"}, "observe"), ({"blackouts": [BLACKOUT]}, "blackout")],
)
@pytest.mark.usefixtures("waits")
def test_later_holds_close_the_gate_of_an_approved_plan(storage, state, present, reason):
    answer(storage, state, "Approve")

    assert carried_out(storage, state, **present) == (reason, "")


@pytest.mark.parametrize("present", [{"pause": PAUSE}, {"blackouts": [BLACKOUT]}])
@pytest.mark.usefixtures("waits")
def test_no_approval_is_used_up_while_nothing_may_be_moved(storage, state, present):
    assert answer(storage, state, "Approve", **present) == "asked again"
    assert store_of(state).get(Answers).plans == {}
    assert answer(storage, state, "Approve") == ""
    assert carried_out(storage, state)[1] != ""


@pytest.mark.parametrize(
    ("option", "by"), [("", ""), ("Reject", "ada"), ("Approve", ""), ("Reject", ""), ("Approve", {"name": None})]
)
@pytest.mark.usefixtures("waits")
def test_unapproved_plan_is_not_carried_out(storage, state, option, by):
    if option:  # else somebody marked the task as a success
        answer(storage, state, option, by=by)

    assert carried_out(storage, state) == ("no_user", "")


@pytest.mark.usefixtures("waits")
def test_an_approval_is_of_the_plan_that_was_asked_about(storage, state):
    answer(storage, state, "Approve")
    gate(storage, state, plan(storage, state, OTHERS))

    assert carried_out(storage, state) == ("no_user", "")


def approved_plan(storage: ClusterStorage, state: MemoryState, run_id: str, identity: str) -> StoragePath:
    run = plan(storage, state, airflow_run_id=run_id)
    by_hand = ManualPlanRecord(by="ada", request=PlanRequest(plan=identity), carries_out=identity)
    Summary.read(run).model_copy(update={"by_hand": by_hand}).write(run)
    return run


@pytest.mark.parametrize(("own", "reason"), [(True, "open"), (False, "awaiting_approval")])
def test_approved_plan_is_carried_out_only_by_its_own_run(storage, state, waits, own, reason):
    answer(storage, state, "Approve")
    run_id, identity = carried_out(storage, state)
    carries_out = run_id if own else "manual__1"

    assert gate(storage, state, approved_plan(storage, state, carries_out, identity), run_id=carries_out) == reason


@pytest.mark.parametrize(
    ("option", "by", "present", "moves", "reason"),
    [
        ("Reject", "bob", {}, MOVES, "rejected"),
        ("Reject", "bob", {}, MOVES[:1], "awaiting_approval"),
        ("Reject", "bob", {"max_awaiting_minutes": 1e-9}, MOVES, "awaiting_approval"),
        ("Reject", "bob", {"pause": PAUSE}, MOVES, "paused"),
        ("Reject", "", {}, MOVES, "awaiting_approval"),  # nobody answered in time
        ("Approve", "bob", {}, MOVES, "awaiting_approval"),
    ],
)
def test_moves_that_a_person_rejected_are_not_asked_for_again_at_once(
    storage, state, option, by, present, moves, reason
):
    first = plan(storage, state)
    gate(storage, state, first)
    answer(storage, state, option, by, "too  many\nat once")
    before = question(state).run_id

    again = plan(storage, state, moves)

    assert Summary.read(again).hash != Summary.read(first).hash
    assert gate(storage, state, again, runs={before: "success"}, **present) == reason
    assert (question(state).run_id != before) is (reason == "awaiting_approval")


def test_whoever_asks_by_hand_for_moves_that_were_rejected_is_asked(storage, state):
    first = plan(storage, state)
    gate(storage, state, first)
    answer(storage, state, "Reject")
    run = plan(storage, state)
    by_hand = ManualPlanRecord(by="ada", request=PlanRequest(action="unload", bundles=("t/n",)))
    Summary.read(run).model_copy(update={"by_hand": by_hand}).write(run)

    assert gate(storage, state, run) == "awaiting_approval"


@pytest.mark.usefixtures("waits")
def test_answers_that_are_lost_approve_nothing(storage, state):
    answer(storage, state, "Approve")
    state.documents[Answers.KEY] = {"version": 99}

    assert carried_out(storage, state) == ("state_lost", "")
    assert gate(storage, state, plan(storage, state), runs={}) == "state_lost"


def collected(storage: ClusterStorage, state: MemoryState, run_id: str, identity: str) -> str:
    """Why *collect* refuses to carry out a plan; `asks` if it goes on to ask the brokers, of which there are none."""
    given: Any = context(CLUSTER, state, params={"plan": identity}, run_id=run_id)
    try:
        CollectOperator(task_id="collect", entry=entry(), root=storage.root).execute(given)
    except AdminError:
        return "asks"
    except AirflowFailException:
        return str(given["ti"].pushed["failure"])
    raise AssertionError("brokers answered")


@pytest.mark.usefixtures("waits")
def test_an_approved_plan_can_wait_until_the_gate_opens_for_another_one(storage, state):
    answer(storage, state, "Approve")
    first, identity = carried_out(storage, state)
    assert collected(storage, state, first, identity) == "asks"
    assert gate(storage, state, approved_plan(storage, state, first, identity), run_id=first) == "open"
    assert collected(storage, state, first, identity) == "asks", "the run is cleared"

    assert gate(storage, state, plan(storage, state, OTHERS, mode="auto"), mode="auto") == "open"
    assert collected(storage, state, first, identity) == "plan_expired"

    # An opening is remembered by the next question, whose plan was made later.
    assert gate(storage, state, plan(storage, state, OTHERS)) == "awaiting_approval"
    answer(storage, state, "Approve")
    assert collected(storage, state, *carried_out(storage, state)) == "asks"
    assert collected(storage, state, first, identity) == "plan_expired"


FORCED = {"forced": ForcedRun(by="ada", reason="x", threshold=None)}
DRAINED = {"a:1": DrainProgress(since=datetime(2026, 1, 1, tzinfo=UTC), by="ada", reason="x", bundles=2, moving=2)}


@pytest.mark.parametrize(
    "requested",
    [{"by_hand": ManualPlanRecord(by="ada", request=PlanRequest(action="undo", run="x"))}, FORCED, {"drains": DRAINED}],
)
def test_two_people_are_needed_if_the_clusters_file_says_so(storage, state, requested):
    two: dict[str, Any] = {"two_people": True}
    run = plan(storage, state)
    summary = Summary.read(run).model_copy(update=requested)
    summary.write(run)
    assert gate(storage, state, run, **two) == "awaiting_approval"
    assert "* requested by ` ada `, so another person has to approve the plan" in asked(storage, state, **two)

    for own in ("ada", {"id": "ada", "name": "Ada Lovelace"}, {"id": "7", "name": "ada"}):
        assert answer(storage, state, "Approve", by=own, **two) == "asked again"

    assert store_of(state).get(Answers).plans == {}

    assert answer(storage, state, "Approve", by="bob", **two) == ""
    assert store_of(state).get(Answers).plans[run.name].by == "bob"
    # Anybody may withdraw their request.
    assert answer(storage, state, "Reject", by="ada", **two) == ""
    assert store_of(state).get(Answers).plans[run.name].carried_out_by == ""


def test_scheduled_plan_needs_one_person(storage, state, waits):
    assert "requested by" not in asked(storage, state, two_people=True)
    assert answer(storage, state, "Approve", by="ada", two_people=True) == ""
    assert store_of(state).get(Answers).plans[waits.name].by == "ada"


def test_a_request_without_a_user_is_not_accepted(storage, state):
    run = plan(storage, state)
    Summary.read(run).model_copy(update={"forced": ForcedRun(by="", reason="x", threshold=None)}).write(run)

    assert gate(storage, state, run, two_people=True) == "no_user"
    assert question(state).plan_id == ""
    assert gate(storage, state, run, record=False) == "awaiting_approval"
    assert answer(storage, state, "Approve", by="bob", two_people=True) == "asked again"


@pytest.mark.parametrize(("phase", "own"), [(Phase.DRAINING, True), (Phase.RETURNING, False), (None, False)])
def test_in_a_rolling_restart_only_its_own_plans_can_be_approved(storage, state, waits, phase, own):
    roll = Roll(id="f", order=("a:1",), turn_at=datetime.now(UTC), phase=Phase.DRAINING)
    StateBefore(roll=roll.model_copy(update={"phase": phase}) if phase else None).write(waits)
    store_of(state).put(roll)

    assert answer(storage, state, "Approve") == ("" if own else "asked again")
    assert bool(store_of(state).get(Answers).plans) is own

    store_of(state).put(Roll())
    answer(storage, state, "Approve")
    store_of(state).put(roll)
    assert (carried_out(storage, state)[0] == "rolling") is not own
