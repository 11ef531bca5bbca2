"""The state outlives its DAG file: Airflow's own cleaning, as it follows when a file is gone."""

from typing import Any

import pytest
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.asset import AssetModel, remove_references_to_deleted_dags
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select
from tests.airflow_home import HOME
from tests.integration.airflow_world import world

pytestmark = pytest.mark.integration

OUTLET_ALONE = """
from airflow.sdk import DAG, Asset, task
from pulsar_rebalancer.state import DecisionState, HitCount
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset
with DAG("outlet_alone") as dag:
    @task(outlets=[Asset("outlet_alone")])
    def write(asset_state_store=None):
        asset_state_store.set("decision", {})
    write()

with DAG("many_counters") as many:
    @task(inlets=[state_asset("west")])
    def write_and_read(**context):
        store = StateStore.from_context(context, "west")
        before = store.get(DecisionState)
        hits = {f"broker-{n:05}.pulsar-broker.pulsar.svc.cluster.local:8080": HitCount(7, 1) for n in range(10_000)}
        counted = before.model_copy(update={"hits": hits})
        store.put(counted)
        assert store.get(DecisionState) == counted
        store.put(before)
    write_and_read()
"""


def stored() -> set[str]:
    query = select(AssetModel.name).join(AssetStateStoreModel, AssetStateStoreModel.asset_id == AssetModel.id)
    with create_session() as session:
        return set(session.scalars(query))


def forget_files() -> None:
    """One round of the DAG processor over an empty folder, and of the scheduler's cleaning."""
    with create_session() as session:
        DagModel.deactivate_deleted_dags("dags-folder", rel_filelocs=[], session=session)
    with create_session() as session:
        remove_references_to_deleted_dags(session=session)
    runner: Any = SchedulerJobRunner(Job())
    runner._update_asset_orphanage()


def test_state_survives_the_removal_of_the_dag_file(tmp_path):
    control = HOME / "dags" / "outlet_alone.py"
    control.write_text(OUTLET_ALONE)
    try:
        with world("west", tmp_path) as west:
            assert west.run("control", action="reset", reason="a first state").state == "success"
            assert west.dag("outlet_alone").test().state == "success"
            assert stored() >= {"pulsar_rebalancer/west/state", "outlet_alone"}
            before = west.decision()
            # The counters of ten thousand brokers, long names and all, fit.
            assert west.dag("many_counters").test().state == "success"
            assert west.decision() == before

            forget_files()

            # An asset that was an outlet alone shows that the cleaning did take place.
            assert "outlet_alone" not in stored()
            assert west.decision() == before
            assert before.seq == 1
    finally:
        control.unlink()
