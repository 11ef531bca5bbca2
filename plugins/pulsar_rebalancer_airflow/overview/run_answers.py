"""A sentence about the outcome of a run that the page started."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.models.dagrun import DagRun
from airflow.utils.state import DagRunState
from sqlalchemy import select

from pulsar_rebalancer.config.field_types import Action
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show import words
from pulsar_rebalancer.show.page.page_model import RunAnswer, State
from pulsar_rebalancer.show.page.recent_runs import Run, read_run
from pulsar_rebalancer.show.page.status import answered, of_run
from pulsar_rebalancer.strategies.shedders.registry import load_clusters
from pulsar_rebalancer_airflow.options import (
    APPLY_DAG,
    BY_HAND_DAG,
    CONTROL_DAG,
    MESSAGE,
    REBALANCE_DAG,
    clusters_file,
    rebalance_dags,
    storage_of,
)
from pulsar_rebalancer_airflow.overview.airflow_facts import CANCELLED, failure_of, of_dag, read_xcom, run_folder

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_OF_PEOPLE = (CONTROL_DAG, APPLY_DAG, BY_HAND_DAG, REBALANCE_DAG)

_IN_PROGRESS = {
    DagRunState.QUEUED: RunAnswer(state="waiting", text="for its turn"),
    DagRunState.RUNNING: RunAnswer(state="running", text=""),
}


def answer_of(session: Session, dag_id: str, run_id: str) -> RunAnswer | None:
    """Return a run's outcome; None if the run does not exist, or the page does not start its DAG.

    The outcome of a run that has started another to carry out a plan is that run's.
    """
    prefix = next((dag for dag in _OF_PEOPLE if dag_id.startswith(dag)), "")
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    if not prefix or run is None:
        return None
    state = DagRunState(run.state)
    if _was_cancelled(session, run):
        return RunAnswer(state="cancelled", text=words.NOT_BEGUN)
    if state in _IN_PROGRESS:
        return _IN_PROGRESS[state]
    files = _files(session, dag_id, run_id) if prefix == REBALANCE_DAG else None
    if state is DagRunState.FAILED:
        return _refused(session, dag_id, run_id, of_run(files, "", 0).sentence if files else "")
    if prefix == CONTROL_DAG:
        result = read_xcom(session, dag_id, run_id, key="return_value", task="control")
        return RunAnswer(text=words.ordered(result if isinstance(result, dict) else {}))
    if prefix == REBALANCE_DAG:
        return _came_to(session, dag_id, files) if files else RunAnswer(text=words.NO_FILES)
    started = read_xcom(session, dag_id, run_id, key="trigger_run_id", task="carry_out")
    if started is not None:
        carries_out = answer_of(session, f"{REBALANCE_DAG}{dag_id.removeprefix(prefix)}", str(started))
        return carries_out or RunAnswer(text=f"Run {started} carries the plan out.")
    rejected = RunAnswer(text=words.REJECTED)
    return rejected if prefix == APPLY_DAG else _by_hand(session, run)


def _was_cancelled(session: Session, run: DagRun) -> bool:
    if run.start_date is None and run.end_date is not None:
        return True
    found = select(DagRun.id).where(DagRun.id == run.id, CANCELLED)
    return run.dag_id.startswith(REBALANCE_DAG) and session.scalar(found) is not None


def _by_hand(session: Session, run: DagRun) -> RunAnswer:
    shown = read_xcom(session, run.dag_id, run.run_id, key="return_value", task="plan")
    if isinstance(shown, dict):
        identity = str(shown.get("plan") or "")
        text = words.PLAN_READY if identity else words.no_effect(str(shown.get("no_effect") or ""))
        return RunAnswer(text=text, plan=identity)
    released = (run.conf or {}).get("action") == Action.RELEASE
    return RunAnswer(text=words.RELEASED if released else words.DRAINED)


def _refused(session: Session, dag_id: str, run_id: str, came_to: str) -> RunAnswer:
    task, code = failure_of(session, dag_id, run_id)
    reason = Reason.get(code)
    if reason is not None:
        message = str(read_xcom(session, dag_id, run_id, key=MESSAGE, task=task) or "")
        return RunAnswer(state="refused", text=words.refused(f"in {task}", reason, message))
    text = f"in {task}: {came_to or 'its log says why.'}" if task else words.TIMED_OUT
    return RunAnswer(state="failed", text=text)


def _files(session: Session, dag_id: str, run_id: str) -> Run | None:
    folder = run_folder(session, storage_of(dag_id.removeprefix(REBALANCE_DAG)), dag_id, run_id)
    run = read_run(folder) if folder is not None else None
    return run if run is not None and run.outcome is not None else None


def _came_to(session: Session, dag_id: str, run: Run) -> RunAnswer:
    verdict, said = run.outcome.verdict if run.outcome else Reason.UNFINISHED, of_run(run, "", 0)
    if verdict is Reason.AWAITING_APPROVAL:
        return _asked(session, dag_id, run)
    nothing_to_move = verdict is Reason.NOTHING_TO_DO and said.state is not State.CLOSED
    only_looked = verdict is Reason.OBSERVE and not run.request.forced
    if verdict is Reason.OPEN or nothing_to_move or only_looked:
        return RunAnswer(text=said.sentence)
    return RunAnswer(state="refused", text=f"at the gate ({verdict}): {said.sentence}")


def _asked(session: Session, dag_id: str, run: Run) -> RunAnswer:
    cluster = dag_id.removeprefix(REBALANCE_DAG)
    facts = of_dag(session, storage_of(cluster), dag_id)
    answer = facts.answer_about(run)
    if answer is not None and answer.carried_out_by:
        approved = answer_of(session, f"{APPLY_DAG}{cluster}", answer.question.run_id)
        return approved or RunAnswer(text=f"The plan was approved {answer.because}.")
    entry = rebalance_dags(load_clusters(clusters_file())).get(dag_id)
    waits = entry is not None and facts.waits_until(entry.settings, datetime.now(UTC)) is not None
    said = answered(run, facts, waits=waits)
    return RunAnswer(state="refused", text=said.sentence) if said else RunAnswer(state="awaiting approval", text="")
