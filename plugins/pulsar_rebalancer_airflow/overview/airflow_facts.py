"""Facts for the page that only Airflow can provide: the time of the next run, the folder of a run, and links."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.jobs.job import most_recent_job
from airflow.models.asset import AssetModel
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import and_, exists, select

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Action
from pulsar_rebalancer.errors import RebalancerError, SnapshotError
from pulsar_rebalancer.orders.in_force import LASTING_REASONS, buttons
from pulsar_rebalancer.orders.manual_plans import Answers, HandedOverPlans, ShownPlans
from pulsar_rebalancer.orders.order import Order
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.snapshot import find_run
from pulsar_rebalancer.show.page.facts import AirflowContext, FailedRun, hold_text
from pulsar_rebalancer.show.page.page_model import Links, Overview, QuestionView, State, UserActions
from pulsar_rebalancer.show.page.timeline import Event
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import one_line
from pulsar_rebalancer_airflow.options import (
    APPLY_DAG,
    BY_HAND_DAG,
    CONTROL_DAG,
    FAILURE,
    FOLDER,
    MESSAGE,
    REBALANCE_DAG,
    ROLL_DAG,
)
from pulsar_rebalancer_airflow.state_store import StoredState, state_asset
from pulsar_rebalancer_airflow.suites import base_path, page_path, validation_page

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy.orm import Session


def read_xcom(session: Session, dag_id: str, run_id: str, *, key: str, task: str) -> Any:
    of_task = (XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.task_id == task, XComModel.key == key)
    left = session.scalars(select(XComModel).where(*of_task)).first()
    return None if left is None else XComModel.deserialize_value(left)


_APPROVAL_TASK = "approve"

_STARTABLE_DAGS = (CONTROL_DAG, REBALANCE_DAG, BY_HAND_DAG, ROLL_DAG)

CANCELLED = exists().where(
    TaskInstance.dag_id == DagRun.dag_id,
    TaskInstance.run_id == DagRun.run_id,
    TaskInstance.task_id == "collect",
    TaskInstance.state == TaskInstanceState.SKIPPED,
    TaskInstance.try_number == 0,
)
"""Whether a rebalancing run was marked as failed before it began. The teardown task keeps such a run queued."""


def _stored_value(session: Session, asset: str, key: str) -> Any:
    of_asset = select(AssetStateStoreModel.value).join(AssetModel, AssetModel.id == AssetStateStoreModel.asset_id)
    value = session.scalar(of_asset.where(AssetModel.name == asset, AssetStateStoreModel.key == key))
    return None if value is None else json.loads(value)


def stored_state(session: Session, storage: ClusterStorage) -> StoredState:
    return StoredState(partial(_stored_value, session, state_asset(storage.cluster).name), storage)


def facts_of_dag(session: Session, storage: ClusterStorage, dag_id: str) -> AirflowContext:
    """Return Airflow's facts about a cluster; if the DAG does not exist, only those from the state store."""
    stored = stored_state(session, storage)
    dag = session.get(DagModel, dag_id)
    scheduler, running = most_recent_job("SchedulerJob", session=session), _running_run(session, dag_id)
    gate = _current_xcom(session, dag_id, running.run_id, key="reason", task="gate") if running else None
    facts = AirflowContext(
        paused=dag is not None and dag.is_paused,
        scheduled=scheduler is not None and scheduler.is_alive(),
        next_run_at=dag.next_dagrun_create_after if dag is not None else None,
        running_since=running.start_date if running else None,
        opened_run_id=running.run_id if running and gate == Reason.OPEN else "",
        queued_run_ids=_queued_run_ids(session, dag_id),
        failed=_latest_failure(session, dag_id),
    )
    try:
        orders = stored.orders()
        of_store = {
            "orders": orders,
            "last_plan_id": stored.last_plan_id(),
            "why_not_handed_over": _handover_failures(session, f"{APPLY_DAG}{storage.cluster}", orders.get(Answers)),
            "handed_over_plans": stored.peek(HandedOverPlans),
        }
    except SnapshotError:  # documents are missing, and so is the storage: the page says that it cannot be read
        return facts
    return facts.model_copy(update=of_store)


