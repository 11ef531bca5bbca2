"""After a run that a task started, Airflow's flag that keeps the next scheduled run from starting is right again."""

from collections.abc import Iterator

import pytest
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from sqlalchemy.orm import Session


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
