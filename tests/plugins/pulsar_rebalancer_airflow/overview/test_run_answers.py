from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from airflow.models import import_all_models
from airflow.models.asset import AssetModel
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from sqlalchemy import Engine, create_engine, insert
from sqlalchemy.orm import Session
from tests.overview_scene import JUST_NOW, NOW, Scene, uneven

from pulsar_rebalancer.config.clusters_file import RunParams
from pulsar_rebalancer.config.field_types import Action
from pulsar_rebalancer.orders.manual_plans import Answer, Answers, Question, ShownPlan, ShownPlans
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import ManualPlanRecord, PlanRequest, RunRequest
from pulsar_rebalancer.state import StateDocument
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.options import CLUSTERS_VARIABLE, STORAGE_VARIABLE
from pulsar_rebalancer_airflow.overview import airflow_facts, run_answers
from pulsar_rebalancer_airflow.state_store import state_asset


@pytest.fixture(scope="module")
def engine() -> Engine:
    import_all_models()
    made = create_engine("sqlite://")
    Base.metadata.create_all(made)
    return made


@pytest.fixture
def session(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(tmp_path / "clusters.yaml"))
    (tmp_path / "clusters.yaml").write_text("clusters: {east: {connection: east, mode: approve}}")
    with Session(engine) as found:  # nothing of it is committed
        yield found


def asked(session: Session, kind: str, minutes: float, state: str = "queued", **given: Any) -> DagRun:
    at = NOW - timedelta(minutes=minutes)
    made: dict[str, Any] = {"run_id": f"drain__{uuid4()}", "run_type": DagRunType.MANUAL, "triggering_user_name": "ada"}
    made |= {"start_date": None if state == "queued" else at} | given
    run = DagRun(f"pulsar_{kind}__east", state=DagRunState(state), queued_at=at, run_after=at, **made)
    run.end_date = at if state in ("success", "failed") else None
    session.add(run)
    session.flush()
    return run


def task(session: Session, run: DagRun, name: str, **given: Any) -> Any:
    number = uuid4()
    row = {"id": number, "dag_id": run.dag_id, "run_id": run.run_id, "task_id": name, "pool": "default_pool"}
    session.execute(insert(TaskInstance).values(row | {"try_number": 1} | given))
    return number


def left(session: Session, run: DagRun, name: str, key: str, value: Any) -> None:
    of_run = {"dag_id": run.dag_id, "run_id": run.run_id, "dag_run_id": run.id}
    session.execute(insert(XComModel).values(of_run | {"task_id": name, "key": key, "map_index": -1, "value": value}))


def answered(session: Session, run: DagRun) -> tuple[str, str]:
    """The state of a run, and the text after it."""
    answer = run_answers.make_run_answer(session, run.dag_id, run.run_id)
    assert answer is not None
    return answer.state, answer.text


def balanced(session: Session, scene: Scene, at: datetime, verdict: Reason | None = None, force: str = "") -> DagRun:
    folder = scene.run(at, verdict=verdict, params=RunParams(force=force))
    run_id = RunRequest.read(folder).airflow_run_id
    run = asked(session, "rebalance", 1, "success", run_id=run_id)
    left(session, run, "collect", "return_value", folder.uri)
    return run


@pytest.mark.parametrize(
    ("verdict", "state", "said"),
    [
        (None, "done", "Moved 4 bundles, each verified on its new broker."),
        (
            Reason.SETTINGS_CHANGED,
            "refused",
            "at the gate (settings_changed): A plan to move 4 bundles was not carried out: The clusters",
        ),
        (Reason.PAUSED, "refused", "at the gate (paused): A plan to move 4 bundles was not carried out: the cluster"),
        (Reason.REJECTED, "refused", "at the gate (rejected): A plan to move 4 bundles was not carried out: A person"),
        (Reason.ON_HOLD, "refused", "at the gate (on_hold): A plan to move 4 bundles was not carried out: A find"),
    ],
)
def test_a_plan_that_was_not_carried_out_is_not_done(session, tmp_path, verdict, state, said):
    scene = Scene(str(tmp_path), uneven(4))
    scene.run(JUST_NOW - timedelta(minutes=1))
    found, text = answered(session, balanced(session, scene, JUST_NOW, verdict))
    assert (found, text[: len(said)]) == (state, said)


