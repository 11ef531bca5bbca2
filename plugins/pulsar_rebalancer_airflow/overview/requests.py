"""The list of people's requests: runs that people started, and their answers to questions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.types import DagRunType
from sqlalchemy import func, select

from pulsar_rebalancer.reasons import Trait
from pulsar_rebalancer.show.page.page_model import RequestView, RunAnswer
from pulsar_rebalancer.show.page.recent_runs import read_run
from pulsar_rebalancer.storage.cache import Cache
from pulsar_rebalancer_airflow.locations import APPLY_DAG, BY_HAND_DAG, CONTROL_DAG, REBALANCE_DAG, ROLL_DAG
from pulsar_rebalancer_airflow.overview.airflow_facts import may, run_folder
from pulsar_rebalancer_airflow.overview.run_answers import answer_of

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy.orm import Session

    from pulsar_rebalancer.storage.layout import ClusterStorage

MOST = 200
"""Maximum number of listed requests."""

_NAMES = {"skip": "Skip next run", "undo": "Undo run"}

_HANDED_OVER = 2
"""How often a request continues in another run: once it is accepted, and once it is approved."""

_answers: Cache[RunAnswer] = Cache(2000)
"""Cached outcomes of ended runs, by run and end time."""


def requests(
    session: Session, storage: ClusterStorage, user: BaseUser, now: datetime, limit: int = MOST
) -> list[RequestView]:
    """Return people's latest requests, newest first. DAGs whose runs the user may not read are left out."""
    cluster = storage.cluster
    dag_ids = [f"{prefix}{cluster}" for prefix in (CONTROL_DAG, BY_HAND_DAG, REBALANCE_DAG, ROLL_DAG)]
    dag_ids = [dag_id for dag_id in dag_ids if may(user, dag_id, "GET")]
    by_people = (DagRun.dag_id.in_(dag_ids), DagRun.run_type == DagRunType.MANUAL)
    runs = session.scalars(select(DagRun).where(*by_people).order_by(DagRun.id.desc()).limit(limit))
    views = [_view(session, cluster, run, _asked(run)) for run in runs]
    apply = f"{APPLY_DAG}{cluster}"
    if may(user, apply, "GET") and may(user, apply, "GET", DagAccessEntity.HITL_DETAIL):
        views += [_view(session, cluster, run, _answered(detail)) for detail, run in _answers_to(session, apply, limit)]
    cancels = {dag_id for dag_id in {view.dag for view in views} if may(user, dag_id, "PUT")}
    stops = may(user, f"{CONTROL_DAG}{cluster}", "POST")
    newest = sorted(views, key=lambda view: view.at, reverse=True)[:limit]
    return [_with_progress(session, storage, view, now, cancels, stops=stops) for view in newest]


def _answers_to(session: Session, dag_id: str, limit: int) -> list[Any]:
    """Return people's answers to the apply DAG's questions, each with its run."""
    asked = select(HITLDetail, DagRun).join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
    asked = asked.join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
    by_people = (TaskInstance.dag_id == dag_id, HITLDetail.responded_at.is_not(None))
    return list(session.execute(asked.where(*by_people).order_by(DagRun.id.desc()).limit(limit)))


def _asked(run: DagRun) -> dict[str, Any]:
    conf = run.conf or {}
    named = "carry out" if conf.get("plan") else "balance now" if conf.get("force") else "run now"
    if run.dag_id.startswith(ROLL_DAG):
        named = "rolling restart" if conf.get("plan") else "plan rolling restart"
    action = str(conf.get("action") or named)
    return {
        "name": _NAMES.get(action, action.replace("_", " ").capitalize()),
        "target": _target(conf),
        "until": _time(conf.get("until")),
        "by": run.triggering_user_name or "unknown",
        "at": run.queued_at or run.run_after,
        "reason": str(conf.get("reason") or conf.get("force") or ""),
    }


def _target(conf: dict[str, Any]) -> str:
    named = (conf.get(name) for name in ("bundles", "broker", "brokers", "run"))
    what = str(conf.get("plan") or "")[:12] or next(filter(None, named), "")
    destination, above, gap = (conf.get(name) for name in ("destination", "above", "force_threshold"))
    parts = [
        (", ".join(map(str, what)) if isinstance(what, list) else str(what))[:200],
        f"to {destination}"[:200] if destination else "",
        f"above {above} %"[:200] if above else "",
        f"for gaps from {gap} points"[:200] if gap else "",
    ]
    return " ".join(filter(None, parts))


def _time(given: object) -> datetime | None:
    """Return a time that a person gave; None if it is none, for which its run is refused."""
    try:
        at = datetime.fromisoformat(str(given))
    except ValueError:
        return None
    return at if at.tzinfo else None


def _answered(detail: HITLDetail) -> dict[str, Any]:
    return {
        "name": ", ".join(detail.chosen_options or ()),
        "by": detail.responded_by_user_name or "unknown",
        "at": detail.responded_at,
        "reason": str((detail.params_input or {}).get("reason") or ""),
    }


def _view(session: Session, cluster: str, run: DagRun, asked: dict[str, Any]) -> RequestView:
    answer = _answer(session, run)
    for _ in range(_HANDED_OVER):
        its = (DagRun.dag_id == f"{REBALANCE_DAG}{cluster}", DagRun.run_id == answer.next_run)
        following = session.scalar(select(DagRun).where(*its)) if answer.next_run else None
        if following is None:
            break
        run, answer = following, _answer(session, following)
    return RequestView(**asked, dag=run.dag_id, run=run.run_id, state=answer.state, text=answer.text)


def _answer(session: Session, run: DagRun) -> RunAnswer:
    key = f"{run.dag_id} {run.run_id} {run.end_date}"
    known = _answers.get(key) if run.end_date else None
    answer = known or answer_of(session, run.dag_id, run.run_id) or RunAnswer(text="")
    # A person's answer is another run, whose end does not change this one.
    ended = run.end_date and answer.state in ("done", "refused", "failed", "cancelled")
    return _answers.put(key, answer) if ended else answer


def _with_progress(
    session: Session, storage: ClusterStorage, view: RequestView, now: datetime, cancels: set[str], *, stops: bool
) -> RequestView:
    if view.state == "waiting" and view.dag in cancels:
        return view.model_copy(update={"cancel": "run"})
    moves = view.state == "running" and view.dag.startswith(REBALANCE_DAG)
    folder = run_folder(session, storage, view.dag, view.run) if moves else None
    run = read_run(folder) if folder is not None else None
    if run is None or run.summary is None or run.outcome is not None:
        return view
    total = run.summary.bundles_taken + run.summary.bundles_split
    reasons = [move.reason for move in run.moves.values()] + [split.reason for split in run.cuts.values()]
    done = sum(not reason.has(Trait.NOT_BEGUN) for reason in reasons)
    begun = select(func.min(TaskInstance.start_date)).where(
        TaskInstance.dag_id == view.dag, TaskInstance.run_id == view.run, TaskInstance.task_id.in_(("split", "unload"))
    )
    since = session.scalar(begun)
    left = (now - since).total_seconds() / done * (total - done) if since and done else None
    cancel = "stop" if stops and done < total else ""
    return view.model_copy(update={"done": done, "total": total, "seconds_left": left, "cancel": cancel})