def _handover_failures(session: Session, dag_id: str, answers: Answers) -> dict[str, Reason]:
    """Return why approved plans were not handed over, by plan id: their runs of the apply DAG failed."""
    approved = {answer.question.run_id: name for name, answer in answers.plans.items() if answer.carried_out_by}
    if not approved:
        return {}
    failed = select(DagRun.run_id).where(
        DagRun.dag_id == dag_id, DagRun.run_id.in_(approved), DagRun.state == DagRunState.FAILED
    )
    codes = {approved[run_id]: run_failure(session, dag_id, run_id)[1] for run_id in session.scalars(failed)}
    return {name: Reason.get(code) or Reason.TASK_FAILED for name, code in codes.items()}


def _running_run(session: Session, dag_id: str) -> DagRun | None:
    running = select(DagRun).where(DagRun.dag_id == dag_id, DagRun.state == DagRunState.RUNNING)
    return session.scalar(running.order_by(DagRun.id.desc()).limit(1))


def _queued_run_ids(session: Session, dag_id: str) -> tuple[str, ...]:
    waiting = select(DagRun.run_id).where(DagRun.dag_id == dag_id, DagRun.state == DagRunState.QUEUED)
    return tuple(session.scalars(waiting.where(~CANCELLED).order_by(DagRun.id)))


def _latest_failure(session: Session, dag_id: str) -> FailedRun | None:
    ended = select(DagRun).where(
        DagRun.dag_id == dag_id,
        DagRun.state.in_((DagRunState.SUCCESS, DagRunState.FAILED)),
        DagRun.start_date.is_not(None),  # others were cancelled in the queue
    )
    run = session.scalar(ended.order_by(DagRun.id.desc()).limit(1))
    if run is None or run.state != DagRunState.FAILED or run.end_date is None:
        return None
    task, reason = run_failure(session, dag_id, run.run_id)
    message = read_xcom(session, dag_id, run.run_id, key=MESSAGE, task=task) if reason else None
    return FailedRun(run_id=run.run_id, at=run.end_date, task=task, reason=reason, message=str(message or ""))


