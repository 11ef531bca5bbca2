"""The DAG in which a person approves or rejects a plan. It asks a question only in mode `approve`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.providers.standard.operators.empty import EmptyOperator

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer_airflow.dag_factory.defaults import cluster_dag
from pulsar_rebalancer_airflow.operators import ApproveOperator, CarryOutApprovedOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def apply_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_apply__<cluster>`."""
    with cluster_dag(
        "apply",
        entry,
        "approval",
        description=f"Asks a person to approve a plan of cluster {entry.name}, and starts the approved plan",
        # Each run asks about one plan. Airflow requires that people can start runs as well; such runs ask
        # nothing. No question waits behind another, because a newer question ends the older one.
        allowed_run_types=("manual", "operator_triggered"),
        max_active_runs=8,
        # A run that is pinned to the version of its DAG bundle would keep its question when the mode changes.
        disable_bundle_versioning=True,
    ) as dag:
        if entry.settings.mode is Mode.APPROVE:
            approve = ApproveOperator(
                task_id="approve",
                entry=entry,
                root=root,
                # Only this task writes its document in the state store, so one instance runs at a time.
                max_active_tis_per_dag=1,
                # In Airflow 3.3 the task fails if the answer arrives within a second of the question, or of an attempt
                # that continues with it: on a busy machine, several times in a row.
                retries=5,
                retry_delay=timedelta(seconds=1),
            )
            approve >> CarryOutApprovedOperator(task_id="carry_out", entry=entry, root=root)
        else:
            # A mode change ends an open question: Airflow removes tasks that the newest version of a DAG lacks.
            EmptyOperator(task_id="nobody_is_asked")
    return dag
