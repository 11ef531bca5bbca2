"""What all DAGs of this package have in common."""

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
    # No backfill: a live cluster has no past that could be balanced.
    "allowed_run_types": ("scheduled", "manual"),
}


def begun_by_hand(prefix: str, entry: ClusterEntry, tag: str, **own: Any) -> DAG:
    """Return a DAG of a cluster that never runs by itself, and is not paused: it has to be there when it is needed.

    Args:
        prefix: what its id begins with (`locations.py`).
        entry: the cluster's entry in the clusters file.
        tag: what it is for.
        own: arguments of the DAG, which go before what all have in common.
    """
    tags = {"pulsar", tag, entry.name}
    return DAG(f"{prefix}{entry.name}", schedule=None, is_paused_upon_creation=False, tags=tags, **COMMON | own)
