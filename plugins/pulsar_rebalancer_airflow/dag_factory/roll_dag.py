"""The DAG with which people restart brokers one after another. One run shows the plan; a second run carries it out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer_airflow.dag_factory.defaults import cluster_dag
from pulsar_rebalancer_airflow.dag_factory.params import roll_params
from pulsar_rebalancer_airflow.operators import RollOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry

_LONGEST_STEP = 30.0
"""Maximum time between two steps, in seconds."""


def roll_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_roll__<cluster>`."""
    step = min(entry.settings.interval_seconds / 4, _LONGEST_STEP)
    with cluster_dag(
        "roll",
        entry,
        "rolling restart",
        description=f"Restarts brokers of cluster {entry.name} one after the other, after showing what will happen",
        # A second roll is refused; it must not wait in the queue and begin at some later time.
        max_active_runs=16,
        params=roll_params(),
    ) as dag:
        RollOperator(
            task_id="roll",
            entry=entry,
            root=root,
            poke_interval=step,
            timeout=timedelta(days=366),
            execution_timeout=timedelta(minutes=5),
            # Only this task writes its document in the state store, so one instance runs at a time.
            max_active_tis_per_dag=1,
            # The roll must continue however an attempt ends, because a broker may be down.
            retries=1000,
            retry_delay=timedelta(seconds=step),
        )
    return dag
