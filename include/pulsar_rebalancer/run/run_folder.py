"""Find a run's folder from an untrusted address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow.fs import LocalFileSystem

from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.layout import ClusterStorage


def find_run(storage: ClusterStorage, address: str, airflow_run_id: str) -> StoragePath:
    """Return the folder at an address, after checking that it belongs to this cluster and DAG run.

    Without this check, anyone who can write an XCom could make a task carry out another run's plan or read another
    run's files.

    Args:
        address: address of the run's folder, as the *collect* task returned it.

    Raises:
        PlanError: `foreign_run` if the folder is not one of the cluster's runs, is outside the storage root because of
            a link, or contains the request of another cluster or DAG run.
        SnapshotError: the folder's request cannot be read.
    """
    run = storage.run(StoragePath(address).name)
    request = None if run is None else run / "input" / "settings.json"
    if run is None or request is None or run.uri != address or not lies_below(storage.root, request):
        raise PlanError(Reason.FOREIGN_RUN, f"{address[:200]!a} is not a run of cluster {storage.cluster}")
    if not belongs(request.read_json(), storage.cluster, airflow_run_id):
        raise PlanError(
            Reason.FOREIGN_RUN, f"{run.uri} is not of run {airflow_run_id[:200]!a} of cluster {storage.cluster}"
        )
    return run


def belongs(request: object, cluster: str, airflow_run_id: str) -> bool:
    """Return whether a request (`input/settings.json`) is from this cluster and DAG run."""
    named = (request.get("cluster"), request.get("airflow_run_id")) if isinstance(request, dict) else None
    return named == (cluster, airflow_run_id)


def lies_below(root: str, file: StoragePath) -> bool:
    """Return whether a file is below the root after links are resolved. Object stores have no links."""
    file_system, path = file.open()
    if not isinstance(file_system, LocalFileSystem):
        return True
    return Path(path).resolve().is_relative_to(Path(StoragePath(root).open()[1]).resolve())
