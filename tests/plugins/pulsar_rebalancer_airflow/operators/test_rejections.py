"""What people rejected is remembered, and what cannot be read of answers counts as not approved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput
from tests.airflow_context import MemoryState, context
from tests.airflow_runs import CLUSTER
from tests.plugins.pulsar_rebalancer_airflow.operators.approve_scene import (
    MOVES,
    NOW,
    apply,
    awaiting,
    entry,
    gate,
    plan,
    reject,
    settings,
    show,
)

from pulsar_rebalancer.run.manual_request import ByHand, HandRequest
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.state.manual_plans import ApprovedPlans, HandedOver, ShownPlan
from pulsar_rebalancer.state.orders.control_document import Awaiting, Rejections
from pulsar_rebalancer_airflow.control.stored_orders import in_force
from pulsar_rebalancer_airflow.operators import (
    ApproveOperator,
    CollectOperator,
    ShowAwaitingOperator,
)
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.layout import ClusterStorage


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", '{"conn_type": "pulsar_admin", "host": "nowhere"}')


@pytest.mark.parametrize(
    ("answer", "by", "present", "moves", "reason"),
    [
        ("Reject", "bob", {}, MOVES, "rejected"),
        ("Reject", "bob", {}, MOVES[:1], "awaiting_approval"),
        ("Reject", "bob", {"self_approval": {"max_bundles": 9}}, MOVES, "rejected"),
        ("Reject", "bob", {"max_awaiting_minutes": 0.0001}, MOVES, "awaiting_approval"),
        ("Reject", "bob", {"pause": {"until": "2999-01-01T00:00:00Z", "reason": "x"}}, MOVES, "paused"),
        ("Reject", "", {}, MOVES, "awaiting_approval"),  # nobody answered in time
        ("Approve", "bob", {}, MOVES, "awaiting_approval"),
    ],
)
def test_moves_that_a_person_rejected_are_not_asked_for_again_at_once(
    storage: ClusterStorage,
    state: MemoryState,
    answer: str,
    by: str,
    present: dict[str, Any],
    moves: Any,
    reason: str,
) -> None:
    first = plan(storage, state)
    gate(storage, state, first)
    reject(storage, state, first, answer, by, "too  many\nat once")
    asked = awaiting(state).asked

    again = plan(storage, state, moves)

    assert Summary.read(again).hash != Summary.read(first).hash
    assert gate(storage, state, again, runs={asked: "success"}, **present) == reason
    assert (awaiting(state).asked != asked) is (reason == "awaiting_approval")


def test_a_rejection_is_told_with_who_when_and_why(storage: ClusterStorage, state: MemoryState) -> None:
    first = plan(storage, state)
    gate(storage, state, first)
    waits = told_of(storage, state)
    reject(storage, state, first, by="bob", why="too many at once")

    assert f"plan {Summary.read(first).hash[:16]} waits for approval until " in waits
    said = told_of(storage, state)
    assert "waits for approval until" not in said
    assert f"the moves of plan {first.name} are not asked for before " in said
    assert said.endswith("rejected by bob: too many at once")


def told_of(storage: ClusterStorage, state: MemoryState) -> str:
    return in_force(StateStore(state), storage, settings(), None)


def test_whoever_asks_by_hand_for_moves_that_were_rejected_is_asked(
    storage: ClusterStorage, state: MemoryState
) -> None:
    first = plan(storage, state)
    gate(storage, state, first)
    reject(storage, state, first)
    run = plan(storage, state)
    by_hand = ByHand(by="ada", request=HandRequest(action="unload", bundles=("t/n",)))
    Summary.read(run).model_copy(update={"by_hand": by_hand}).write(run)

    assert gate(storage, state, run) == "awaiting_approval"


@pytest.mark.parametrize("document", [Awaiting, ApprovedPlans, Rejections])
@pytest.mark.parametrize("damaged", [{"version": 99}, "text", {"version": 4, "plans": 1, "moves": 1, "older": 1}])
def test_what_cannot_be_read_counts_as_not_approved_and_is_written_anew(
    storage: ClusterStorage, state: MemoryState, document: Any, damaged: Any
) -> None:
    first = plan(storage, state)
    gate(storage, state, first)
    shown = show(storage, state)
    state.documents[document.KEY] = damaged
    if document is Awaiting:
        assert apply(storage, state, shown, run_id=f"ask__{first.name}") == "approval_unreadable"
        given: Any = context(CLUSTER, state, run_id=f"ask__{first.name}")
        with pytest.raises(AirflowFailException, match="approval_unreadable"):
            ShowAwaitingOperator(task_id="show", entry=entry(), root=storage.root).execute(given)
    # No criterion is enough while it is not known what people rejected.
    present = {"self_approval": {"max_bundles": 9}} if document is Rejections else {}
    run = plan(storage, state)
    assert gate(storage, state, run, runs={}, **present) == "awaiting_approval"

    reject(storage, state, run, "Approve")
    approved = apply(storage, state, show(storage, state))
    assert approved.startswith("approved__")
    assert StateStore(state).handed_over(Summary.read(run).hash, approved) is not None
    for each in (Awaiting, ApprovedPlans, Rejections):
        StateStore(state).get(each)


def test_an_approved_run_is_refused_in_words_while_approvals_cannot_be_read(
    storage: ClusterStorage, state: MemoryState
) -> None:
    state.documents[ApprovedPlans.KEY] = {"version": 99}
    given: Any = context(CLUSTER, state, params={"plan": "a" * 64}, run_id="approved__a")

    with pytest.raises(AirflowFailException, match=r"approval_unreadable.*is asked about"):
        CollectOperator(task_id="collect", entry=entry(), root=storage.root).execute(given)


def test_what_was_approved_is_carried_out_although_rejections_cannot_be_read(
    storage: ClusterStorage, state: MemoryState
) -> None:
    shown = ShownPlan(plan_id="p", action=None, at=NOW, by="")
    handed_over = HandedOver(plan=shown, run_id="manual__1", at=NOW, by="ada", approved=True)
    StateStore(state).put(ApprovedPlans(plans={"a" * 64: handed_over}))
    state.documents[Rejections.KEY] = {"version": 99}
    run = plan(storage, state)
    by_hand = ByHand(by="ada", request=HandRequest(plan="a" * 64), carries_out="a" * 64)
    Summary.read(run).model_copy(update={"by_hand": by_hand}).write(run)

    assert gate(storage, state, run) == "open"


@pytest.mark.parametrize(
    ("try_number", "max_tries", "asked", "asks"),
    [
        (1, 2, None, True),
        (2, 2, True, False),  # answered before the scheduler knew that it waits: the question still stands
        (3, 2, True, False),
        (2, 2, None, True),  # the first attempt came to no question
        (2, 3, True, True),  # cleared
        (3, 3, True, False),  # cleared, and answered too early
    ],
)
def test_a_question_is_asked_once_until_its_task_is_cleared(
    storage: ClusterStorage,
    state: MemoryState,
    monkeypatch: pytest.MonkeyPatch,
    try_number: int,
    max_tries: int,
    asked: bool | None,
    asks: bool,
) -> None:
    written = Mock()
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.upsert_hitl_detail", written)
    kept, given = MemoryState({"asked": asked} if asked else {}), context(CLUSTER, state)
    ti = SimpleNamespace(try_number=try_number, max_tries=max_tries, id="7")
    texts = {"subject": "Move?", "body": "2 bundles"}
    operator = ApproveOperator(task_id="approve", entry=entry(), root=storage.root, retries=2, **texts)

    with pytest.raises(TaskAwaitingInput):
        operator.execute({**given, "ti": ti, "task_instance": ti, "task_state_store": kept})  # type: ignore[typeddict-item]

    assert written.called is asks
    assert kept.documents["asked"] is True
