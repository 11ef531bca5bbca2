"""After a run that a task started, Airflow's flag that keeps the next scheduled run from starting is right again."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from sqlalchemy import insert
from sqlalchemy.orm import Session

from pulsar_rebalancer_airflow.options import NOTE


@pytest.fixture
def session() -> Iterator[Session]:
    with create_session() as opened:
        yield opened
        opened.rollback()


@pytest.mark.parametrize(
    ("dag_id", "ending", "other", "exceeds"),
    [
        ("pulsar_rebalance__listened", DagRunState.SUCCESS, DagRunState.SUCCESS, False),
        ("pulsar_rebalance__listened", DagRunState.FAILED, DagRunState.SUCCESS, False),
        ("pulsar_rebalance__listened", DagRunState.SUCCESS, DagRunState.QUEUED, True),
        ("pulsar_rebalance__listened", DagRunState.SUCCESS, DagRunState.RUNNING, True),
        ("somebody_elses", DagRunState.SUCCESS, DagRunState.SUCCESS, True),
    ],
)
def test_another_run_that_is_active_is_waited_for(session, dag_id, ending, other, exceeds):
    session.add(DagBundleModel(name="listened"))
    session.flush()
    dag = DagModel(dag_id=dag_id, bundle_name="listened", max_active_runs=1, exceeds_max_non_backfill=True)
    ours, theirs = (
        DagRun(dag_id=dag_id, run_id=run_id, run_type=DagRunType.OPERATOR_TRIGGERED, state=state)
        for run_id, state in (("ours", DagRunState.RUNNING), ("theirs", other))
    )
    session.add_all([dag, ours, theirs])
    session.flush()

    ours.set_state(ending)
    ours.notify_dagrun_state_changed(msg="")

    assert dag.exceeds_max_non_backfill is exceeds


def test_a_run_that_moved_bundles_has_that_in_its_note_once(session):
    run = DagRun(
        dag_id="pulsar_rebalance__listened", run_id="ours", run_type=DagRunType.MANUAL, state=DagRunState.RUNNING
    )
    session.add(DagBundleModel(name="noted"))
    session.flush()
    session.add_all([DagModel(dag_id=run.dag_id, bundle_name="noted"), run])
    session.flush()
    of_run = {"dag_id": run.dag_id, "run_id": run.run_id, "dag_run_id": run.id, "task_id": "report", "map_index": -1}
    report = {"id": uuid4(), "dag_id": run.dag_id, "run_id": run.run_id, "task_id": "report", "pool": "default_pool"}
    session.execute(insert(TaskInstance).values(report | {"try_number": 1}))
    session.execute(insert(XComModel).values(of_run | {"key": NOTE, "value": "moved 7, range 87 → 24"}))
    run.note = "Balance now: a party"

    for _ in range(2):
        run.set_state(DagRunState.SUCCESS)
        run.notify_dagrun_state_changed(msg="")

    assert run.note == "Balance now: a party; moved 7, range 87 → 24"
