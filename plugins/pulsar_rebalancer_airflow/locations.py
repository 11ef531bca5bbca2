"""Where this Airflow keeps the clusters file and the runs, and what the DAG of a cluster is called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.run.run_folder import find_run
from pulsar_rebalancer.storage.layout import ClusterStorage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import Context

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.storage.path import StoragePath

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason

CLUSTERS_VARIABLE = "PULSAR_REBALANCER_CLUSTERS"
"""Environment variable with the path of the clusters file."""

STORAGE_VARIABLE = "PULSAR_REBALANCER_STORAGE"
"""Environment variable with the storage root, a path or an object-store URI."""

REBALANCE_DAG = "pulsar_rebalance__"
"""Prefix of the id of the DAG that rebalances a cluster; the cluster's name follows."""

BY_HAND_DAG = "pulsar_by_hand__"
"""Likewise of the DAG that makes plans by hand."""

APPLY_DAG = "pulsar_apply__"
"""Likewise of the DAG in which people approve plans."""

REPLAY_DAG = "pulsar_replay__"
"""Likewise of the DAG that replays recorded load."""

CONTROL_DAG = "pulsar_control__"
"""Likewise of the DAG with which people hold it back, and look after its state."""

PAGE_ROUTE = "pulsar-balance"
"""Part of the UI's own address that opens the page of a cluster."""


def clusters_file() -> Path:
    """Return the clusters file: from the environment, else `config/pulsar_clusters.yaml` in AIRFLOW_HOME."""
    return Path(os.environ.get(CLUSTERS_VARIABLE) or _airflow_home() / "config" / "pulsar_clusters.yaml")


def storage_root() -> str:
    """Return the storage root: from the environment, else `pulsar_rebalancer` in AIRFLOW_HOME.

    Raises:
        SettingsError: `wrong_setting`; an object-store URI holds a user, a password or a query. The root is shown on
            pages and in logs, and keys belong to the environment of Airflow and to the Spark connection.
    """
    root = os.environ.get(STORAGE_VARIABLE) or str(_airflow_home() / "pulsar_rebalancer")
    if "://" in root and set("@?#") & set(root):
        raise SettingsError(
            Reason.WRONG_SETTING, f"{STORAGE_VARIABLE}: an address must hold neither user, password nor query"
        )
    return root


def storage_of(cluster: str) -> ClusterStorage:
    """Return the folders of a cluster below the storage root.

    Raises:
        SettingsError: as `storage_root`.
    """
    return ClusterStorage(storage_root(), cluster)


def rebalance_dags(entries: Iterable[ClusterEntry]) -> dict[str, ClusterEntry]:
    """Return the clusters by the id of the DAG that rebalances each.

    A broken entry whose name a sound one has, or one that was made safe, does not take its place.
    """
    found: dict[str, ClusterEntry] = {}
    for entry in sorted(entries, key=lambda entry: bool(entry.error)):
        names = (f"{REBALANCE_DAG}{entry.name}{suffix}" for suffix in ("", *(f"__broken_{n}" for n in range(1, 1000))))
        found[next(name for name in names if name not in found)] = entry
    return found


FOLDER = "folder"
"""XCom key of the run's folder that a task worked on."""


def run_folder(context: Context, cluster: str, address: object) -> StoragePath:
    """Return the folder of the run of a context: an XCom names it, which others than the tasks may write.

    Whatever the task leaves as an XCom is about this folder, and says so (`left_about_run`).

    Raises:
        PlanError: `foreign_run`; it is none of this cluster and DAG run.
        SnapshotError: the run's request cannot be read.
    """
    context["ti"].xcom_push(key=FOLDER, value=str(address))
    return find_run(storage_of(cluster), str(address), context["dag_run"].run_id)


def left_about_run(context: Context, task: str, key: str) -> Any:
    """Return what a task left about the present folder of the run; None when it is about an earlier one.

    A run that is cleared from collect on gets another folder. Tasks that it does not reach keep what they left before.
    """
    ti = context["ti"]
    about, present = ti.xcom_pull(task_ids=task, key=FOLDER), ti.xcom_pull(task_ids="collect", key="return_value")
    return ti.xcom_pull(task_ids=task, key=key) if about in (None, present) else None


def _airflow_home() -> Path:
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
