"""Alerting from a task: convert observations to messages, send them, and store the open incidents."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk.configuration import conf

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alerts.alert_conditions import BEFORE_UNLOAD, EndedRun, judge_run
from pulsar_rebalancer.show.alerts.incidents import AlertsState, WatchState, advance, delivered, pending_messages
from pulsar_rebalancer.show.alerts.messages import compose, figures_of
from pulsar_rebalancer.state.orders.in_force import closings
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.failures import FAILURE
from pulsar_rebalancer_airflow.locations import left_about_run, storage_of
from pulsar_rebalancer_airflow.notifications.notifier import send
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.show.alerts.alert_conditions import Condition, Observation
    from pulsar_rebalancer.show.alerts.messages import AlertMessage

_log = logging.getLogger(__name__)

_ALERTING = (Reason.BREAKER_OPEN, Reason.CONTROL_UNREADABLE)
"""Reasons that close the gate without an order from a person. They are reported even if no plan would move anything."""


def tell_of_run(context: Context, cluster: str, settings: Settings, run: str | None) -> None:
    """Send alerts about the current run. Errors are only logged, because alerts must not fail a run.

    Args:
        context: context of a task that runs after all others.
        cluster: name in the clusters file.
        settings: settings from the clusters file, without the run's overrides.
        run: address of the run's folder; None if nothing was collected.
    """
    try:
        store, now = StateStore.of(context, cluster), datetime.now(UTC)
        if not settings.alert_connection:
            _forget(store)
            return
        folder = StoragePath(run) if run else None
        ended = _ended(context, _closed(store, cluster, settings, now), now)
        ended = replace(ended, roll=store.readable_roll(storage_of(cluster)))
        if folder is not None:
            ended = ended.with_documents(folder)
        incidents = store.readable(AlertsState).incidents
        last_seen = {condition: incident.seen_at for condition, incident in incidents.items()}
        observed = judge_run(ended, settings, last_seen, now)
        run_name = folder.name if folder else ""
        tell(context, cluster, settings, AlertsState, observed, figures_of(ended), now, run=run_name)
    except Exception as error:
        _log.warning("Alerts: nothing could be sent about this run (%s)", type(error).__name__)


def _closed(store: StateStore, cluster: str, settings: Settings, now: datetime) -> dict[Reason, str]:
    """Return details of the reasons in `_ALERTING` that currently close the gate, by reason."""
    closed = closings(settings, store.control(storage_of(cluster)), now)
    return {closing.reason: closing.detail for closing in closed if closing.reason in _ALERTING}


def _forget(store: StateStore) -> None:
    """Drop open incidents, because alerts are off.

    If alerts are switched on again, the incidents are reported as new.
    """
    for model in (AlertsState, WatchState):
        if store.readable(model).incidents:
            store.put(model())


def _ended(context: Context, closed: Mapping[Reason, str], now: datetime) -> EndedRun:
    ti, dag_run = context["ti"], context["dag_run"]
    states = ti.get_task_states(dag_id=dag_run.dag_id, run_ids=[dag_run.run_id]).get(dag_run.run_id, {})
    failures = {task: left_about_run(context, task, FAILURE) for task in BEFORE_UNLOAD if states.get(task) == "failed"}
    started = dag_run.start_date
    return EndedRun(
        states={task: str(state) for task, state in states.items()},
        failures={task: reason for task, reason in failures.items() if isinstance(reason, str)},
        seconds=(now - started.astimezone(UTC)).total_seconds() if started else None,
        manual=dag_run.run_type != "scheduled",
        closed=closed,
    )


def tell(
    context: Context,
    cluster: str,
    settings: Settings,
    model: type[AlertsState],
    observed: Mapping[Condition, Observation],
    figures: Sequence[str],
    now: datetime,
    *,
    run: str = "",
) -> None:
    """Send a message for every incident that has started or ended, and store the open incidents.

    A message that no receiver accepted is stored as pending, and the next run sends it again. Messages are sent before
    the store is written; if a task is killed in between, they are sent twice.

    Args:
        context: context of the running task, which must have the cluster's state asset as an inlet.
        cluster: name in the clusters file.
        settings: settings from the clusters file; `alert_connection` must not be empty.
        model: class of the document with the open incidents; only this task writes the document.
        figures: lines of text with key figures for the messages.
        run: name of the run's folder; empty if there is none.
    """
    store, quiet = StateStore.of(context, cluster), timedelta(minutes=settings.alert_quiet_minutes)
    state = advance(store.readable(model), observed, now, run)
    pending = pending_messages(state, now, quiet)
    if pending:
        link = run_link(context)
        messages = [compose(cluster, message, figures, link) for message in pending]
        accepted = deliver(settings.alert_connection, messages)
        for message, taken in zip(pending, accepted, strict=False):
            if taken:
                state = delivered(state, message)
                _log.info("Sent the %s of %s", "end" if message.over else "start", message.condition)
    store.put(state)


def deliver(connection: str, messages: Sequence[AlertMessage]) -> list[bool]:
    """Send messages through an Apprise connection; errors are only logged, without secrets.

    Returns:
        For each message sent, True if at least one receiver accepted it.
    """
    try:
        taken, missed = send(connection, messages)
    except ImportError:
        _log.warning("Alerts need apache-airflow-providers-apprise: install pulsar-rebalancer[alerts]")
    except Exception as error:
        # The text of an unknown error may contain a URL with a secret.
        _log.warning("Alerts: connection %s cannot be used (%s)", connection, type(error).__name__)
    else:
        if missed or sum(taken) < len(messages):
            warning = "Alerts: %d of %d sent through connection %s. Failed: %s"
            _log.warning(warning, sum(taken), len(messages), connection, ", ".join(missed) or "none")
        return taken
    return []


def run_link(context: Context) -> str:
    """Return the URL of the current run in Airflow's UI."""
    base = str(conf.get("api", "base_url", fallback="") or "http://localhost:8080").rstrip("/")
    run = context["dag_run"]
    return f"{base}/dags/{quote(run.dag_id, safe='')}/runs/{quote(run.run_id, safe='')}"
