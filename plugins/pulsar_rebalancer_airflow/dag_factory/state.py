"""The DAG that looks after what is kept between the runs of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import DAG

from pulsar_rebalancer_airflow.dag_factory.defaults import COMMON
from pulsar_rebalancer_airflow.dag_factory.docs import state_page
from pulsar_rebalancer_airflow.dag_factory.params import state_params
from pulsar_rebalancer_airflow.operators import StateOperator

if TYPE_CHECKING:
    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def state_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_state__<cluster>`."""
    with DAG(
        f"pulsar_state__{entry.name}",
        description=f"Shows, exports, resets or restores what is kept between the runs of cluster {entry.name}",
        doc_md=state_page(entry, root),
        schedule=None,
        **COMMON,
        # It never runs by itself, and has to be there when it is needed.
        is_paused_upon_creation=False,
        params=state_params(),
        tags={"pulsar", "state", entry.name},
    ) as dag:
        StateOperator(task_id="state", cluster=entry.name, root=root)
    return dag
