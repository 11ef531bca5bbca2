from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, DagRunTriggerException
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER, bundle, make_run, move_row

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.orders.manual_plans import (
    Answer,
    Answers,
    Drains,
    HandedOverPlans,
    Question,
    ShownPlan,
    ShownPlans,
)
from pulsar_rebalancer.orders.order import Control, GivenOrder
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import MoveOutcome, conclude_run, wave_file, write_outcomes
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import ManualPlanRecord, parse_form
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.operators import CarryOutOperator, FormOperator
from pulsar_rebalancer_airflow.state_store import StateStore

UNLOAD: dict[str, Any] = {"action": "unload", "bundles": ["t/n"]}
DRAIN: dict[str, Any] = {"action": "drain", "broker": "a:1", "reason": "new disks"}
TOMORROW = datetime(2100, 1, 1, tzinfo=UTC)


def shown(storage: ClusterStorage, state: MemoryState, age: timedelta = timedelta(0), **form: Any) -> str:
    run = make_run(storage, [move_row(len(state.documents), "a:1", "b:1")], age=age)
    request = parse_form(form)
    summary = Summary.read(run).model_copy(update={"by_hand": ManualPlanRecord(by="ada", request=request)})
    summary.write(run)
    StateBefore().write(run)
    assert request.action is not None
    entry = ShownPlan(plan_id=run.name, action=request.action, at=summary.collected_at, by="ada")
    store = store_of(state)
    store.put(ShownPlans(plans=store.get(ShownPlans).plans | {summary.hash: entry}))
    return summary.hash


def act(storage, state, runs=None, file=None, run="", user="bob", tasks=None, paused=False, cleared=0, **form):
    """The reason code, or `done` with what the other DAG is started with.

    Of that DAG, `tasks` has the states of tasks, and `paused` says whether it is paused in Airflow.
    """
    settings = Settings.model_validate({"mode": "auto"} | (file or {}))
    entry = ClusterEntry(name=CLUSTER, given={}, settings=settings)
    given: Any = context(CLUSTER, state, params=form, user=user, run_id=run, states=tasks, cleared=cleared)
    given["ti"].runs, given["ti"].paused = runs or {}, paused
    try:
        CarryOutOperator(task_id="carry_out", entry=entry, root=storage.root).execute(given)
    except DagRunTriggerException as handed_over:
        return "done", (handed_over.dag_run_id, handed_over.conf)
    except AirflowFailException:
        return str(given["ti"].pushed["failure"]), None
    return "done", None


def test_a_plan_is_handed_over_with_its_hash_and_who_did_it(storage, state):
    identity = shown(storage, state, **UNLOAD)

    done, (run_id, conf) = act(storage, state, plan=identity)

    assert (done, conf) == ("done", {"plan": identity})
    entry = store_of(state).get(HandedOverPlans).plans[identity]
    assert (entry.plan.by, entry.run_id, entry.by) == ("ada", run_id, "bob")


def test_nobody_can_begin_the_run_of_a_plan_before_it_is_handed_over(storage, state):
    identity, other = shown(storage, state, **UNLOAD), shown(storage, state, **UNLOAD)
    guessed = {
        f"by_hand__{identity[:32]}": "success",
        f"by_hand__{store_of(state).get(ShownPlans).plans[identity].plan_id}": "running",
    }

    assert act(storage, state, guessed, plan=identity)[0] == "done"
    first, second = (act(storage, state, guessed, plan=each)[1][0] for each in (identity, other))
    assert first.partition("__")[2][-16:] != second[-16:]


@pytest.mark.parametrize(
    ("given", "file", "reason"),
    [
        ({}, {"mode": "observe"}, "observe"),
        ({"age": timedelta(minutes=61)}, {}, "plan_expired"),
        ({}, {}, "dag_paused"),
    ],
)
@pytest.mark.parametrize("form", [UNLOAD, DRAIN])
def test_wrong_request_is_refused(storage, state, given, file, reason, form):
    identity = shown(storage, state, **given, **form)
    before = dict(state.documents)

    assert act(storage, state, file=file, plan=identity, paused=reason == "dag_paused") == (reason, None)
    assert state.documents == before


