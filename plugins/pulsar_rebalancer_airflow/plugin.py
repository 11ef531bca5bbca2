"""The Airflow plugin, loaded at startup through the entry point `airflow.plugins`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from pulsar_rebalancer_airflow.form_guard import FormGuard
from pulsar_rebalancer_airflow.options import PAGE_ROUTE, REBALANCE_DAG
from pulsar_rebalancer_airflow.suites import PREFIX, base_path

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from starlette.types import Receive, Scope, Send


@hookimpl
def on_dag_run_success(dag_run: DagRun) -> None:
    _look_again(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun) -> None:
    _look_again(dag_run)


def _look_again(ended: DagRun) -> None:
    """Let Airflow schedule a cluster's next run even if a task started the last run or a person ended it.

    Airflow schedules no run of a DAG while `DagModel.exceeds_max_non_backfill` is set. Its scheduler (3.3.2,
    `SchedulerJobRunner._schedule_dag_run`) updates this flag when a scheduled or manual run ends, but not after a
    run that a task started or a person ended in the UI; it would remain set until the DAG file is parsed again.
    """
    from airflow.models.dagrun import DagRun
    from airflow.utils.state import DagRunState
    from sqlalchemy import func, select
    from sqlalchemy.orm import object_session

    session = object_session(ended)
    if session is None or not ended.dag_id.startswith(REBALANCE_DAG):
        return
    active = DagRun.state.in_((DagRunState.QUEUED, DagRunState.RUNNING))
    others = select(func.count()).where(DagRun.dag_id == ended.dag_id, DagRun.id != ended.id, active)
    ended.dag_model.exceeds_max_non_backfill = session.scalar(others) >= ended.dag_model.max_active_runs


async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the application. It is imported on the first request, because Airflow loads plugins in every process."""
    from pulsar_rebalancer_airflow.overview.routes import app

    await app(scope, receive, send)


def _external_views() -> list[dict[str, object]]:
    """Return the plugin's external views, which Airflow shows in an iframe.

    Airflow cannot limit a tab to certain DAGs, so the tab of an unrelated DAG shows only a message.
    """
    base = f"{base_path()}{PREFIX}/page"
    # The icons have their own background, because Airflow does not adapt them to a selected entry, which is dark.
    icons = {"icon": f"{base}/static/icon-light.svg", "icon_dark_mode": f"{base}/static/icon-dark.svg"}
    tab, run = f"{base}/{{DAG_ID}}", f"{base}/{{DAG_ID}}?run_id={{RUN_ID}}"
    result = f"{base_path()}{PREFIX}/dags/{{DAG_ID}}/runs/{{RUN_ID}}/validation"
    views: list[dict[str, object]] = [
        # Airflow cuts off longer labels.
        {"name": "Pulsar", "href": base, "destination": "nav", "url_route": PAGE_ROUTE, "nav_top_level": True},
        {"name": "Balance", "href": tab, "destination": "dag", "url_route": f"{PAGE_ROUTE}-dag"},
        {"name": "Balance", "href": run, "destination": "dag_run", "url_route": f"{PAGE_ROUTE}-run"},
        {"name": "Validation", "href": result, "destination": "dag_run", "url_route": "pulsar-validation"},
    ]
    return [view | icons for view in views]


class PulsarRebalancerPlugin(AirflowPlugin):
    """The cluster page, the pages that tasks link to, and a listener; `provider` registers everything else."""

    name = "pulsar_rebalancer"
    fastapi_apps = [{"app": pages, "url_prefix": PREFIX, "name": "Pulsar rebalancer"}]
    fastapi_root_middlewares = [{"middleware": FormGuard, "name": "Forms of the Pulsar rebalancer"}]
    external_views = _external_views()
    listeners = [sys.modules[__name__]]