def run_failure(session: Session, dag_id: str, run_id: str) -> tuple[str, str]:
    """Return the id of the first failed task and its reason code. Each is empty if there is none."""
    of_run = (TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    tasks = select(TaskInstance.task_id).where(*of_run, TaskInstance.state == TaskInstanceState.FAILED)
    task = session.scalar(tasks.order_by(TaskInstance.end_date).limit(1)) or ""
    return task, str(_current_xcom(session, dag_id, run_id, key=FAILURE, task=task) or "") if task else ""


def failures_since(session: Session, dag_id: str, begin: datetime) -> list[Event]:
    """Return the runs of a DAG that failed, each with its first failed task and the reason."""
    since = (DagRun.dag_id == dag_id, DagRun.state == DagRunState.FAILED, DagRun.start_date >= begin)
    of_runs = (TaskInstance.dag_id == dag_id, TaskInstance.state == TaskInstanceState.FAILED)
    rows = select(DagRun.start_date, TaskInstance.task_id, XComModel).select_from(DagRun)
    rows = rows.outerjoin(TaskInstance, and_(TaskInstance.run_id == DagRun.run_id, *of_runs))
    task = (XComModel.run_id == DagRun.run_id, XComModel.task_id == TaskInstance.task_id, XComModel.key == FAILURE)
    rows = rows.outerjoin(XComModel, and_(XComModel.dag_id == dag_id, *task)).where(*since)
    failed: dict[datetime, Event] = {}
    for at, name, left in session.execute(rows.order_by(TaskInstance.end_date)).all():
        code = f" ({XComModel.deserialize_value(left)})" if left is not None else ""
        text = f"failed in {name}{code}" if name else "timed out"
        if at is not None:  # the query's condition
            failed.setdefault(at, Event(at=at, kind="failed", text=text))
    return list(failed.values())


def _title(stored: StoredState, storage: ClusterStorage, plan: str) -> str:
    """Return what a manual plan does, such as "drain a:1"."""
    shown = stored.peek(ShownPlans).plans.get(plan)
    run = storage.run_folder(shown.plan_id) if shown else None
    summary = Summary.read_or_none(run) if run else None
    asked = summary.by_hand.request if summary and summary.by_hand else None
    return " ".join([str(asked.action), *asked.broker]) if asked else "carry out a plan"


def orders_since(session: Session, storage: ClusterStorage, since: datetime) -> list[Event]:
    """Return what operators have ordered: actions of the control DAG, plans that they carried out, and answers."""
    started = select(DagRun).where(
        DagRun.dag_id.in_([f"{prefix}{storage.cluster}" for prefix in (CONTROL_DAG, BY_HAND_DAG, ROLL_DAG)]),
        DagRun.queued_at >= since,
    )
    events = []
    for run in session.scalars(started):
        conf = run.conf or {}
        what = str(conf.get("action") or "").replace("_", " ")
        if conf.get("plan"):
            rolls = run.dag_id.startswith(ROLL_DAG)
            what = "restart brokers" if rolls else _title(stored_state(session, storage), storage, str(conf["plan"]))
        # Other runs only show something.
        if run.queued_at and (run.dag_id.startswith(CONTROL_DAG) or conf.get("plan") or what == Action.RELEASE):
            names = conf.get("broker") or conf.get("subject") or ()
            what = " ".join([what, *(map(str, names) if isinstance(names, list | tuple) else [str(names)])])
            order = Order(at=run.queued_at, by=run.triggering_user_name or "", reason=str(conf.get("reason") or ""))
            refused = ", refused" if run.state == DagRunState.FAILED else ""
            events.append(Event(at=order.at, kind="order", text=one_line(f"{what} {order.by_text}{refused}")))
    try:
        answers = stored_state(session, storage).orders().get(Answers).plans.values()
    except SnapshotError:
        return events
    return events + [
        Event(at=answer.at, kind="order", text=f"{'approve' if answer.carried_out_by else 'reject'} {answer.by_text}")
        for answer in answers
        if answer.at >= since
    ]


def _current_xcom(session: Session, dag_id: str, run_id: str, *, key: str, task: str) -> Any:
    """Return a task's XCom; None if it refers to an earlier folder of the run (see `current_xcom`)."""
    about = read_xcom(session, dag_id, run_id, key=FOLDER, task=task)
    present = read_xcom(session, dag_id, run_id, key="return_value", task="collect")
    return read_xcom(session, dag_id, run_id, key=key, task=task) if about in (None, present) else None


def run_folder(session: Session, storage: ClusterStorage, dag_id: str, run_id: str) -> StoragePath | None:
    """Return a run's folder, from the XCom of its task *collect*; None if it has no folder."""
    left = read_xcom(session, dag_id, run_id, key="return_value", task="collect")
    if left is None:
        return None
    try:
        return find_run(storage, str(left), run_id)
    except RebalancerError:
        return None


def may_use(user: BaseUser, dag_id: str, method: ResourceMethod, entity: DagAccessEntity = DagAccessEntity.RUN) -> bool:
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user)


