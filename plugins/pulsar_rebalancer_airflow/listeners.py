"""Let Airflow schedule a cluster's next run even if a task started the last run or a person ended it.

Airflow schedules no run of a DAG while `DagModel.exceeds_max_non_backfill` is set. Its scheduler (3.3.2,
`SchedulerJobRunner._schedule_dag_run`) updates this flag when a scheduled or manual run ends, but not after a
run that a task started or a person ended in the UI; it would remain set until the DAG file is parsed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from pulsar_rebalancer_airflow.options import REBALANCE_DAG

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun


@hookimpl
def on_dag_run_success(dag_run: DagRun) -> None:
    _look_again(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun) -> None:
    _look_again(dag_run)


def _look_again(ended: DagRun) -> None:
    """Set a rebalancing DAG's flag according to its other active runs, in the ended run's database session."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.state import DagRunState
    from sqlalchemy import func, select
    from sqlalchemy.orm import object_session

    session = object_session(ended)
    if session is None or not ended.dag_id.startswith(REBALANCE_DAG):
        return
    active = DagRun.state.in_((DagRunState.QUEUED, DagRunState.RUNNING))
    others = select(func.count()).where(DagRun.dag_id == ended.dag_id, DagRun.id != ended.id, active)
    ended.dag_model.exceeds_max_non_backfill = session.scalar(others) >= ended.dag_model.max_active_runs
