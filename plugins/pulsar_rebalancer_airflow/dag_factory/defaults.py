"""Defaults of all DAGs in this package."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

if TYPE_CHECKING:
    from pulsar_rebalancer.config.clusters_file import ClusterEntry

COMMON: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "max_active_runs": 1,
    # No backfill: only the present load of a live cluster can be balanced.
    "allowed_run_types": ("scheduled", "manual"),
}


def begun_by_hand(prefix: str, entry: ClusterEntry, tag: str, **own: Any) -> DAG:
    """Return a DAG without a schedule, not paused at creation so that it is ready when needed.

    Args:
        prefix: prefix of its id (`locations.py`); the cluster's name follows.
        entry: the cluster's entry in the clusters file.
        tag: its own tag, in addition to `pulsar` and the cluster's name.
        own: arguments of the DAG, which override the common ones.
    """
    tags = {"pulsar", tag, entry.name}
    return DAG(f"{prefix}{entry.name}", schedule=None, is_paused_upon_creation=False, tags=tags, **COMMON | own)
