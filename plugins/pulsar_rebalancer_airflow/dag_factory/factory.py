"""Build all DAGs for every cluster in the clusters file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import DAG

from pulsar_rebalancer.strategies.fitting import load_clusters
from pulsar_rebalancer_airflow.dag_factory.apply_dag import apply_dag
from pulsar_rebalancer_airflow.dag_factory.by_hand_dag import by_hand_dag
from pulsar_rebalancer_airflow.dag_factory.control_dag import control_dag
from pulsar_rebalancer_airflow.dag_factory.defaults import COMMON
from pulsar_rebalancer_airflow.dag_factory.docs import broken_page
from pulsar_rebalancer_airflow.dag_factory.maintenance_dag import maintenance_dag
from pulsar_rebalancer_airflow.dag_factory.rebalance_dag import rebalance_dag
from pulsar_rebalancer_airflow.dag_factory.replay_dag import replay_dag
from pulsar_rebalancer_airflow.dag_factory.roll_dag import roll_dag
from pulsar_rebalancer_airflow.dag_factory.watch_dag import watch_dags
from pulsar_rebalancer_airflow.locations import clusters_file, rebalance_dags, storage_root
from pulsar_rebalancer_airflow.operators import RefuseOperator

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.config.clusters_file import ClusterEntry

_DAGS = (rebalance_dag, by_hand_dag, apply_dag, control_dag, maintenance_dag, replay_dag, roll_dag)
"""Factories of the DAGs that every cluster has."""


def build_dags(config_path: Path | None = None) -> dict[str, DAG]:
    """Return all DAGs, keyed by id.

    Args:
        config_path: path of the clusters file; None for the configured path.

    Raises:
        SettingsError: the file as a whole cannot be read. An invalid entry does not raise an error; it yields a single
            DAG that reports the problem.
    """
    root = storage_root()
    dags: dict[str, DAG] = {}
    for dag_id, entry in rebalance_dags(load_clusters(config_path or clusters_file())).items():
        made = (
            [_broken_dag(entry, dag_id)]
            if entry.error
            else [*(make(entry, root) for make in _DAGS), *watch_dags(entry)]
        )
        dags.update({dag.dag_id: dag for dag in made})
    return dags


def _broken_dag(entry: ClusterEntry, dag_id: str) -> DAG:
    with DAG(
        dag_id,
        description="This cluster's entry in the clusters file is broken",
        doc_md=broken_page(entry),
        schedule=None,
        **COMMON,
        tags={"pulsar", "rebalance", "broken"},
    ) as dag:
        RefuseOperator(task_id="refuse", reason=entry.error)
    return dag
