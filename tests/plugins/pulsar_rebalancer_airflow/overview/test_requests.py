"""The list of people's requests, from Airflow's own tables: who asked for what, how far it is, and who may end it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from airflow.models import import_all_models
from airflow.models.asset import AssetModel
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.models.base import Base
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.hitl import HITLDetail
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session
from tests.overview_scene import JUST_NOW, NOW, Scene, uneven

from pulsar_rebalancer.config.resolution import RunParams
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.state.orders.question import Answer, Answers, Question
from pulsar_rebalancer.storage.cache import Cache
from pulsar_rebalancer_airflow.locations import CLUSTERS_VARIABLE, STORAGE_VARIABLE, storage_of
from pulsar_rebalancer_airflow.overview import airflow_facts
from pulsar_rebalancer_airflow.overview import requests as listed
from pulsar_rebalancer_airflow.state_store import state_asset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from pulsar_rebalancer.show.page.page_model import RequestView
    from pulsar_rebalancer.state.state_documents import StateDocument

EVERYTHING = frozenset(
    (f"pulsar_{kind}__east", method)
    for kind in ("control", "rebalance", "by_hand", "apply", "roll")
    for method in ("GET", "POST", "PUT")
)


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Airflow's tables, empty."""
    import_all_models()
    made = create_engine("sqlite://")
    Base.metadata.create_all(made)
    return made


@pytest.fixture
def session(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(tmp_path / "clusters.yaml"))
    (tmp_path / "clusters.yaml").write_text("clusters: {east: {connection: east, mode: approve}}")
    monkeypatch.setattr(listed, "_answers", Cache(2000))
    with Session(engine) as found:  # nothing of it is committed
        yield found


def asked(session: Session, kind: str, minutes: float, state: str = "queued", **given: Any) -> DagRun:
    """A run that somebody started so many minutes ago."""
    at = NOW - timedelta(minutes=minutes)
    made: dict[str, Any] = {"run_id": f"page__{uuid4()}", "run_type": DagRunType.MANUAL, "triggering_user_name": "ada"}
    made |= {"start_date": None if state == "queued" else at} | given
    run = DagRun(f"pulsar_{kind}__east", state=DagRunState(state), queued_at=at, run_after=at, **made)
    run.end_date = at if state in ("success", "failed") else None
    session.add(run)
    session.flush()
    return run


def task(session: Session, run: DagRun, name: str, **given: Any) -> Any:
    """A task of a run; returns its id."""
    number = uuid4()
    row = {"id": number, "dag_id": run.dag_id, "run_id": run.run_id, "task_id": name, "pool": "default_pool"}
    session.execute(insert(TaskInstance).values(row | {"try_number": 1} | given))
    return number


def left(session: Session, run: DagRun, name: str, key: str, value: Any) -> None:
    """What a task of a run left."""
    of_run = {"dag_id": run.dag_id, "run_id": run.run_id, "dag_run_id": run.id}
    session.execute(insert(XComModel).values(of_run | {"task_id": name, "key": key, "map_index": -1, "value": value}))


def seen(
    session: Session, monkeypatch: pytest.MonkeyPatch, rights: frozenset[tuple[str, str]] = EVERYTHING, limit: int = 10
) -> list[RequestView]:
    """The list, as a user with these rights gets it."""
    monkeypatch.setattr(listed, "may", lambda _, dag_id, method, *_of: (dag_id, method) in rights)
    nobody: Any = None
    return listed.requests(session, storage_of("east"), nobody, NOW, limit)