GONE = {"start": "2026-01-01T00:00:00", "end": "2026-01-02T00:00:00"}


@pytest.mark.parametrize(
    ("file", "order", "reason"),
    [
        ({"pause": {"until": TOMORROW, "reason": "holiday"}}, lambda _: Control(), "paused"),
        ({"maintenance_windows": [GONE]}, lambda _: Control(), "outside_window"),
        ({"breaker": {"failed_moves": 1}}, lambda now: Breaker(opened_at=now, why="a test"), "breaker_open"),
        (
            {},
            lambda now: Control().with_order(
                GivenOrder(action="skip", at=now - timedelta(minutes=1), by="ada", reason="later")
            ),
            "skipped",
        ),
    ],
    ids=["paused", "outside_window", "breaker_open", "skipped"],
)
def test_a_drain_is_marked_although_its_moves_wait(storage, state, file, order, reason):
    store_of(state).put(order(datetime.now(UTC)))

    assert act(storage, state, file=file, plan=shown(storage, state, **UNLOAD)) == (reason, None)
    assert act(storage, state, file=file, plan=shown(storage, state, **DRAIN)) == ("done", None)
    assert list(store_of(state).get(Drains).brokers) == ["a:1"]


@pytest.mark.parametrize("form", [UNLOAD, DRAIN])
@pytest.mark.parametrize(
    ("mode", "user", "reason"),
    [
        ("auto", "ada", "same_person"),
        ("auto", None, "no_user"),
        ("approve", None, "no_user"),
        ("auto", "bob", "done"),
        ("approve", "ada", "asks"),
    ],
)
def test_two_people_are_needed_if_the_clusters_file_says_so(storage, state, form, mode, user, reason):
    identity, two = shown(storage, state, **form), {"mode": mode, "two_people": True}
    before = dict(state.documents)

    if reason == "asks":  # another person approves the moves; a drain outlasts the mode
        reason = "same_person" if form is DRAIN else "done"
    assert act(storage, state, file=two, user=user, plan=identity)[0] == reason
    assert (state.documents == before) == (reason != "done")


def test_plans_are_carried_out_one_at_a_time_and_once(storage, state):
    first, second = shown(storage, state, **UNLOAD), shown(storage, state, **UNLOAD)
    assert act(storage, state, plan="0" * 64) == ("other_plan", None)
    _, (run_id, _) = act(storage, state, plan=first)

    for going_on in ("queued", "running"):
        assert act(storage, state, {run_id: going_on}, plan=second)[0] == "plan_under_way"
    # It was cancelled in the queue, where it remains for its teardown.
    other = MemoryState(dict(state.documents))
    assert act(storage, other, {run_id: "queued"}, tasks={"collect": "skipped"}, plan=second)[0] == "done"
    assert act(storage, state, {run_id: "success"}, plan=first)[0] == "plan_used"
    assert act(storage, state, {run_id: "failed"}, plan=second)[0] == "done"


def test_a_drain_is_marked_and_released(storage, state):
    identity = shown(storage, state, **DRAIN)
    store = store_of(state)

    assert act(storage, state, plan=identity) == ("done", None)
    drain = store.get(Drains).brokers["a:1"]
    assert (drain.by, drain.reason) == ("bob", "new disks")

    assert act(storage, state, action="release", broker="b:1", reason="x")[0] == "not_drained"
    assert act(storage, state, action="release", broker="a:1", reason="x", cleared=1)[0] == "no_user"
    assert act(storage, state, action="release", broker="a:1", reason="the disks are in")[0] == "done"
    assert store.get(Drains).brokers == {}
    assert act(storage, state, run="manual__2", plan=identity)[0] == "plan_used"
    assert store.get(Drains).brokers == {}


