"""The Airflow plugin, loaded at startup through the entry point `airflow.plugins`."""

from __future__ import annotations

import json
import math
import re
import sys
from asyncio import to_thread
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from pulsar_rebalancer.errors import RebalancerError, SettingsError
from pulsar_rebalancer.strategies.shedders.registry import load_clusters
from pulsar_rebalancer_airflow.options import (
    BY_HAND_DAG,
    CONTROL_DAG,
    NOTE,
    PAGE_ROUTE,
    PREFIX,
    REBALANCE_DAG,
    ROLL_DAG,
    clusters_file,
    storage_of,
)
from pulsar_rebalancer_airflow.suites import base_path

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


_TRIGGER_PATH = re.compile(r"/api/v2/dags/([^/]+)/dagRuns/?$")

_MAX_BODY_BYTES = 1 << 20
"""Maximum bytes of a request that this plugin checks. Only Airflow and the DAG check longer requests."""


class FormGuard:
    """ASGI middleware that answers 422 to a request for a run with a wrong form, with a sentence for each field.

    It does so whether the page, Airflow's UI or a script sends the form. The DAGs check their forms again, for runs
    that are not started through the REST API.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        trigger = scope["type"] == "http" and scope["method"] == "POST" and _TRIGGER_PATH.search(scope["path"])
        if not trigger or not trigger[1].startswith((BY_HAND_DAG, CONTROL_DAG, REBALANCE_DAG, ROLL_DAG)):
            await self.app(scope, receive, send)
            return
        messages: list[Message] = []
        while sum(len(message.get("body", b"")) for message in messages) <= _MAX_BODY_BYTES:
            messages.append(await receive())
            if not messages[-1].get("more_body"):
                break
        body = b"".join(message.get("body", b"") for message in messages)
        fields = await invalid_fields(trigger[1], body, scope) if len(body) <= _MAX_BODY_BYTES else {}
        if fields:
            await self._refuse(fields, scope, receive, send)
            return

        async def replay_messages() -> Message:
            return messages.pop(0) if messages else await receive()

        await self.app(scope, replay_messages, send)

    async def _refuse(self, fields: Mapping[str, str], scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import JSONResponse  # Airflow loads plugins in every process

        allowed = False

        async def empty_form_message() -> Message:
            return {"type": "http.request", "body": b"[]"}

        async def pass_on(message: Message) -> None:
            nonlocal allowed
            allowed = allowed or message.get("status") == 422
            if not allowed:
                await send(message)

        # Airflow first decides whether the user may start a run: only then does it refuse a body that is no object.
        await self.app(scope, empty_form_message, pass_on)
        if allowed:
            said = {"detail": " ".join(f"{name}: {sentence}" for name, sentence in fields.items()), "fields": fields}
            await JSONResponse(said, 422)(scope, receive, send)


async def invalid_fields(dag_id: str, body: bytes, scope: Scope) -> Mapping[str, str]:
    """Return a sentence for each wrong field of the form in a request for a run; empty if Airflow has to judge it.

    For a user who may start the run, a field is also wrong if the run would refuse it for what is stored.
    """
    try:
        conf = json.loads(body).get("conf") or {}
        prefix, parse = next(form for form in _form_parsers().items() if dag_id.startswith(form[0]))
        form = parse(dict(conf))
    except SettingsError as error:
        return error.fields
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}
    return await to_thread(_form_refusals, dag_id.removeprefix(prefix), form) if await _may_start(scope, dag_id) else {}


async def _may_start(scope: Scope, dag_id: str) -> bool:
    """Return whether Airflow will let the user of a request start a run: what is stored is not for strangers."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import bearer_scheme, get_user, requires_access_dag
    from fastapi import HTTPException, Request

    request = Request(scope)
    try:
        user = await get_user(request, None, await bearer_scheme(request))
        await to_thread(requires_access_dag("POST", DagAccessEntity.RUN, dag_id), request, user)
    except HTTPException:
        return False
    return True


