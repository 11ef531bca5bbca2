"""The DAG with which people pause or stop rebalancing, and manage a cluster's state."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer_airflow.dag_factory.defaults import cluster_dag
from pulsar_rebalancer_airflow.dag_factory.params import control_params
from pulsar_rebalancer_airflow.operators import ControlOperator, OrderOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def control_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_control__<cluster>`."""
    with cluster_dag(
        "control",
        entry,
        description=f"Pauses and stops runs of cluster {entry.name}, and manages its state",
        # A stop must not wait for another run, which may wait for bundles in progress.
        max_active_runs=16,
        # Each of the two tasks is the only writer of its documents, so one instance runs at a time.
        default_args={"max_active_tis_per_dag": 1},
        params=control_params(),
    ) as dag:
        # No retry: a late order would overrule a newer one.
        order = OrderOperator(task_id="order", entry=entry, root=root, execution_timeout=timedelta(minutes=1))
        ordered: Any = order.output
        ControlOperator(
            task_id="control", entry=entry, root=root, ordered=ordered, execution_timeout=timedelta(minutes=10)
        )
    return dag
