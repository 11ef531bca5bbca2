"""The routes to the page, its static files and its documents, for users who may read the DAG.

All routes are read-only. The page's buttons call Airflow's own API with the permissions of the user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.decide.stays import keeping_rules
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.show.page import overview
from pulsar_rebalancer.show.page.bundles import find_bundles, stay_views
from pulsar_rebalancer.show.page.page_model import FoundBundles, Overview, RunAnswer, Status, StayView, UserActions
from pulsar_rebalancer.show.page.timeline import Timeline, make_timeline, timeline_start
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.shedders.registry import load_clusters
from pulsar_rebalancer_airflow.options import (
    BY_HAND_DAG,
    PREFIX,
    REBALANCE_DAG,
    clusters_file,
    entries_by_dag_id,
    storage_root,
)
from pulsar_rebalancer_airflow.overview import airflow_facts, run_answers
from pulsar_rebalancer_airflow.overview.run_answers import make_run_answer, report_folder_name
from pulsar_rebalancer_airflow.suites import base_path, report_path

SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
"""Content security policy: load everything from this server, and allow nothing inline."""

_HEADERS = {"Content-Security-Policy": SECURITY_POLICY}

_RUN_ENTITY = DagAccessEntity.RUN
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

router = APIRouter(dependencies=[Depends(requires_access_dag("GET"))])


@router.get("/page/static/{name}")
def static_file(name: str) -> Response:
    """Return a static file of the page, or status 404."""
    kind = next((kind for ending, kind in _MEDIA_TYPES.items() if name.endswith(ending)), None)
    # Pick the file from the folder's own listing: the name in the request never becomes part of a path.
    file = next((file for file in files(__package__).joinpath("static").iterdir() if file.name == name), None)
    if kind is None or file is None:
        raise HTTPException(404, "There is no such file.")
    return Response(file.read_bytes(), media_type=kind, headers=_HEADERS | {"Cache-Control": "private, no-cache"})


@router.get("/page")
@router.get("/page/{dag_id}")
def page(dag_id: str = "", run_id: Annotated[str, Query()] = "") -> Response:
    """Return the page, which then loads its documents. For a run of the replay DAG, redirect to the run's report."""
    report = report_folder_name(storage_root(), dag_id, run_id) if run_id else None
    if report is not None:
        return RedirectResponse(report_path(dag_id, run_id, report))
    shell = files(__package__).joinpath("static", "page.html").read_text(encoding="utf-8")
    return Response(shell.replace("@BASE@", escape(f"{base_path()}{PREFIX}")), media_type="text/html", headers=_HEADERS)


@router.get("/clusters")
def clusters(session: SessionDep, user: GetUserDep) -> list[Status]:
    """Return the status of all clusters whose DAG the user may read, including clusters with unreadable files."""
    readable, strips = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session), []
    for dag_id, entry in entries_by_dag_id(load_clusters(clusters_file())).items():
        if dag_id in readable:
            strips.append(_status_of_cluster(session, entry, dag_id).model_copy(update={"dag_id": dag_id}))
    return strips


def _status_of_cluster(session: SessionDep, entry: ClusterEntry, dag_id: str) -> Status:
    storage = ClusterStorage(storage_root(), entry.name)
    facts = airflow_facts.facts_of_dag(session, storage, dag_id)
    try:
        return overview.cluster_status(storage, entry, facts, _now())
    except RebalancerError as error:
        return overview.unreadable_status(entry, facts, error, _now())