@pytest.mark.parametrize("form", [DRAIN, UNLOAD], ids=["drain", "moves"])
def test_a_roll_that_begins_at_the_same_time_comes_first(storage, state, monkeypatch, form):
    identity, store, put = shown(storage, state, **form), store_of(state), StateStore.put

    def begun(self: StateStore, document: Any) -> None:
        put(self, document)
        if isinstance(document, HandedOverPlans if form is UNLOAD else Drains):
            put(self, Roll(id="f", order=("b:1",), at=datetime.now(UTC)))

    monkeypatch.setattr(StateStore, "put", begun)
    assert act(storage, state, plan=identity)[0] == "rolling"
    assert store.get(Drains).brokers == {}


def test_no_plan_is_made_during_a_roll(state):
    form = FormOperator(task_id="form", cluster=CLUSTER, show_task="collect", act_task="carry_out")
    assert form.choose_branch(context(CLUSTER, state, params=UNLOAD)) == "collect"

    store_of(state).put(Roll(id="f", order=("b:1",), at=datetime.now(UTC)))
    given: Any = context(CLUSTER, state, params=UNLOAD)
    with pytest.raises(AirflowFailException):
        form.choose_branch(given)
    assert given["ti"].pushed["failure"] == "rolling"


def test_releases_of_a_year_are_known():
    now, day = datetime.now(UTC), timedelta(days=1)
    drains = Drains(released={"a:1": now - 365 * day, "b:1": now - 367 * day})

    assert drains.without_broker("c:1", now).released == {"a:1": now - 365 * day, "c:1": now}


@pytest.mark.parametrize(("reason", "note"), [("new disks", "Unload by bob: new disks"), ("", "Unload by bob")])
def test_the_run_that_carries_a_plan_out_is_noted_with_who_wanted_it(storage, state, reason, note):
    identity = shown(storage, state, **UNLOAD, reason=reason)
    entry = ClusterEntry(name=CLUSTER, given={}, settings=Settings.model_validate({"mode": "auto"}))
    given: Any = context(CLUSTER, state, params={"plan": identity}, user="bob")
    with pytest.raises(DagRunTriggerException) as handed_over:
        CarryOutOperator(task_id="carry_out", entry=entry, root=storage.root).execute(given)
    assert handed_over.value.note == note


def carried_out(storage: ClusterStorage, run_id: str, reason: Reason) -> None:
    run = make_run(storage, airflow_run_id=run_id)
    moves = [MoveOutcome(bundle=bundle(1), source="a:1", destination="b:1", reason=reason)]
    write_outcomes(wave_file(run, 0), {move.bundle: move for move in moves})


@pytest.mark.parametrize("stop_reason", [Reason.STOPPED, Reason.PAUSED, Reason.OUTSIDE_WINDOW])
def test_a_plan_that_was_stopped_is_carried_out_again(storage, state, stop_reason):
    identity = shown(storage, state, **UNLOAD)
    _, (first, _) = act(storage, state, plan=identity)

    # Another attempt of the same task, before the run was there.
    assert act(storage, state, plan=identity) == ("done", (first, {"plan": identity}))
    assert act(storage, state, {first: "failed"}, plan=identity)[0] == "plan_used"  # it came to no snapshot
    carried_out(storage, first, stop_reason)
    assert act(storage, state, {first: "running"}, plan=identity)[0] == "plan_under_way"

    done, (second, conf) = act(storage, state, {first: "failed"}, plan=identity)
    assert (done, conf) == ("done", {"plan": identity})
    carried_out(storage, second, Reason.STOPPED)
    done, (third, _) = act(storage, state, {first: "failed", second: "failed"}, plan=identity)
    assert (done, len({first, second, third})) == ("done", 3)


