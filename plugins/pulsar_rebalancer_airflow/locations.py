"""The locations of the clusters file and of run folders, and the prefixes of DAG ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.run.run_folder import find_run
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.options import VARIABLES, option, option_path, wrong_option

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from airflow.sdk import Context

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.storage.path import StoragePath

CLUSTERS_VARIABLE = f"{VARIABLES}CLUSTERS_FILE"
"""Environment variable with the path of the clusters file."""

STORAGE_VARIABLE = f"{VARIABLES}STORAGE_ROOT"
"""Environment variable with the storage root, a path or an object-store URI."""

REBALANCE_DAG = "pulsar_rebalance__"
"""Id prefix of the DAG that rebalances a cluster; the cluster's name follows each of these prefixes."""

BY_HAND_DAG = "pulsar_by_hand__"
"""Id prefix of the DAG for manual plans."""

APPLY_DAG = "pulsar_apply__"
"""Id prefix of the DAG in which people approve plans."""

REPLAY_DAG = "pulsar_replay__"
"""Id prefix of the DAG that replays recorded load."""

CONTROL_DAG = "pulsar_control__"
"""Id prefix of the DAG with which people pause and stop rebalancing, and manage a cluster's state."""

ROLL_DAG = "pulsar_roll__"
"""Id prefix of the DAG with which people restart brokers one after another."""

PAGE_ROUTE = "pulsar-balance"
"""Route of the cluster page within the UI."""


def clusters_file() -> Path:
    """Return the path of the clusters file.

    Raises:
        SettingsError: `wrong_setting` if the path is relative.
    """
    return option_path("clusters_file")


def storage_root() -> str:
    """Return the storage root, a path or an object-store URI.

    Raises:
        SettingsError: `wrong_setting` if a path is relative, or if a URI contains a user, a password or a query. Pages
            and logs show the root, so credentials belong in Airflow's environment and in the Spark connection.
    """
    root = option("storage_root")
    if "://" not in root:
        return str(option_path("storage_root"))
    if set("@?#") & set(root):
        raise wrong_option("storage_root", "the address must not contain a user, a password or a query")
    return root


def storage_of(cluster: str) -> ClusterStorage:
    """Return a cluster's storage under the storage root.

    Raises:
        SettingsError: as in `storage_root`.
    """
    return ClusterStorage(storage_root(), cluster)


def rebalance_dags(entries: Iterable[ClusterEntry]) -> dict[str, ClusterEntry]:
    """Return the clusters' entries, keyed by the id of the DAG that balances each cluster.

    An invalid entry gets a different id if another entry already has its id.
    """
    dags: dict[str, ClusterEntry] = {}
    for entry in sorted(entries, key=lambda entry: bool(entry.error)):
        names = (f"{REBALANCE_DAG}{entry.name}{suffix}" for suffix in ("", *(f"__broken_{n}" for n in range(1, 1000))))
        dags[next(name for name in names if name not in dags)] = entry
    return dags


FOLDER = "folder"
"""XCom key of the run folder that a task worked on."""


def run_folder(context: Context, cluster: str, address: object) -> StoragePath:
    """Return the current run's folder. Its address is checked, because it comes from an XCom.

    The address is also stored as an XCom of the task, to record which folder its other XComs refer to
    (`left_about_run`).

    Raises:
        PlanError: `foreign_run` if the folder belongs to another cluster or DAG run.
        SnapshotError: the run's request cannot be read.
    """
    context["ti"].xcom_push(key=FOLDER, value=str(address))
    return find_run(storage_of(cluster), str(address), context["dag_run"].run_id)


def left_about_run(context: Context, task: str, key: str) -> Any:
    """Return a task's XCom if it refers to the run's current folder; None if it refers to an earlier folder.

    If the *collect* task is cleared, the run gets a new folder. Tasks that have not run again still have their old
    XComs.
    """
    ti = context["ti"]
    about, present = ti.xcom_pull(task_ids=task, key=FOLDER), ti.xcom_pull(task_ids="collect", key="return_value")
    return ti.xcom_pull(task_ids=task, key=key) if about in (None, present) else None