@router.get("/dags/{dag_id}/overview")
def cluster_page(dag_id: str, session: SessionDep, user: GetUserDep, run_id: Annotated[str, Query()] = "") -> Overview:
    """Return the content of a cluster's page: the current state, or the state at the time of one run.

    Status 404 if the DAG belongs to no cluster, or if the run's files do not exist yet or were deleted.
    """
    balances, entry = _find_cluster(dag_id)
    storage = ClusterStorage(storage_root(), entry.name)
    facts = airflow_facts.facts_of_dag(session, storage, balances)
    acts = UserActions() if entry.error else airflow_facts.actions(session, entry, facts, user, _now())
    if run_id:
        folder = airflow_facts.run_folder(session, storage, dag_id, run_id)
        view = overview.run_overview(storage, entry, folder, _now()) if folder else None
        if view is None:
            raise HTTPException(404, "This run has no files yet, or upkeep has moved the files to the history tables.")
        return airflow_facts.with_links(view.model_copy(update={"acts": acts}), dag_id, storage)
    try:
        view = overview.current_overview(storage, entry, facts, _now())
    except RebalancerError as error:
        # Operators can still give orders.
        view = overview.overview_without_run(overview.unreadable_status(entry, facts, error, _now()), facts, _now())
    return airflow_facts.with_links(view.model_copy(update={"acts": acts}), balances, storage, facts.failed)


@router.get("/dags/{dag_id}/runs/{run_id}/answer", dependencies=[Depends(requires_access_dag("GET", _RUN_ENTITY))])
def run_answer(dag_id: str, run_id: str, session: SessionDep) -> RunAnswer:
    """Return the outcome of a run that the page started. Status 404 if there is none."""
    outcome = make_run_answer(session, dag_id, run_id)
    if outcome is None:
        raise HTTPException(404, "No DAG of a Pulsar cluster has this run.")
    return outcome


@router.get("/dags/{dag_id}/plans/{folder}/stay")
def unmoved_bundles(dag_id: str, folder: str) -> tuple[StayView, ...]:
    """Return the bundles that a plan considered but does not move, with the reasons; 404 without such a plan."""
    run = ClusterStorage(storage_root(), _find_cluster(dag_id)[1].name).run_folder(folder)
    if run is None:
        raise HTTPException(404, "There is no such plan.")
    return stay_views(run)


@router.get("/dags/{dag_id}/bundles")
def bundles(dag_id: str, part: Annotated[str, Query(max_length=512)] = "") -> FoundBundles:
    """Return the bundles of a broker or topic, or with `part` in their names, and why each moves or stays."""
    return find_bundles(ClusterStorage(storage_root(), _find_cluster(dag_id)[1].name), part, _now(), keeping_rules)


@router.get("/dags/{dag_id}/timeline")
def history(dag_id: str, session: SessionDep) -> Timeline:
    _, entry = _find_cluster(dag_id)
    now, storage = _now(), ClusterStorage(storage_root(), entry.name)
    orders = airflow_facts.orders_since(session, storage, timeline_start(now))
    failures = airflow_facts.failures_since(session, f"{REBALANCE_DAG}{entry.name}", timeline_start(now))
    return make_timeline(storage, entry.settings, now, orders, failures)


def _find_cluster(dag_id: str) -> tuple[str, ClusterEntry]:
    """Return the id of the DAG that balances a cluster, and the cluster's entry; raise 404 if there is none.

    `dag_id` can also be that of the cluster's by-hand DAG.
    """
    known = entries_by_dag_id(load_clusters(clusters_file()))
    by_hand = dag_id.startswith(BY_HAND_DAG)
    balances = f"{REBALANCE_DAG}{dag_id.removeprefix(BY_HAND_DAG)}" if by_hand else dag_id
    if balances not in known or (by_hand and known[balances].error):
        raise HTTPException(404, "This DAG does not belong to a Pulsar cluster.")
    return balances, known[balances]


def _now() -> datetime:
    return datetime.now(UTC)


_ON_ALL = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "private, no-store"}
"""Headers of all responses; a route may set others."""

# FastAPI's documentation pages would be open to everyone.
app = FastAPI(title="Pulsar rebalancer", docs_url=None, redoc_url=None, openapi_url=None)
app.include_router(run_answers.router)
app.include_router(router)


@app.middleware("http")
async def add_default_headers(request: Request, respond: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await respond(request)
    for name, value in _ON_ALL.items():
        response.headers.setdefault(name, value)
    return response


@app.exception_handler(RebalancerError)
def respond_to_unreadable_file(_: Request, error: Exception) -> JSONResponse:
    """Respond with 503 and an explanation if the clusters file, the storage root or a run's file cannot be read."""
    return JSONResponse({"detail": str(error)}, status_code=503)
