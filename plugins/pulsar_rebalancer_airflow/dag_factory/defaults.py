"""Defaults for all DAGs in this package."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from pulsar_rebalancer_airflow.dag_factory.docs import page

if TYPE_CHECKING:
    from pulsar_rebalancer.config.clusters_file import ClusterEntry

COMMON: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "max_active_runs": 1,
    # No backfill: only the current load of a live cluster can be balanced.
    "allowed_run_types": ("scheduled", "manual"),
}


def cluster_dag(kind: str, entry: ClusterEntry, tag: str = "", schedule: Any = None, **own: Any) -> DAG:
    """Return a DAG for a cluster. It is not paused upon creation.

    Args:
        kind: kind of DAG, as in the prefix of the DAG's id.
        entry: the cluster's entry in the clusters file.
        tag: the DAG's own tag, in addition to `pulsar` and the cluster's name; if empty, the kind is used.
        own: arguments for this DAG, which override the common arguments.
    """
    # Paused DAGs would send no alerts and delete no files, so new DAGs start unpaused whatever Airflow's setting is.
    given = {"is_paused_upon_creation": False, "tags": {"pulsar", tag or kind, entry.name}, **COMMON, **own}
    return DAG(f"pulsar_{kind}__{entry.name}", doc_md=page(kind, entry), schedule=schedule, **given)