def _form_refusals(cluster: str, form: object) -> Mapping[str, str]:
    """Return the fields for which the run would refuse a form, by the stored orders and the latest sample's brokers."""
    from airflow.utils.session import create_session

    from pulsar_rebalancer.config.field_types import Action
    from pulsar_rebalancer.decide import roll_plan
    from pulsar_rebalancer.orders.in_force import ControlRequest
    from pulsar_rebalancer.orders.order import GivenOrder
    from pulsar_rebalancer.orders.roll_document import RollRequest
    from pulsar_rebalancer.run.request import PlanRequest
    from pulsar_rebalancer.run.snapshot import latest_sample
    from pulsar_rebalancer_airflow.operators.by_hand import refuse_undrained_brokers
    from pulsar_rebalancer_airflow.overview.airflow_facts import stored_state
    from pulsar_rebalancer_airflow.state_store import ORDER_DOCUMENTS

    now = datetime.now(UTC)
    try:
        if cluster not in {entry.name for entry in load_clusters(clusters_file())}:
            return {}
        with create_session() as session:
            store = stored_state(session, storage_of(cluster))
            if isinstance(form, ControlRequest) and form.form_action.apply:
                form.form_action.apply(store.orders(models=ORDER_DOCUMENTS), GivenOrder(at=now, by="", **dict(form)))
            elif isinstance(form, PlanRequest) and form.action is Action.RELEASE and not form.plan:
                refuse_undrained_brokers(store, form.broker)
            elif isinstance(form, RollRequest) and form.brokers:
                roll_plan.roll_preview(latest_sample(store.storage, now, math.inf), form.brokers, "", "")
    except SettingsError as error:
        return error.fields
    except RebalancerError:
        return {}
    return {}


@cache
def _form_parsers() -> dict[str, Callable[[Mapping[str, object]], object]]:
    from pulsar_rebalancer.config.clusters_file import parse_params
    from pulsar_rebalancer.orders.in_force import parse_control_form
    from pulsar_rebalancer.orders.roll_document import parse_roll_form
    from pulsar_rebalancer.run.request import parse_form

    return {
        BY_HAND_DAG: parse_form,
        CONTROL_DAG: parse_control_form,
        REBALANCE_DAG: parse_params,
        ROLL_DAG: parse_roll_form,
    }


@hookimpl
def on_dag_run_success(dag_run: DagRun) -> None:
    _handle_ended_run(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun) -> None:
    _handle_ended_run(dag_run)


def _handle_ended_run(run: DagRun) -> None:
    """Note what a run changed; let Airflow schedule the next one even if a task started it or a person ended it.

    A task can give a note only to a run that it triggers, so *report* leaves the text for this listener.

    Airflow schedules no run of a DAG while `DagModel.exceeds_max_non_backfill` is set. Its scheduler (3.3.2,
    `SchedulerJobRunner._schedule_dag_run`) updates this flag when a scheduled or manual run ends, but not after a
    run that a task started or a person ended in the UI; it would remain set until the DAG file is parsed again.
    """
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from airflow.utils.state import DagRunState
    from sqlalchemy import func, select
    from sqlalchemy.orm import object_session

    session = object_session(run)
    if session is None or not run.dag_id.startswith(REBALANCE_DAG):
        return
    active = DagRun.state.in_((DagRunState.QUEUED, DagRunState.RUNNING))
    others = select(func.count()).where(DagRun.dag_id == run.dag_id, DagRun.id != run.id, active)
    run.dag_model.exceeds_max_non_backfill = session.scalar(others) >= run.dag_model.max_active_runs
    left = session.scalar(select(XComModel).where(XComModel.dag_run_id == run.id, XComModel.key == NOTE))
    changed, note = str(XComModel.deserialize_value(left)) if left else "", run.note or ""
    if changed not in note:  # a run that was cleared ends again
        run.note = f"{note}; {changed}" if note else changed


async def serve_pages(scope: Scope, receive: Receive, send: Send) -> None:
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
    """The cluster page, the pages that tasks link to, the check of forms, and a listener; `provider` has the rest."""

    name = "pulsar_rebalancer"
    fastapi_apps = [{"app": serve_pages, "url_prefix": PREFIX, "name": "Pulsar rebalancer"}]
    fastapi_root_middlewares = [{"middleware": FormGuard, "name": "Forms of the Pulsar rebalancer"}]
    external_views = _external_views()
    listeners = [sys.modules[__name__]]
