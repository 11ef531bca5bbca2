"""The route to a validation result, for users who may read the DAG's logs.

Import this module only in Airflow's API server: it loads Airflow's API, which needs the metadata database.
"""

from typing import Any

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.compacted_tables import RUNS, compacted_documents, table_file
from pulsar_rebalancer.run.run_folder import belongs, lies_below
from pulsar_rebalancer.storage.layout import ClusterStorage, time_of
from pulsar_rebalancer.storage.path import StoragePath, json_document
from pulsar_rebalancer_airflow.locations import BY_HAND_DAG, REBALANCE_DAG, storage_root
from pulsar_rebalancer_airflow.stored_pages import FOR_READERS_OF_LOGS, cluster_of, served
from pulsar_rebalancer_airflow.validation.page import page_of
from pulsar_rebalancer_airflow.xcoms import left_by

router = APIRouter()


@router.get(
    "/dags/{dag_id}/runs/{run_id}/validation/{folder}",
    response_class=HTMLResponse,
    dependencies=FOR_READERS_OF_LOGS,
)
def validation_result(dag_id: str, run_id: str, folder: str) -> HTMLResponse:
    """Return a run's validation result as a page.

    Raises:
        HTTPException: 404 if the folder does not belong to this DAG run or has no page.
    """
    kept = "they are kept for history_days, or for retention_days on days that are not compacted"
    page = stored_page(storage_root(), dag_id, run_id, folder)
    return served(page, f"This DAG run has no such validation result; {kept}.")


@router.get(
    "/dags/{dag_id}/runs/{run_id}/validation",
    response_class=HTMLResponse,
    dependencies=FOR_READERS_OF_LOGS,
)
def validation_of_run(dag_id: str, run_id: str, session: SessionDep) -> HTMLResponse:
    """Return a run's validation result as a page for the run's tab, from the run's folder or the history."""
    left = None
    if cluster_of(dag_id, REBALANCE_DAG, BY_HAND_DAG) is not None:
        left = left_by(session, dag_id, run_id, key="return_value", task="collect")
    page = stored_page(storage_root(), dag_id, run_id, StoragePath(str(left)).name)
    return served(page or b"<p>This DAG run has no validation result of a Pulsar cluster.", "")


def stored_page(root: str, dag_id: str, run_id: str, name: str) -> bytes | None:
    """Return a DAG run's page; None if the folder with this name does not belong to the run.

    Args:
        dag_id: id of a DAG that the user may read.
        name: name of the run's folder, which comes from an HTTP request and is not trusted.
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
    """Return the request and page of a run whose folder was deleted, from the history that daily upkeep writes."""
    at = time_of(name)
    listed = table_file(storage, RUNS, at.date()) if at else None
    if listed is None or not listed.exists() or not lies_below(root, listed):
        return None
    documents = compacted_documents(listed, name, ["settings", "page"])
    settings, page = documents.get("settings"), documents.get("page")
    return (json_document(settings, listed.uri), page.encode()) if settings and page else None