def actions(session: Session, entry: ClusterEntry, facts: AirflowContext, user: BaseUser, now: datetime) -> UserActions:
    """Return the DAGs that the user may trigger in Airflow, and the question that the user may answer."""
    dag_ids = {prefix: f"{prefix}{entry.name}" for prefix in _STARTABLE_DAGS}
    allowed = {prefix: dag_id for prefix, dag_id in dag_ids.items() if may_use(user, dag_id, "POST")}
    asks = f"{APPLY_DAG}{entry.name}"
    question = None
    if may_use(user, asks, "POST") and may_use(user, asks, "PUT", DagAccessEntity.HITL_DETAIL):
        question, allowed[APPLY_DAG] = _shown_question(session, entry, facts, asks, now), asks
    used = {*allowed.values()} | ({dag_ids[REBALANCE_DAG]} if allowed.keys() & {BY_HAND_DAG, APPLY_DAG} else set())
    used |= {f"{ROLL_DAG}{entry.name}"} if facts.roll.is_active else set()
    paused = select(DagModel.dag_id).where(DagModel.dag_id.in_(used), DagModel.is_paused)
    closed = facts.gate_holds(entry.settings, now)
    return UserActions(
        control=allowed.get(CONTROL_DAG, ""),
        orders=buttons(facts.situation(entry.settings, now)) if CONTROL_DAG in allowed else (),
        rebalance=allowed.get(REBALANCE_DAG, ""),
        carries_out=dag_ids[REBALANCE_DAG],
        by_hand=allowed.get(BY_HAND_DAG, ""),
        roll=allowed.get(ROLL_DAG, ""),
        question=question,
        grace_minutes=entry.settings.grace_period_minutes,
        rolls=facts.roll.is_active,
        closed=hold_text(closed[0]) if closed else "",
        stays_closed=next((hold_text(closing) for closing in closed if closing.reason in LASTING_REASONS), ""),
        paused_dags=tuple(sorted(session.scalars(paused))),
        barred=(str(user.get_id()), user.get_name()) if entry.settings.two_people else (),
    )


def _shown_question(
    session: Session, entry: ClusterEntry, facts: AirflowContext, dag_id: str, now: datetime
) -> QuestionView | None:
    until, run_id = facts.answer_deadline(entry.settings, now), facts.question.run_id
    if until is None:
        return None
    asked = (TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.task_id == _APPROVAL_TASK)
    parked = TaskInstance.state.in_((TaskInstanceState.AWAITING_INPUT, TaskInstanceState.DEFERRED))
    details = select(HITLDetail.ti_id).join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
    if session.scalar(details.where(*asked, parked, HITLDetail.responded_at.is_(None))) is None:
        return None
    return QuestionView(dag=dag_id, run=run_id, task=_APPROVAL_TASK, hash=facts.question.hash, until=until)


def with_links(page: Overview, dag_id: str, storage: ClusterStorage, failed_run: FailedRun | None = None) -> Overview:
    """Return the page with links to its run, the most useful log, the validation result and requests.

    `failed_run` is the latest run if it failed, else None.
    """
    dag = f"{base_path()}/dags/{quote(dag_id, safe='')}"
    status = page.status.model_copy(update={"dag_id": dag_id})
    of_people = "|".join(f"{prefix}{storage.cluster}" for prefix in _STARTABLE_DAGS)
    requests = f"{base_path()}/dag_runs?{urlencode({'dag_id_pattern': of_people, 'run_type': 'manual'})}"
    links, folder = Links(dag=dag, requests=requests), storage.run_folder(page.folder)
    if folder is not None:
        run = f"{dag}/runs/{quote(page.run_id, safe='')}"
        validation = page_path(dag_id, page.run_id, page.folder) if validation_page(folder).exists() else ""
        task = "validate" if status.state is State.BLOCKED else "report"
        links = links.model_copy(update={"run": run, "log": f"{run}/tasks/{task}", "validation": validation})
    if failed_run is not None and status.state in (State.FAILED, State.STALE):
        run = f"{dag}/runs/{quote(failed_run.run_id, safe='')}"
        links = links.model_copy(
            update={"run": run, "log": f"{run}/tasks/{failed_run.task}" if failed_run.task else run}
        )
    return page.model_copy(update={"status": status, "links": links})
