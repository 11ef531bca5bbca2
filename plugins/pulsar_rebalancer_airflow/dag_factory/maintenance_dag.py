"""The daily DAG that compacts and deletes a cluster's old files."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from zlib import crc32

from airflow.sdk import CronTriggerTimetable

from pulsar_rebalancer_airflow.dag_factory.defaults import cluster_dag
from pulsar_rebalancer_airflow.dag_factory.params import maintenance_params
from pulsar_rebalancer_airflow.operators import MaintainOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry

_LONGEST = timedelta(hours=6)

_FIRST_MINUTE, _MINUTES = 60, 240
"""Upkeep begins between 01:00 and 05:00 UTC, when the last runs of the previous day have ended."""


def daily_schedule(cluster: str) -> str:
    """Return the cron expression (UTC) for a cluster's upkeep.

    The time is derived from a hash of the cluster's name, which spreads out the clusters' start times.
    """
    hour, minute = divmod(_FIRST_MINUTE + crc32(cluster.encode()) % _MINUTES, 60)
    return f"{minute} {hour} * * *"


def maintenance_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_maintenance__<cluster>`."""
    with cluster_dag(
        "maintenance",
        entry,
        description=f"Compacts and deletes old files of cluster {entry.name}",
        schedule=CronTriggerTimetable(daily_schedule(entry.name), timezone="UTC"),
        dagrun_timeout=_LONGEST,
        params=maintenance_params(),
        default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    ) as dag:
        MaintainOperator(task_id="maintain", entry=entry, root=root)
    return dag
