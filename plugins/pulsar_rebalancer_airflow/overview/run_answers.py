"""The outcome of a run that the page started, and stored pages: validations and reports of replays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.dagrun import DagRun
from airflow.utils.state import DagRunState
from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import HTMLResponse
from sqlalchemy import select

from pulsar_rebalancer.config.field_types import Action
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import CLUSTER_NAME
from pulsar_rebalancer.orders.roll_document import ShownRestarts
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.variants import REPORT, REQUEST
from pulsar_rebalancer.run.compacted_tables import RUNS, compacted_documents, table_file
from pulsar_rebalancer.run.snapshot import belongs_to_run, lies_below
from pulsar_rebalancer.show import words
from pulsar_rebalancer.show.page.page_model import RunAnswer, State
from pulsar_rebalancer.show.page.recent_runs import Run, read_run
from pulsar_rebalancer.show.page.status import headline_after_answer, headline_of_run
from pulsar_rebalancer.storage.documents import ClusterStorage, time_of
from pulsar_rebalancer.storage.path import StoragePath, json_document
from pulsar_rebalancer.strategies.shedders.registry import load_clusters
from pulsar_rebalancer_airflow.options import (
    APPLY_DAG,
    BY_HAND_DAG,
    CONTROL_DAG,
    MESSAGE,
    REBALANCE_DAG,
    REPLAY_DAG,
    ROLL_DAG,
    clusters_file,
    entries_by_dag_id,
    storage_of,
    storage_root,
)
from pulsar_rebalancer_airflow.overview.airflow_facts import CANCELLED, facts_of_dag, read_xcom, run_failure, run_folder
from pulsar_rebalancer_airflow.suites import SECURITY_POLICY, validation_page

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


_ANSWERED_DAGS = (CONTROL_DAG, APPLY_DAG, BY_HAND_DAG, REBALANCE_DAG, ROLL_DAG)

_PROGRESS_ANSWERS = {
    DagRunState.QUEUED: RunAnswer(state="waiting", text="for its turn"),
    DagRunState.RUNNING: RunAnswer(state="running", text=""),
}


def make_run_answer(session: Session, dag_id: str, run_id: str) -> RunAnswer | None:
    """Return a run's outcome; None if the run does not exist, or the page does not start its DAG.

    The outcome of a run that has started another to carry out a plan is that run's.
    """
    prefix = next((dag for dag in _ANSWERED_DAGS if dag_id.startswith(dag)), "")
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    if not prefix or run is None:
        return None
    state = DagRunState(run.state)
    if _was_cancelled(session, run):
        return RunAnswer(state="cancelled", text=words.NOT_BEGUN)
    if state in _PROGRESS_ANSWERS:
        return _PROGRESS_ANSWERS[state]
    files = _ended_run(session, dag_id, run_id) if prefix == REBALANCE_DAG else None
    if state is DagRunState.FAILED:
        return _refusal_answer(session, dag_id, run_id, headline_of_run(files, "", 0).sentence if files else "")
    if prefix == CONTROL_DAG:
        result = read_xcom(session, dag_id, run_id, key="return_value", task="control")
        return RunAnswer(text=words.order_result_text(result if isinstance(result, dict) else {}))
    if prefix == ROLL_DAG:
        return _roll_answer(read_xcom(session, dag_id, run_id, key="return_value", task="roll"))
    if prefix == REBALANCE_DAG:
        return _run_answer(session, dag_id, files) if files else RunAnswer(text=words.NO_FILES)
    started = read_xcom(session, dag_id, run_id, key="trigger_run_id", task="carry_out")
    if started is not None:
        carries_out = make_run_answer(session, f"{REBALANCE_DAG}{dag_id.removeprefix(prefix)}", str(started))
        return carries_out or RunAnswer(text=f"Run {started} carries out the plan.")
    rejected = RunAnswer(text=words.REJECTED)
    return rejected if prefix == APPLY_DAG else _by_hand_answer(session, run)


def _was_cancelled(session: Session, run: DagRun) -> bool:
    if run.start_date is None and run.end_date is not None:
        return True
    found = select(DagRun.id).where(DagRun.id == run.id, CANCELLED)
    return run.dag_id.startswith(REBALANCE_DAG) and session.scalar(found) is not None


def _roll_answer(result: Any) -> RunAnswer:
    document = result if isinstance(result, dict) else {}
    if "restarts" in document:
        return RunAnswer(text=words.NOTHING_RESTARTED, restarts=ShownRestarts.model_validate(document))
    return RunAnswer(text=words.roll_ended_text(len(document)))


def _by_hand_answer(session: Session, run: DagRun) -> RunAnswer:
    shown = read_xcom(session, run.dag_id, run.run_id, key="return_value", task="plan")
    if isinstance(shown, dict):
        identity = str(shown.get("plan") or "")
        text = words.PLAN_READY if identity else words.no_effect_text(str(shown.get("no_effect") or ""))
        return RunAnswer(text=text, plan=identity)
    released = (run.conf or {}).get("action") == Action.RELEASE
    return RunAnswer(text=words.RELEASED if released else words.DRAINED)


def _refusal_answer(session: Session, dag_id: str, run_id: str, outcome_text: str) -> RunAnswer:
    task, code = run_failure(session, dag_id, run_id)
    reason = Reason.get(code)
    if reason is not None:
        message = str(read_xcom(session, dag_id, run_id, key=MESSAGE, task=task) or "")
        return RunAnswer(state="refused", text=words.refusal_text(f"in {task}", reason, message))
    text = f"in {task}: {outcome_text or 'see the log of this task.'}" if task else words.TIMED_OUT
    return RunAnswer(state="failed", text=text)


def _ended_run(session: Session, dag_id: str, run_id: str) -> Run | None:
    folder = run_folder(session, storage_of(dag_id.removeprefix(REBALANCE_DAG)), dag_id, run_id)
    run = read_run(folder) if folder is not None else None
    return run if run is not None and run.outcome is not None else None


def _run_answer(session: Session, dag_id: str, run: Run) -> RunAnswer:
    verdict, said = run.outcome.verdict if run.outcome else Reason.UNFINISHED, headline_of_run(run, "", 0)
    if verdict is Reason.AWAITING_APPROVAL:
        return _approval_answer(session, dag_id, run)
    nothing_to_move = verdict is Reason.NOTHING_TO_DO and said.state is not State.CLOSED
    only_looked = verdict is Reason.OBSERVE and not run.request.is_forced
    if verdict is Reason.OPEN or nothing_to_move or only_looked:
        return RunAnswer(text=said.sentence)
    return RunAnswer(state="refused", text=f"at the gate ({verdict}): {said.sentence}")


def _approval_answer(session: Session, dag_id: str, run: Run) -> RunAnswer:
    cluster = dag_id.removeprefix(REBALANCE_DAG)
    facts = facts_of_dag(session, storage_of(cluster), dag_id)
    answer = facts.answer_about(run)
    if answer is not None and answer.carried_out_by:
        approved = make_run_answer(session, f"{APPLY_DAG}{cluster}", answer.question.run_id)
        return approved or RunAnswer(text=f"The plan was approved {answer.by_text}.")
    entry = entries_by_dag_id(load_clusters(clusters_file())).get(dag_id)
    waits = entry is not None and facts.answer_deadline(entry.settings, datetime.now(UTC)) is not None
    said = headline_after_answer(run, facts, is_pending=waits)
    return RunAnswer(state="refused", text=said.sentence) if said else RunAnswer(state="awaiting approval", text="")


LOG_READERS_ONLY = [Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))]
"""Dependencies of a route that is open only to users who may read the task logs of the DAG `dag_id`."""

_HEADERS = {"Content-Security-Policy": f"{SECURITY_POLICY}; frame-ancestors 'self'; sandbox"}


def cluster_of(dag_id: str, *prefixes: str) -> str | None:
    """Return a DAG's cluster; None if its id is not a known prefix followed by a valid cluster name."""
    cluster = next((dag_id.removeprefix(prefix) for prefix in prefixes if dag_id.startswith(prefix)), "")
    return cluster if CLUSTER_NAME.fullmatch(cluster) else None


