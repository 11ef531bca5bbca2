"""The route to a replay's report, for users who may read the DAG's logs.

Import this module only in Airflow's API server: it loads Airflow's API, which needs the metadata database.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.replay.replay_request import REPORT, REQUEST
from pulsar_rebalancer.run.run_folder import belongs, lies_below
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.locations import REPLAY_DAG, storage_root
from pulsar_rebalancer_airflow.stored_pages import FOR_READERS_OF_LOGS, cluster_of, served

router = APIRouter()


@router.get(
    "/dags/{dag_id}/runs/{run_id}/replay/{folder}",
    response_class=HTMLResponse,
    dependencies=FOR_READERS_OF_LOGS,
)
def replay_report(dag_id: str, run_id: str, folder: str) -> HTMLResponse:
    """Return a replay's report as a page.

    Raises:
        HTTPException: 404 if the folder does not belong to this DAG run or has no report.
    """
    page = stored_report(storage_root(), dag_id, run_id, folder)
    return served(page, "This DAG run has no such report; reports are kept for retention_days.")


def stored_report(root: str, dag_id: str, run_id: str, name: str) -> bytes | None:
    """Return a DAG run's report; None if the folder with this name does not belong to the run.

    Args:
        dag_id: id of a DAG that the user may read.
        name: name of the replay's folder, which comes from an HTTP request and is not trusted.
    """
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
    """Return the name of the folder with a DAG run's newest report; None if there is no report.

    Args:
        dag_id: id of a DAG that the user may read.
    """
    cluster = cluster_of(dag_id, REPLAY_DAG)
    names = ClusterStorage(root, cluster).replays.names() if cluster else []
    return next((name for name in reversed(names) if stored_report(root, dag_id, run_id, name) is not None), None)
