"""A sentence about the outcome of a run that was started with a button on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.models.dagrun import DagRun
from airflow.utils.state import DagRunState
from sqlalchemy import select

from pulsar_rebalancer.config.enums import Action
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.page.page_model import RunAnswer
from pulsar_rebalancer.show.page.recent_runs import read_run
from pulsar_rebalancer.show.page.status import of_run
from pulsar_rebalancer.texts import number_of, one_line
from pulsar_rebalancer_airflow.failures import MESSAGE
from pulsar_rebalancer_airflow.locations import APPLY_DAG, BY_HAND_DAG, CONTROL_DAG, REBALANCE_DAG, storage_of
from pulsar_rebalancer_airflow.overview.airflow_facts import CANCELLED, failure_of, run_folder
from pulsar_rebalancer_airflow.xcoms import left_by

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_WITH_BUTTONS = (CONTROL_DAG, APPLY_DAG, BY_HAND_DAG, REBALANCE_DAG)
_IN_PROGRESS = {
    DagRunState.QUEUED: RunAnswer(state="waiting", text="for its turn"),
    DagRunState.RUNNING: RunAnswer(state="running", text=""),
}


def answer_of(session: Session, dag_id: str, run_id: str) -> RunAnswer | None:
    """Return the outcome of a run; None if the run does not exist, or its DAG has no buttons."""
    prefix = next((dag for dag in _WITH_BUTTONS if dag_id.startswith(dag)), "")
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    if not prefix or run is None:
        return None
    state = DagRunState(run.state)
    if _was_cancelled(session, run):
        return RunAnswer(state="cancelled", text=_before_it_began(run))
    if state in _IN_PROGRESS:
        return _IN_PROGRESS[state]
    cluster = dag_id.removeprefix(prefix)
    came_to = _came_to(session, cluster, dag_id, run_id) if prefix == REBALANCE_DAG else ""
    if state is DagRunState.FAILED:
        return _refused(session, dag_id, run_id, came_to)
    if prefix == CONTROL_DAG:
        result = left_by(session, dag_id, run_id, key="return_value", task="control")
        return RunAnswer(text=_ordered(result if isinstance(result, dict) else {}))
    if prefix in (APPLY_DAG, BY_HAND_DAG):
        started = left_by(session, dag_id, run_id, key="trigger_run_id", task="carry_out")
        if started is None and prefix == APPLY_DAG:
            return RunAnswer(text="Nothing is carried out: the plan was rejected.")
        if started is None:
            return _by_hand(session, run)
        text = f"The plan was {'approved' if prefix == APPLY_DAG else 'accepted'}; run {started} carries it out."
        return RunAnswer(text=text, next_run=str(started))
    return RunAnswer(text=came_to or "It left no files.")


def _was_cancelled(session: Session, run: DagRun) -> bool:
    if run.start_date is None and run.end_date is not None:
        return True
    found = select(DagRun.id).where(DagRun.id == run.id, CANCELLED)
    return run.dag_id.startswith(REBALANCE_DAG) and session.scalar(found) is not None


def _before_it_began(run: DagRun) -> str:
    note = run.dag_run_note  # of the person who cancelled it
    return one_line(f"before it began, by {note.user_id}: {note.content}" if note else "before it began.", 600)


def _by_hand(session: Session, run: DagRun) -> RunAnswer:
    shown = left_by(session, run.dag_id, run.run_id, key="return_value", task="plan")
    if isinstance(shown, dict):
        identity = str(shown.get("plan") or "")
        text = "The plan is shown; nothing is carried out yet." if identity else "The plan would have no effect."
        return RunAnswer(text=text, plan=identity)
    released = (run.conf or {}).get("action") == Action.RELEASE
    text = "Released." if released else "Drained; the next runs move the bundles."
    return RunAnswer(text=text)


def _refused(session: Session, dag_id: str, run_id: str, came_to: str) -> RunAnswer:
    task, code = failure_of(session, dag_id, run_id)
    reason = Reason.get(code)
    if reason is not None:
        message = str(left_by(session, dag_id, run_id, key=MESSAGE, task=task) or "")
        detail = f"{message.removesuffix('.')}." if message else ""
        to_do = reason.action if reason.action not in message else ""  # requests to brokers say it themselves
        text = " ".join(filter(None, [f"in {task} ({reason}): {reason.meaning}", detail, to_do]))
        return RunAnswer(state="refused", text=text)
    text = f"in {task}: {came_to or 'its log says why.'}" if task else "because it took too long."
    return RunAnswer(state="failed", text=text)


def _ordered(result: dict[str, object]) -> str:
    in_force, stopped = str(result.get("in_force") or ""), result.get("stopped")
    words = [f"{in_force.removesuffix('.')}."] if in_force else []
    if isinstance(stopped, dict):
        finished = [f"{bundle} {reason}" for bundle, reason in dict(stopped.get("finished") or {}).items()]
        words.append(f"Finished: {', '.join(finished) or 'none'}.")
        unfinished = [str(bundle) for bundle in stopped.get("unfinished") or ()]
        words += [f"Still under way: {', '.join(unfinished)}."] if unfinished else []
        words.append(f"Not begun: {number_of(int(stopped.get('not_begun') or 0), 'bundle')}.")
    elif stopped:
        words.append(f"What was under way cannot be read: {stopped}.")
    if result.get("undecided"):
        words.append(f"Also, {result['undecided']}.")
    return " ".join(words)


def _came_to(session: Session, cluster: str, dag_id: str, run_id: str) -> str:
    folder = run_folder(session, storage_of(cluster), dag_id, run_id)
    run = read_run(folder) if folder is not None else None
    if run is None or run.outcome is None:
        return ""
    return of_run(run, "", 0).sentence