@pytest.mark.parametrize(("force", "state"), [("", "done"), ("a broker was added", "refused")])
def test_in_mode_observe_only_a_person_who_asks_for_moves_is_refused(session, tmp_path, force, state):
    scene = Scene(str(tmp_path), uneven(4), mode="observe")
    scene.run(JUST_NOW - timedelta(minutes=1))
    found, text = answered(session, balanced(session, scene, JUST_NOW, force=force))
    assert found == state
    assert text.endswith("A plan would move 4 bundles. Nothing is moved, because the mode is observe.")


@pytest.mark.parametrize(("rolls", "state"), [(False, "done"), (True, "refused")])
def test_a_plan_without_moves_is_done_unless_a_roll_held_them(session, tmp_path, rolls, state):
    scene = Scene(str(tmp_path), uneven(4))
    scene.rolls = rolls
    if rolls:
        scene.run(JUST_NOW - timedelta(minutes=1))
    assert answered(session, balanced(session, scene, JUST_NOW))[0] == state


def stored(session: Session, *documents: StateDocument) -> None:
    asset = session.merge(AssetModel(id=1, name=state_asset("east").name, uri=state_asset("east").uri))
    session.flush()
    for document in documents:
        session.merge(AssetStateStoreModel(asset_id=asset.id, key=document.KEY, value=document.model_dump_json()))
    session.flush()


def test_a_plan_that_awaits_approval_follows_its_answer(session, tmp_path):
    scene, now = Scene(str(tmp_path), uneven(4), mode="approve"), datetime.now(UTC)
    scene.run(now - timedelta(minutes=1))
    run = balanced(session, scene, now, Reason.AWAITING_APPROVAL)
    plan_id = next(iter(scene.storage.latest_runs(now + timedelta(minutes=1)))).name
    question = Question(plan_id=plan_id, at=now, run_id="ask__1")
    answer = Answer(question=question, at=now, by="bob", reason="quiet")
    approved = answer.model_copy(update={"carried_out_by": "approved__1"})

    stored(session, question)
    assert answered(session, run) == ("awaiting approval", "")
    stored(session, Answers(plans={plan_id: answer}))
    assert answered(session, run) == ("refused", "A plan to move 4 bundles was rejected by bob: quiet.")

    stored(session, Answers(plans={plan_id: approved}))
    asks = asked(session, "apply", 1, "running", run_id="ask__1")
    assert answered(session, run) == ("running", "")
    asks.state = DagRunState.SUCCESS
    left(session, asks, "carry_out", "trigger_run_id", "approved__1")
    asked(session, "rebalance", 0, run_id="approved__1", run_type=DagRunType.OPERATOR_TRIGGERED)
    assert answered(session, run) == ("waiting", "for its turn")


def test_a_plan_whose_approval_was_refused_says_so(session, tmp_path):
    scene, now = Scene(str(tmp_path), uneven(4), mode="approve"), datetime.now(UTC)
    scene.run(now - timedelta(minutes=1))
    run = balanced(session, scene, now, Reason.AWAITING_APPROVAL)
    plan_id = next(iter(scene.storage.latest_runs(now + timedelta(minutes=1)))).name
    question = Question(plan_id=plan_id, at=now, run_id="ask__1")
    approved = Answer(question=question, at=now, by="bob", reason="quiet", carried_out_by="approved__1")
    answers = Answers(plans={plan_id: approved, "other": approved.model_copy(update={"carried_out_by": ""})})
    stored(session, question, answers)
    asks = asked(session, "apply", 1, "failed", run_id="ask__1")
    task(session, asks, "carry_out", state="failed", end_date=NOW)
    left(session, asks, "carry_out", "failure", "paused")

    state, text = answered(session, run)

    assert (state, text[:30]) == ("refused", "in carry_out (paused): The clu")
    facts = airflow_facts.facts_of_dag(session, scene.storage, "pulsar_rebalance__east")
    assert facts.why_not_handed_over == {plan_id: Reason.PAUSED}


def test_a_cancelled_run_waits_no_longer_although_airflow_keeps_it_in_the_queue(session):
    runs = [asked(session, "rebalance", minutes) for minutes in range(3)]
    waits, cancelled, tried = runs
    task(session, waits, "collect", state=None, try_number=0)
    task(session, cancelled, "collect", state="skipped", try_number=0)
    task(session, tried, "collect", state="skipped", try_number=1)

    assert [answered(session, run) for run in runs] == [
        ("waiting", "for its turn"),
        ("cancelled", "before it began."),
        ("waiting", "for its turn"),
    ]
    assert airflow_facts._queued_run_ids(session, waits.dag_id) == (waits.run_id, tried.run_id)


