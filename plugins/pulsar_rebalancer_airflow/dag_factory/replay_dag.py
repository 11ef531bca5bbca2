"""The DAG that reports what other settings would have done with recorded load."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer_airflow.dag_factory.defaults import cluster_dag
from pulsar_rebalancer_airflow.dag_factory.params import replay_params
from pulsar_rebalancer_airflow.operators import ReplayOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def replay_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_replay__<cluster>`."""
    with cluster_dag(
        "replay",
        entry,
        description=f"Replays recorded load of cluster {entry.name} with other strategies and settings",
        params=replay_params(),
    ) as dag:
        ReplayOperator(task_id="replay", entry=entry, root=root, execution_timeout=timedelta(hours=6))
    return dag
