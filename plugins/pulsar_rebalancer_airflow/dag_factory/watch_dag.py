"""The DAG that alerts people if a cluster goes too long without a finished run. It exists only if alerts are enabled.

Airflow's DeadlineAlert is not enough. A deadline exists only for a run, so a paused DAG has none. The deadline's
callback has no access to the state store, so it could neither avoid repeated alerts nor report that a condition has
cleared. The callback also needs an executor or triggerer that runs callbacks; a task needs only the scheduler and a
free slot.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import DeltaTriggerTimetable

from pulsar_rebalancer_airflow.dag_factory.defaults import cluster_dag
from pulsar_rebalancer_airflow.operators import WatchOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry

_SHORTEST = timedelta(minutes=1)


def watch_dags(entry: ClusterEntry) -> list[DAG]:
    """Return the DAG `pulsar_watch__<cluster>`; empty if the cluster has no connection for alerts."""
    settings = entry.settings
    if not settings.alert_connection:
        return []
    step = timedelta(seconds=settings.interval_seconds * settings.alert_after_intervals)
    with cluster_dag(
        "watch",
        entry,
        "alerts",
        description=f"Sends an alert when no run of cluster {entry.name} has ended for several intervals",
        schedule=DeltaTriggerTimetable(max(step, _SHORTEST)),
        dagrun_timeout=timedelta(minutes=5),
    ) as dag:
        WatchOperator(
            task_id="watch",
            cluster=entry.name,
            settings=settings,
            execution_timeout=timedelta(minutes=1),
            retries=1,
            retry_delay=timedelta(seconds=5),
        )
    return [dag]
