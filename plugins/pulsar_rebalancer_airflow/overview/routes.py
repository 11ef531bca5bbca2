"""The page, what it is made of, and the documents that it shows: read only, for whoever may read the DAG in question.

Nothing is written here: its buttons call Airflow's own API, as the user who presses them.
"""

from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends, HTTPException, Query
from fastapi.responses import RedirectResponse, Response

from pulsar_rebalancer.config.clusters_file import ClusterEntry, load_clusters
from pulsar_rebalancer.overview import overview
from pulsar_rebalancer.overview.model import Overview, Status, Timeline
from pulsar_rebalancer.overview.timeline import Span, timeline
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.locations import BY_HAND_DAG, REBALANCE_DAG, clusters_file, storage_root
from pulsar_rebalancer_airflow.overview import airflow_facts
from pulsar_rebalancer_airflow.replay.link import report_path
from pulsar_rebalancer_airflow.replay.web import report_of_run
from pulsar_rebalancer_airflow.validation.link import PREFIX, base_path

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
"""Content security policy: everything comes from this server, and nothing is written inline."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}

_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

router = APIRouter(dependencies=[Depends(requires_access_dag("GET"))])


@router.get("/page/static/{name}")
def static(name: str) -> Response:
    """Return a file that the page is made of.

    Raises:
        HTTPException: 404 when there is no such file.
    """
    kind = next((kind for ending, kind in _KINDS.items() if name.endswith(ending)), None)
    # One of the folder's own names: nothing of the request becomes a path.
    found = next((file for file in files(__package__).joinpath("static").iterdir() if file.name == name), None)
    if kind is None or found is None:
        raise HTTPException(404, "There is no such file.")
    return Response(found.read_bytes(), media_type=kind, headers=HEADERS | {"Cache-Control": "private, no-cache"})


@router.get("/page")
@router.get("/page/{dag_id}")
def page(dag_id: str = "", run_id: Annotated[str, Query()] = "") -> Response:
    """Return the page; it asks for its documents itself. In the tab of a replay's run, its report takes its place."""
    report = report_of_run(storage_root(), dag_id, run_id) if run_id else None
    if report is not None:
        return RedirectResponse(report_path(dag_id, run_id, report))
    shell = files(__package__).joinpath("static", "page.html").read_text(encoding="utf-8")
    return Response(shell.replace("@BASE@", escape(f"{base_path()}{PREFIX}")), media_type="text/html", headers=HEADERS)


@router.get("/clusters")
def clusters(session: SessionDep, user: GetUserDep) -> list[Status]:
    """Return the strips of all clusters whose DAG the user may read."""
    readable, found = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session), []
    for entry in load_clusters(clusters_file()):
        storage, dag_id = ClusterStorage(storage_root(), entry.name), f"{REBALANCE_DAG}{entry.name}"
        if dag_id in readable:
            strip = overview.status(storage, entry, airflow_facts.of_dag(session, storage, dag_id), _now())
            found.append(strip.model_copy(update={"dag_id": dag_id}))
    return found


@router.get("/dags/{dag_id}/overview")
def cluster(dag_id: str, session: SessionDep, user: GetUserDep, run_id: Annotated[str, Query()] = "") -> Overview:
    """Return a cluster as it is now, or as one run saw it.

    Raises:
        HTTPException: 404 when the DAG is of no cluster, or the run left no files that are still there.
    """
    entry = _entry(dag_id)
    storage = ClusterStorage(storage_root(), entry.name)
    if run_id:
        folder = airflow_facts.run_folder(session, storage, dag_id, run_id)
        found = overview.of_one_run(storage, entry, folder, _now()) if folder else None
        if found is None:
            raise HTTPException(404, "This run has no files yet, or they are part of its day's history by now.")
    else:
        facts = airflow_facts.of_dag(session, storage, dag_id)
        found = overview.present(storage, entry, facts, _now())
        if not entry.error:
            acts = airflow_facts.acts(storage, entry.settings.mode, facts, user, _now())
            found = found.model_copy(update={"acts": acts})
    return airflow_facts.with_links(found, dag_id, storage)


@router.get("/dags/{dag_id}/timeline")
def history(dag_id: str, span: Span = Span.HOUR) -> Timeline:
    """Return what happened over an hour, a day or a month.

    Raises:
        HTTPException: 404 when the DAG is of no cluster.
    """
    storage = ClusterStorage(storage_root(), _entry(dag_id).name)
    return timeline(storage, span, _now())


def _entry(dag_id: str) -> ClusterEntry:
    """Return the cluster whose load or whose plans by hand a DAG is about."""
    name = next((dag_id.removeprefix(known) for known in (REBALANCE_DAG, BY_HAND_DAG) if dag_id.startswith(known)), "")
    known, broken = load_clusters(clusters_file()), ""
    if name not in {entry.name for entry in known}:
        # A broken entry whose name another one has gets a DAG of its own.
        name, broken, _ = name.partition("__broken_")
    entries = [entry for entry in known if entry.name == name and (entry.error or not broken)]
    found = min(entries, key=lambda entry: bool(entry.error), default=None)
    if found is None:
        raise HTTPException(404, "This DAG looks after no Pulsar cluster.")
    return found


def _now() -> datetime:
    return datetime.now(UTC)
