"""Shared parts of the routes to stored pages: permissions, the page's cluster, and HTTP headers.

Import this module only in Airflow's API server: it loads Airflow's API, which needs the metadata database.
"""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import HTMLResponse

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import CLUSTER_NAME
from pulsar_rebalancer.replay.replay_request import REPORT, REQUEST
from pulsar_rebalancer.run.compacted_tables import RUNS, compacted_documents, table_file
from pulsar_rebalancer.run.snapshot import belongs, lies_below
from pulsar_rebalancer.storage.documents import ClusterStorage, time_of
from pulsar_rebalancer.storage.path import StoragePath, json_document
from pulsar_rebalancer_airflow.options import BY_HAND_DAG, REBALANCE_DAG, REPLAY_DAG, storage_root
from pulsar_rebalancer_airflow.overview.airflow_facts import read_xcom
from pulsar_rebalancer_airflow.suites import POLICY, page_of

FOR_READERS_OF_LOGS = [Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))]
"""Dependencies of a route: the user must be allowed to read the logs of the DAG `dag_id`."""

_HEADERS = {"Content-Security-Policy": f"{POLICY}; frame-ancestors 'self'; sandbox"}


def cluster_of(dag_id: str, *prefixes: str) -> str | None:
    """Return a DAG's cluster; None if its id is not a known prefix followed by a valid cluster name."""
    cluster = next((dag_id.removeprefix(prefix) for prefix in prefixes if dag_id.startswith(prefix)), "")
    return cluster if CLUSTER_NAME.fullmatch(cluster) else None


def served(page: bytes | None, missing: str) -> HTMLResponse:
    """Return a page with headers that forbid scripts and external resources; 404 if there is no page."""
    if page is None:
        raise HTTPException(404, missing)
    return HTMLResponse(page, headers=_HEADERS)


router = APIRouter()


@router.get(
    "/dags/{dag_id}/runs/{run_id}/validation/{folder}",
    response_class=HTMLResponse,
    dependencies=FOR_READERS_OF_LOGS,
)
def validation_result(dag_id: str, run_id: str, folder: str) -> HTMLResponse:
    kept = "they are kept for history_days, or for retention_days on days that are not compacted"
    page = stored_page(storage_root(), dag_id, run_id, folder)
    return served(page, f"This DAG run has no such validation result; {kept}.")


@router.get(
    "/dags/{dag_id}/runs/{run_id}/validation",
    response_class=HTMLResponse,
    dependencies=FOR_READERS_OF_LOGS,
)
def validation_of_run(dag_id: str, run_id: str, session: SessionDep) -> HTMLResponse:
    """Return the validation result for the run's tab, from the run's folder or the history."""
    left = None
    if cluster_of(dag_id, REBALANCE_DAG, BY_HAND_DAG) is not None:
        left = read_xcom(session, dag_id, run_id, key="return_value", task="collect")
    page = stored_page(storage_root(), dag_id, run_id, StoragePath(str(left)).name)
    return served(page or b"<p>This DAG run has no validation result of a Pulsar cluster.", "")


def stored_page(root: str, dag_id: str, run_id: str, name: str) -> bytes | None:
    """Return a DAG run's page; None if the folder with this name does not belong to the run.

    The user may read the DAG; `name` comes from an HTTP request and is not trusted.
    """
    # Users who may read one of a cluster's two DAGs may read the validation results of both.
    cluster = cluster_of(dag_id, REBALANCE_DAG, BY_HAND_DAG)
    if cluster is None:
        return None
    storage = ClusterStorage(root, cluster)
    run = storage.run(name)
    if run is None:
        return None
    try:
        asked, page = _from_folder(root, run) or _from_history(root, storage, name) or (None, None)
    except SnapshotError:
        return None
    return page if belongs(asked, cluster, run_id) else None


def _from_folder(root: str, run: StoragePath) -> tuple[Any, bytes] | None:
    page = page_of(run)
    if not page.exists() or not lies_below(root, page):
        return None
    return (run / "input" / "settings.json").read_json(), page.read_bytes()


def _from_history(root: str, storage: ClusterStorage, name: str) -> tuple[Any, bytes] | None:
    """Return the request and page of a run whose folder was deleted, from daily upkeep's history."""
    at = time_of(name)
    listed = table_file(storage, RUNS, at.date()) if at else None
    if listed is None or not listed.exists() or not lies_below(root, listed):
        return None
    documents = compacted_documents(listed, name, ["settings", "page"])
    settings, page = documents.get("settings"), documents.get("page")
    return (json_document(settings, listed.uri), page.encode()) if settings and page else None


@router.get(
    "/dags/{dag_id}/runs/{run_id}/replay/{folder}",
    response_class=HTMLResponse,
    dependencies=FOR_READERS_OF_LOGS,
)
def replay_report(dag_id: str, run_id: str, folder: str) -> HTMLResponse:
    page = stored_report(storage_root(), dag_id, run_id, folder)
    return served(page, "This DAG run has no such report; reports are kept for retention_days.")


def stored_report(root: str, dag_id: str, run_id: str, name: str) -> bytes | None:
    """Return a DAG run's report; None if the folder with this untrusted name does not belong to the run."""
    cluster = cluster_of(dag_id, REPLAY_DAG)
    folder = ClusterStorage(root, cluster).replay(name) if cluster else None
    if cluster is None or folder is None or not lies_below(root, folder / REPORT):
        return None
    try:
        if not belongs((folder / REQUEST).read_json(), cluster, run_id):
            return None
        return (folder / REPORT).read_bytes()
    except SnapshotError:
        return None


def report_of_run(root: str, dag_id: str, run_id: str) -> str | None:
    """Return the name of the folder with a DAG run's latest report; None if there is none."""
    cluster = cluster_of(dag_id, REPLAY_DAG)
    names = ClusterStorage(root, cluster).replays.names() if cluster else []
    return next((name for name in reversed(names) if stored_report(root, dag_id, run_id, name) is not None), None)
