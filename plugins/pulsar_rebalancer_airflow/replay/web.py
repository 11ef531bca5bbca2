"""The route to the report of a replay, for whoever may read the logs of its DAG.

Imported by the web server alone: it loads Airflow's API with the metadata database.
"""

from __future__ import annotations

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import HTMLResponse

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import CLUSTER_NAME
from pulsar_rebalancer.replay.request import REPORT, REQUEST
from pulsar_rebalancer.run.run_folder import belongs, lies_below
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.locations import REPLAY_DAG, storage_root
from pulsar_rebalancer_airflow.validation.web import HEADERS

router = APIRouter()


@router.get(
    "/dags/{dag_id}/runs/{run_id}/replay/{folder}",
    response_class=HTMLResponse,
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))],
)
def replay_report(dag_id: str, run_id: str, folder: str) -> HTMLResponse:
    """Return the report of a replay as a page.

    Raises:
        HTTPException: 404 unless the folder is one of this very DAG run and holds a report.
    """
    page = stored_report(storage_root(), dag_id, run_id, folder)
    if page is None:
        raise HTTPException(404, "This DAG run has no such report; reports are kept for retention_days.")
    return HTMLResponse(page, headers=HEADERS)


def stored_report(root: str, dag_id: str, run_id: str, name: str) -> bytes | None:
    """Return the report of a DAG run if its folder has this name; nothing of the name is trusted.

    Args:
        root: storage root.
        dag_id: DAG that the user may read.
        run_id: the DAG run.
        name: of the replay's folder, as it came with the request.
    """
    cluster = dag_id.removeprefix(REPLAY_DAG)
    if not dag_id.startswith(REPLAY_DAG) or CLUSTER_NAME.fullmatch(cluster) is None:
        return None
    folder = ClusterStorage(root, cluster).replay(name)
    if folder is None or not lies_below(root, folder / REPORT):
        return None
    try:
        if not belongs((folder / REQUEST).read_json(), cluster, run_id):
            return None
        return (folder / REPORT).read_bytes()
    except SnapshotError:
        return None