def test_the_newest_requests_of_all_people_are_listed_with_their_reasons(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = asked(session, "apply", 9, "running", triggering_user_name=None)
    answered = {"responded_at": NOW - timedelta(minutes=3), "responded_by": {"id": "7", "name": "bob"}}
    answered |= {"chosen_options": ["Reject"], "params_input": {"reason": "wrong hour"}}
    row = {"ti_id": task(session, asks, "approve"), "options": ["Approve", "Reject"], "subject": "", "params": {}}
    session.execute(insert(HITLDetail).values(row | answered))
    asked(session, "by_hand", 6, conf={"action": "unload", "bundles": ["a/b", "c/*"], "reason": "x"})
    asked(session, "rebalance", 5, conf={"force": "a broker was added"})
    asked(session, "by_hand", 4, conf={"plan": "0123456789abcdef", "reason": ""}, triggering_user_name=None)
    asked(session, "control", 2, conf={"action": "skip", "reason": "a look first"})
    asked(session, "rebalance", 1, run_id="scheduled__1", run_type=DagRunType.SCHEDULED)

    found = [(view.name, view.target, view.by, view.reason, view.state) for view in seen(session, monkeypatch)]

    assert found == [
        ("Skip next run", "", "ada", "a look first", "waiting"),
        ("Reject", "", "bob", "wrong hour", "running"),
        ("Carry out", "0123456789ab", "unknown", "", "waiting"),
        ("Balance now", "", "ada", "a broker was added", "waiting"),
        ("Unload", "a/b, c/*", "ada", "x", "waiting"),
    ]
    assert [view.name for view in seen(session, monkeypatch, limit=2)] == ["Skip next run", "Reject"]
    unread = EVERYTHING - {("pulsar_control__east", "GET"), ("pulsar_apply__east", "GET")}
    assert [view.name for view in seen(session, monkeypatch, unread)] == ["Carry out", "Balance now", "Unload"]


@pytest.mark.parametrize(
    ("kind", "conf", "said", "until"),
    [
        ("by_hand", {"action": "unload", "bundles": ["a/b"], "destination": "b:1"}, "Unload a/b to b:1", None),
        ("by_hand", {"action": "unload", "bundles": ["a/b"], "destination": ""}, "Unload a/b", None),
        ("rebalance", {"force": "x", "force_threshold": 7.5}, "Balance now for gaps from 7.5 points", None),
        ("control", {"action": "pause", "until": "2026-11-22T13:00:00.000Z"}, "Pause ", NOW + timedelta(hours=1)),
        ("control", {"action": "pause", "until": "2026-11-22T13:00:00"}, "Pause ", None),
        ("control", {"action": "pause", "until": ["<script>"]}, "Pause ", None),
        ("roll", {"brokers": ["a:1", "b:1"], "reason": "patch"}, "Plan rolling restart a:1, b:1", None),
        ("roll", {"plan": "0123456789abcdef"}, "Rolling restart 0123456789ab", None),
    ],
)
def test_what_was_asked_for_is_named_whole(
    session: Session, monkeypatch: pytest.MonkeyPatch, kind: str, conf: dict[str, Any], said: str, until: Any
) -> None:
    asked(session, kind, 1, conf=conf)
    (found,) = seen(session, monkeypatch)
    assert (f"{found.name} {found.target}", found.until) == (said, until)


def balanced(session: Session, scene: Scene, at: datetime, verdict: Reason | None = None, force: str = "") -> DagRun:
    """A run that a person started and that has ended, with its files."""
    folder = scene.run(at, verdict=verdict, params=RunParams(force=force))
    run_id = RunRequest.read(folder).airflow_run_id
    run = asked(session, "rebalance", 1, "success", run_id=run_id)
    left(session, run, "collect", "return_value", folder.uri)
    return run


@pytest.mark.parametrize(
    ("verdict", "state", "said"),
    [
        (None, "done", "Moved 4 bundles, each verified on its new broker."),
        (Reason.OVER_CAP, "refused", "at the gate (over_cap): A plan to move 4 bundles was not carried out: The plan"),
        (Reason.PAUSED, "refused", "at the gate (paused): A plan to move 4 bundles was not carried out: the cluster"),
        (Reason.REJECTED, "refused", "at the gate (rejected): A plan to move 4 bundles was not carried out: A person"),
        (Reason.ON_HOLD, "refused", "at the gate (on_hold): A plan to move 4 bundles was not carried out: Validation"),
    ],
)
def test_a_plan_that_was_not_carried_out_is_not_done(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: Reason | None, state: str, said: str
) -> None:
    scene = Scene(str(tmp_path), uneven(4))
    scene.run(JUST_NOW - timedelta(minutes=1))
    balanced(session, scene, JUST_NOW, verdict)
    (found,) = seen(session, monkeypatch)
    assert (found.state, found.text[: len(said)], found.cancel) == (state, said, "")


@pytest.mark.parametrize(("force", "state"), [("", "done"), ("a broker was added", "refused")])
def test_in_mode_observe_only_a_person_who_asks_for_moves_is_refused(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, force: str, state: str
) -> None:
    scene = Scene(str(tmp_path), uneven(4), mode="observe")
    scene.run(JUST_NOW - timedelta(minutes=1))
    balanced(session, scene, JUST_NOW, force=force)
    (found,) = seen(session, monkeypatch)
    assert found.state == state
    assert found.text.endswith("Would move 4 bundles, but mode observe moves nothing.")


@pytest.mark.parametrize(("rolls", "state"), [(False, "done"), (True, "refused")])
def test_a_plan_without_moves_is_done_unless_a_roll_held_them(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rolls: bool, state: str
) -> None:
    scene = Scene(str(tmp_path), uneven(4))
    scene.rolls = rolls
    if rolls:
        scene.run(JUST_NOW - timedelta(minutes=1))
    balanced(session, scene, JUST_NOW)
    (found,) = seen(session, monkeypatch)
    assert found.state == state


def stored(session: Session, *documents: StateDocument) -> None:
    """Put documents into the cluster's state."""
    asset = session.merge(AssetModel(id=1, name=state_asset("east").name, uri=state_asset("east").uri))
    session.flush()
    for document in documents:
        session.merge(AssetStateStoreModel(asset_id=asset.id, key=document.KEY, value=document.model_dump_json()))
    session.flush()


def test_a_plan_that_awaits_approval_follows_its_answer(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scene, now = Scene(str(tmp_path), uneven(4), mode="approve"), datetime.now(UTC)
    scene.run(now - timedelta(minutes=1))
    run = balanced(session, scene, now, Reason.AWAITING_APPROVAL)
    plan_id = next(iter(scene.storage.newest_runs(now + timedelta(minutes=1)))).name
    question = Question(plan_id=plan_id, at=now, run_id="ask__1")
    answer = Answer(question=question, at=now, by="bob", reason="quiet")
    approved = answer.model_copy(update={"carried_out_by": "approved__1"})

    def said() -> tuple[str, str, str]:
        (found,) = seen(session, monkeypatch)
        return found.state, found.text, found.cancel

    stored(session, question)
    assert said() == ("awaiting approval", "", "")
    rejected = "A plan to move 4 bundles was rejected by bob: quiet."
    stored(session, Answers(plans={plan_id: answer}))
    assert said() == ("refused", rejected, "")
    monkeypatch.setattr(listed, "_answers", Cache(2000))

    stored(session, Answers(plans={plan_id: approved}))
    asks = asked(session, "apply", 1, "running", run_id="ask__1")
    assert said() == ("running", "", "")
    asks.state = DagRunState.SUCCESS
    left(session, asks, "carry_out", "trigger_run_id", "approved__1")
    carries_out = asked(session, "rebalance", 0, run_id="approved__1", run_type=DagRunType.OPERATOR_TRIGGERED)
    assert said() == ("waiting", "for its turn", "run")
    assert seen(session, monkeypatch)[0].run == carries_out.run_id != run.run_id


def test_a_plan_whose_approval_was_refused_says_so(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scene, now = Scene(str(tmp_path), uneven(4), mode="approve"), datetime.now(UTC)
    scene.run(now - timedelta(minutes=1))
    balanced(session, scene, now, Reason.AWAITING_APPROVAL)
    plan_id = next(iter(scene.storage.newest_runs(now + timedelta(minutes=1)))).name
    question = Question(plan_id=plan_id, at=now, run_id="ask__1")
    approved = Answer(question=question, at=now, by="bob", reason="quiet", carried_out_by="approved__1")
    answers = Answers(plans={plan_id: approved, "other": approved.model_copy(update={"carried_out_by": ""})})
    stored(session, question, answers)
    asks = asked(session, "apply", 1, "failed", run_id="ask__1")
    task(session, asks, "carry_out", state="failed", end_date=NOW)
    left(session, asks, "carry_out", "failure", "paused")

    (found,) = seen(session, monkeypatch)

    assert (found.state, found.text[:30]) == ("refused", "in carry_out (paused): The clu")
    facts = airflow_facts.of_dag(session, scene.storage, "pulsar_rebalance__east")
    assert facts.not_handed_over == {plan_id: Reason.PAUSED}


@pytest.mark.parametrize(
    ("conf", "state", "result", "shown", "said"),
    [
        ({"plan": "0" * 64}, "running", None, "rolling", ""),
        ({}, "running", None, "running", ""),
        ({}, "success", {"plan": "0" * 64}, "done", "The roll is shown; no broker restarts yet."),
        ({"plan": "0" * 64}, "success", {"a:1": "broker_rolled"}, "done", Reason.ROLLED.meaning),
    ],
)
def test_a_rolling_restart_is_a_request(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    conf: dict[str, str],
    state: str,
    result: Any,
    shown: str,
    said: str,
) -> None:
    run = asked(session, "roll", 1, state, conf=conf)
    left(session, run, "roll", "return_value", result)
    (found,) = seen(session, monkeypatch)
    assert (found.state, found.text) == (shown, said)


def test_a_request_in_the_queue_is_cancelled_by_those_who_may_edit_its_run(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minutes, (kind, state) in enumerate((("control", "queued"), ("rebalance", "queued"), ("by_hand", "running"))):
        asked(session, kind, minutes, state)
    assert [view.cancel for view in seen(session, monkeypatch)] == ["run", "run", ""]
    some = EVERYTHING - {("pulsar_control__east", "PUT")}
    assert [view.cancel for view in seen(session, monkeypatch, some)] == ["", "run", ""]


def test_a_cancelled_run_waits_no_longer_although_airflow_keeps_it_in_the_queue(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [asked(session, "rebalance", minutes) for minutes in range(4)]
    waits, cancelled, tried, silent = runs
    task(session, waits, "collect", state=None, try_number=0)
    task(session, cancelled, "collect", state="skipped", try_number=0)
    task(session, tried, "collect", state="skipped", try_number=1)
    task(session, silent, "collect", state="skipped", try_number=0)
    cancelled.dag_run_note = DagRunNote("Cancelled on the page of the cluster: wrong hour", "7")
    silent.dag_run_note = DagRunNote("an unrelated remark", "8")
    for event, extra, owner in (
        ("patch_dag_run", {"state": "failed", "note": "x"}, "bob"),
        ("patch_dag_run", {"note": "y"}, "eve"),
        ("clear_dag_run", {"state": "failed"}, "eve"),
    ):
        session.add(Log(event, owner=owner, extra=json.dumps(extra), dag_id=cancelled.dag_id, run_id=cancelled.run_id))
    session.flush()

    assert [(view.state, view.text, view.cancel) for view in seen(session, monkeypatch)] == [
        ("waiting", "for its turn", "run"),
        ("cancelled", "before it began, by bob: wrong hour", ""),
        ("waiting", "for its turn", "run"),
        ("cancelled", "before it began.", ""),
    ]
    assert airflow_facts._queued(session, waits.dag_id) == (waits.run_id, tried.run_id)


@pytest.mark.parametrize(("done", "seconds_left"), [(0, None), (2, 20.0), (4, 0.0)])
def test_a_plan_that_is_carried_out_has_progress_and_time_left_and_can_be_stopped(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, done: int, seconds_left: float | None
) -> None:
    scene = Scene(str(tmp_path), uneven(4))
    scene.run(JUST_NOW - timedelta(minutes=1))
    folder = scene.run(JUST_NOW, seconds=0, begun=done)
    run = asked(session, "rebalance", 1, "running", run_id=RunRequest.read(folder).airflow_run_id)
    left(session, run, "collect", "return_value", folder.uri)
    task(session, run, "unload", start_date=NOW - timedelta(seconds=20))

    (found,) = seen(session, monkeypatch)

    assert (found.done, found.total, found.seconds_left) == (done, 4, seconds_left)
    assert found.cancel == ("stop" if done < 4 else "")
    (found,) = seen(session, monkeypatch, EVERYTHING - {("pulsar_control__east", "POST")})
    assert (found.done, found.cancel) == (done, "")


def test_a_plan_that_was_accepted_continues_in_the_run_that_carries_it_out(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = asked(session, "by_hand", 2, "success", conf={"plan": "0" * 64})
    carries_out = asked(session, "rebalance", 1, run_id="by_hand__1", run_type=DagRunType.OPERATOR_TRIGGERED)
    left(session, accepted, "carry_out", "trigger_run_id", carries_out.run_id)

    (found,) = seen(session, monkeypatch)

    assert (found.name, found.dag, found.run) == ("Carry out", carries_out.dag_id, carries_out.run_id)
    assert (found.state, found.cancel) == ("waiting", "run")