def page_response(page: bytes | None, text_if_missing: str) -> HTMLResponse:
    """Return a page with headers that forbid scripts and external resources; 404 if there is no page."""
    if page is None:
        raise HTTPException(404, text_if_missing)
    return HTMLResponse(page, headers=_HEADERS)


router = APIRouter()


@router.get(
    "/dags/{dag_id}/runs/{run_id}/validation/{folder}", response_class=HTMLResponse, dependencies=LOG_READERS_ONLY
)
def validation_result(dag_id: str, run_id: str, folder: str) -> HTMLResponse:
    page = stored_validation_page(storage_root(), dag_id, run_id, folder)
    return page_response(page, "This DAG run has no such validation result; results are kept for history_days.")


@router.get("/dags/{dag_id}/runs/{run_id}/validation", response_class=HTMLResponse, dependencies=LOG_READERS_ONLY)
def validation_tab(dag_id: str, run_id: str, session: SessionDep) -> HTMLResponse:
    """Return the validation result for the run's tab, from the run's folder or the history."""
    left = None
    if cluster_of(dag_id, REBALANCE_DAG, BY_HAND_DAG) is not None:
        left = read_xcom(session, dag_id, run_id, key="return_value", task="collect")
    page = stored_validation_page(storage_root(), dag_id, run_id, StoragePath(str(left)).name)
    return page_response(page or b"<p>This DAG run has no validation result of a Pulsar cluster.", "")