def test_a_plan_that_was_accepted_continues_in_the_run_that_carries_it_out(session):
    accepted = asked(session, "by_hand", 2, "success", conf={"plan": "0" * 64})
    left(session, accepted, "carry_out", "trigger_run_id", "by_hand__1")
    assert answered(session, accepted) == ("done", "Run by_hand__1 carries out the plan.")
    asked(session, "rebalance", 1, run_id="by_hand__1", run_type=DagRunType.OPERATOR_TRIGGERED)

    assert answered(session, accepted) == ("waiting", "for its turn")


@pytest.mark.parametrize(
    "message", ["no broker reports a bundle named acme/x", f"GET /brokers at a:1: 401. {Reason.UNAUTHORIZED.action}"]
)
def test_action_of_a_failure_is_said_once(message, monkeypatch):
    monkeypatch.setattr(run_answers, "run_failure", lambda *_: ("collect", "unauthorized"))
    monkeypatch.setattr(run_answers, "read_xcom", lambda *_, **__: message)
    nothing: Any = None

    text = run_answers._refusal_answer(nothing, "dag", "run", "").text

    assert text.count(Reason.UNAUTHORIZED.action) == 1
    assert ".." not in text


def test_the_hour_has_people_s_orders_and_the_runs_that_failed(session, tmp_path):
    plan, request = (
        Scene(str(tmp_path), uneven(4)).run(JUST_NOW, dry_run=True),
        PlanRequest(action=Action.DRAIN, broker="a:1", reason="x"),
    )
    summary = plan / "plan" / "summary.json"
    record = ManualPlanRecord(by="ada", request=request)
    summary.write_json(summary.read_json() | {"by_hand": record.model_dump(mode="json")})
    shown = ShownPlan(plan_id=plan.name, action=Action.DRAIN, at=NOW, by="ada")
    stored(session, ShownPlans(plans={"f00": shown}))
    asked(session, "by_hand", 2, "success", conf={"plan": "f00"})
    asked(session, "roll", 1, "success", conf={"plan": "f01"})
    asked(session, "control", 61, "success", conf={"action": "stop", "reason": "too early"})
    asked(session, "control", 9, "success", conf={"action": "pause", "reason": "disks"})
    asked(session, "by_hand", 8, "success", conf={"action": "unload", "reason": "only a look"})
    asked(session, "by_hand", 7, "success", conf={"plan": "abc"})
    asked(session, "by_hand", 6, "failed", conf={"action": "release", "broker": ["a:1"], "reason": "back"})
    asked(session, "rebalance", 5, "success")
    silent, slow = (asked(session, "rebalance", ago, "failed") for ago in (4, 3))
    task(session, silent, "collect", state="failed")
    left(session, silent, "collect", "failure", "unreachable")

    begin = NOW - timedelta(hours=1)
    orders = airflow_facts.orders_since(session, ClusterStorage(str(tmp_path), "east"), begin)
    failures = airflow_facts.failures_since(session, slow.dag_id, begin)

    assert sorted(event.text for event in orders) == [
        "carry out a plan by ada",
        "drain a:1 by ada",
        "pause by ada: disks",
        "release a:1 by ada: back, refused",
        "restart brokers by ada",
    ]
    assert [(event.at, event.text) for event in failures] == [
        (NOW - timedelta(minutes=4), "failed in collect (unreachable)"),
        (NOW - timedelta(minutes=3), "timed out"),
    ]


def test_the_dry_run_of_a_rolling_restart_is_a_table_and_its_end_is_said(session: Session) -> None:
    turn = {"broker": "a:1", "score": 40.0, "traffic": 2e6, "bundles": 9, "minutes": 4.0, "why_not": ""}
    shown = {"plan": "f00", "refused": "", "waits": "", "restarts": [turn], "minutes": 4.0, "moves_twice": 9}
    dry, over = asked(session, "roll", 9, "success"), asked(session, "roll", 5, "success")
    left(session, dry, "roll", "return_value", shown)
    left(session, over, "roll", "return_value", {"a:1": "rolled", "b:1": "rolled"})
    answer = run_answers.make_run_answer(session, dry.dag_id, dry.run_id)
    assert answer is not None
    assert answer.restarts is not None
    assert answer.restarts.model_dump(mode="json") == shown
    ended = run_answers.make_run_answer(session, over.dag_id, over.run_id)
    assert ended is not None
    assert (ended.text, ended.restarts) == ("The rolling restart has ended: 2 brokers restarted.", None)
