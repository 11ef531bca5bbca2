"""The DAG that reports what other settings would have done with recorded load."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer_airflow.dag_factory.defaults import begun_by_hand
from pulsar_rebalancer_airflow.dag_factory.docs import page
from pulsar_rebalancer_airflow.dag_factory.params import replay_params
from pulsar_rebalancer_airflow.locations import REPLAY_DAG
from pulsar_rebalancer_airflow.operators import ReplayOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def replay_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_replay__<cluster>`."""
    with begun_by_hand(
        REPLAY_DAG,
        entry,
        "replay",
        description=f"Replays recorded load of cluster {entry.name} with other strategies and settings",
        doc_md=page("replay", entry),
        params=replay_params(),
    ) as dag:
        ReplayOperator(task_id="replay", entry=entry, root=root, execution_timeout=timedelta(hours=6))
    return dag
