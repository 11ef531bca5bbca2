"""The DAG that compacts and deletes a cluster's old files, daily."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from zlib import crc32

from airflow.sdk import DAG, CronTriggerTimetable

from pulsar_rebalancer_airflow.dag_factory.defaults import COMMON
from pulsar_rebalancer_airflow.dag_factory.docs import page
from pulsar_rebalancer_airflow.dag_factory.params import maintenance_params
from pulsar_rebalancer_airflow.operators import MaintainOperator

if TYPE_CHECKING:
    from pulsar_rebalancer.config.clusters_file import ClusterEntry

_LONGEST = timedelta(hours=6)

_FIRST_MINUTE, _MINUTES = 60, 240
"""Upkeep begins between 01:00 and 05:00 UTC, when the last runs of the day before have ended."""


def daily_schedule(cluster: str) -> str:
    """Return the cron expression (UTC) of a cluster's upkeep; a hash of the name spreads the clusters over time."""
    hour, minute = divmod(_FIRST_MINUTE + crc32(cluster.encode()) % _MINUTES, 60)
    return f"{minute} {hour} * * *"


def maintenance_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_maintenance__<cluster>`."""
    with DAG(
        f"pulsar_maintenance__{entry.name}",
        description=f"Compacts and deletes old files of cluster {entry.name}",
        doc_md=page("maintenance", entry),
        schedule=CronTriggerTimetable(daily_schedule(entry.name), timezone="UTC"),
        **COMMON,
        dagrun_timeout=_LONGEST,
        params=maintenance_params(),
        tags={"pulsar", "maintenance", entry.name},
        default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
        # A deployment that pauses new DAGs would fill its disk.
        is_paused_upon_creation=False,
    ) as dag:
        MaintainOperator(task_id="maintain", entry=entry, root=root)
    return dag
