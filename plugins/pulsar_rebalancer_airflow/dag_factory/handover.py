"""The DAG that takes the balancing of a cluster over from Pulsar, and hands it back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import DAG

from pulsar_rebalancer_airflow.dag_factory.defaults import COMMON
from pulsar_rebalancer_airflow.dag_factory.docs import handover_page
from pulsar_rebalancer_airflow.dag_factory.params import handover_params
from pulsar_rebalancer_airflow.operators import HandoverOperator

if TYPE_CHECKING:
    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def handover_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_handover__<cluster>`."""
    with DAG(
        f"pulsar_handover__{entry.name}",
        description=f"Takes the balancing of cluster {entry.name} over from Pulsar, or hands it back",
        doc_md=handover_page(entry, root),
        schedule=None,
        **COMMON,
        # It never runs by itself, and has to be there when it is needed.
        is_paused_upon_creation=False,
        params=handover_params(),
        tags={"pulsar", "handover", entry.name},
    ) as dag:
        HandoverOperator(task_id="handover", entry=entry, root=root, execution_timeout=timedelta(minutes=10))
    return dag
