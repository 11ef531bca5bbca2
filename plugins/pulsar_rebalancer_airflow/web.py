"""What Airflow's web server serves of this package, to whoever may read the logs of the DAG in question.

Imported by that server alone: it loads Airflow's API with the metadata database.
"""

from __future__ import annotations

from pathlib import Path

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse
from pyarrow.fs import LocalFileSystem

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.inventory import time_of
from pulsar_rebalancer.names import CLUSTER_NAME
from pulsar_rebalancer.storage import ClusterStorage, Folder
from pulsar_rebalancer_airflow.locations import REBALANCE_DAG, storage_root
from pulsar_rebalancer_airflow.validation_page import POLICY, page_of

HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'self'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}

# The documentation pages of FastAPI would be open to everyone.
app = FastAPI(title="Pulsar rebalancer", docs_url=None, redoc_url=None, openapi_url=None)


@app.get(
    "/dags/{dag_id}/runs/{run_id}/validation/{folder}",
    response_class=HTMLResponse,
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))],
)
def validation_result(dag_id: str, run_id: str, folder: str) -> HTMLResponse:
    """The validation result of a run as a page.

    Raises:
        HTTPException: 404 unless the folder is one of this very DAG run and holds a page.
    """
    run = run_folder(storage_root(), dag_id, run_id, folder)
    if run is None:
        raise HTTPException(404, "This DAG run has no such validation result; runs are kept for retention_days.")
    return HTMLResponse(page_of(run).read_bytes(), headers=HEADERS)


def run_folder(root: str, dag_id: str, run_id: str, name: str) -> Folder | None:
    """The folder of a DAG run if it has this name and a page; nothing of the name is trusted.

    Args:
        root: storage root.
        dag_id: DAG that the user may read.
        run_id: the DAG run.
        name: of the run's folder, as it came with the request.
    """
    cluster = dag_id.removeprefix(REBALANCE_DAG)
    at = time_of(name)
    if cluster == dag_id or CLUSTER_NAME.fullmatch(cluster) is None or at is None:
        return None
    run = ClusterStorage(root, cluster).runs / f"date={at:%Y-%m-%d}" / name
    if not _lies_below(root, page_of(run)):
        return None
    try:
        asked = (run / "input" / "settings.json").read_json()
    except SnapshotError:
        return None
    belongs = isinstance(asked, dict) and (asked.get("cluster"), asked.get("airflow_run_id")) == (cluster, run_id)
    return run if belongs else None


def _lies_below(root: str, file: Folder) -> bool:
    """Whether the file exists, and no link leads it out of the root."""
    file_system, path = file.open()
    if isinstance(file_system, LocalFileSystem):
        top = Path(Folder(root).open()[1]).resolve()
        return Path(path).is_file() and Path(path).resolve().is_relative_to(top)
    return file.exists()
