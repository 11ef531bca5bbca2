"""The DAG with which people pause or stop a cluster, and manage its state and Pulsar's own shedding."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer_airflow.dag_factory.defaults import begun_by_hand
from pulsar_rebalancer_airflow.dag_factory.docs import page
from pulsar_rebalancer_airflow.dag_factory.params import control_params
from pulsar_rebalancer_airflow.locations import CONTROL_DAG
from pulsar_rebalancer_airflow.operators import ControlOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def control_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_control__<cluster>`."""
    with begun_by_hand(
        CONTROL_DAG,
        entry,
        "control",
        description=f"Pauses, skips and stops runs of cluster {entry.name}, manages its state, hands it over",
        doc_md=page("control", entry),
        params=control_params(),
    ) as dag:
        ControlOperator(task_id="control", entry=entry, root=root, execution_timeout=timedelta(minutes=10))
    return dag