@pytest.mark.parametrize(
    ("outcome", "again"), [(Reason.STOPPED, "done"), (Reason.MOVED, "plan_used"), (None, "plan_used")]
)
def test_in_mode_approve_a_plan_that_was_stopped_is_carried_out_again(storage, state, outcome, again):
    approve = {"mode": "approve"}
    identity = shown(storage, state, **UNLOAD)
    _, (asking, _) = act(storage, state, file=approve, plan=identity)
    waited = make_run(storage, [move_row(1, "a:1", "b:1")], airflow_run_id=asking)
    question = Question(plan_id=waited.name, hash=Summary.read(waited).hash, at=TOMORROW, run_id="ask__1")
    answer = Answer(question=question, at=datetime.now(UTC), by="ada", reason="", carried_out_by="approved__1")
    store_of(state).put(Answers(plans={waited.name: answer}))
    runs = {asking: "success", "approved__1": "running"}

    # It was paused when the person approved: the run was not begun.
    stop_reason, known = act(
        storage, MemoryState(dict(state.documents)), {asking: "success"}, file=approve, plan=identity
    )
    assert (stop_reason, known[0] != asking) == ("done", True)
    assert act(storage, state, runs, file=approve, plan=identity)[0] == "plan_under_way"
    if outcome is not None:
        carried_out(storage, "approved__1", outcome)
    carried_out(storage, "approved__2", Reason.STOPPED)
    assert act(storage, state, runs | {"approved__1": "failed"}, file=approve, plan=identity)[0] == again


@pytest.mark.parametrize(
    ("verdict", "again"), [("paused", "done"), ("awaiting_approval", "plan_used"), ("plan_too_old", "plan_used")]
)
def test_a_plan_that_was_held_back_at_the_gate_is_carried_out_again(storage, state, verdict, again):
    identity = shown(storage, state, **UNLOAD)
    _, (first, _) = act(storage, state, plan=identity)
    run = make_run(storage, airflow_run_id=first)
    conclude_run(run, Reason(verdict), datetime.now(UTC)).write(run)

    assert act(storage, state, {first: "success"}, plan=identity)[0] == again


def test_a_drain_whose_task_ended_between_its_writes_goes_on(storage, state):
    identity = shown(storage, state, **DRAIN)
    assert act(storage, state, plan=identity) == ("done", None)
    assert state.writes[-2:] == [HandedOverPlans.KEY, Drains.KEY]

    assert act(storage, state, plan=identity) == ("done", None)  # after both writes
    store_of(state).put(Drains())
    assert act(storage, state, plan=identity) == ("done", None)  # after the first
    assert list(store_of(state).get(Drains).brokers) == ["a:1"]


def test_the_run_that_marked_a_drain_marks_it_no_more_once_it_was_released(storage, state):
    identity, store = shown(storage, state, **DRAIN), store_of(state)
    assert act(storage, state, run="manual__1", plan=identity) == ("done", None)
    assert act(storage, state, run="manual__1", plan=identity) == ("done", None)  # cleared while it is drained
    assert act(storage, state, run="manual__2", action="release", broker="a:1", reason="the disks are in")[0] == "done"

    assert act(storage, state, run="manual__1", plan=identity)[0] == "plan_used"  # cleared after the release

    assert store.get(Drains).brokers == {}
    # Somebody else may have it drained again.
    again = shown(storage, state, **DRAIN)
    assert act(storage, state, run="manual__3", plan=again) == ("done", None)
    assert act(storage, state, run="manual__1", plan=identity)[0] == "plan_used"
    assert act(storage, state, run="manual__3", plan=again) == ("done", None)
    assert list(store.get(Drains).brokers) == ["a:1"]


def test_no_mark_is_written_over_marks_that_are_lost(storage, state):
    identity = shown(storage, state, **DRAIN)
    state.documents[Drains.KEY] = {"version": 99}

    assert act(storage, state, action="release", broker="a:1", reason="the disks are in")[0] == "state_lost"
    assert act(storage, state, plan=identity)[0] == "state_lost"

    assert state.documents[Drains.KEY] == {"version": 99}