def stored_validation_page(root: str, dag_id: str, run_id: str, name: str) -> bytes | None:
    """Return a DAG run's page; None if the folder with this name does not belong to the run.

    The user may read the DAG; `name` comes from an HTTP request and is not trusted.
    """
    # Users who may read one of a cluster's two DAGs may read the validation results of both.
    cluster = cluster_of(dag_id, REBALANCE_DAG, BY_HAND_DAG)
    if cluster is None:
        return None
    storage = ClusterStorage(root, cluster)
    run = storage.run_folder(name)
    if run is None:
        return None
    try:
        asked, page = _page_in_folder(root, run) or _page_in_history(root, storage, name) or (None, None)
    except SnapshotError:
        return None
    return page if belongs_to_run(asked, cluster, run_id) else None


def _page_in_folder(root: str, run: StoragePath) -> tuple[Any, bytes] | None:
    page = validation_page(run)
    if not page.exists() or not lies_below(root, page):
        return None
    return (run / "input" / "settings.json").read_json(), page.read_bytes()


def _page_in_history(root: str, storage: ClusterStorage, name: str) -> tuple[Any, bytes] | None:
    """Return the request and page of a run whose folder was deleted, from daily upkeep's history."""
    at = time_of(name)
    listed = table_file(storage, RUNS, at.date()) if at else None
    if listed is None or not listed.exists() or not lies_below(root, listed):
        return None
    documents = compacted_documents(listed, name, ["settings", "page"])
    settings, page = documents.get("settings"), documents.get("page")
    return (json_document(settings, listed.uri), page.encode()) if settings and page else None


@router.get("/dags/{dag_id}/runs/{run_id}/replay/{folder}", response_class=HTMLResponse, dependencies=LOG_READERS_ONLY)
def replay_report(dag_id: str, run_id: str, folder: str) -> HTMLResponse:
    page = stored_report(storage_root(), dag_id, run_id, folder)
    return page_response(page, "This DAG run has no such report; reports are kept for retention_days.")


def stored_report(root: str, dag_id: str, run_id: str, name: str) -> bytes | None:
    """Return a DAG run's report; None if the folder with this untrusted name does not belong to the run."""
    cluster = cluster_of(dag_id, REPLAY_DAG)
    folder = ClusterStorage(root, cluster).replay_folder(name) if cluster else None
    if cluster is None or folder is None or not lies_below(root, folder / REPORT):
        return None
    try:
        if not belongs_to_run((folder / REQUEST).read_json(), cluster, run_id):
            return None
        return (folder / REPORT).read_bytes()
    except SnapshotError:
        return None


def report_folder_name(root: str, dag_id: str, run_id: str) -> str | None:
    """Return the name of the folder with a DAG run's latest report; None if there is none."""
    cluster = cluster_of(dag_id, REPLAY_DAG)
    names = ClusterStorage(root, cluster).replays.entry_names() if cluster else []
    return next((name for name in reversed(names) if stored_report(root, dag_id, run_id, name) is not None), None)
