"""Alerts to operators, and metrics for monitoring systems."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseHook, BaseNotifier
from airflow.sdk.configuration import conf
from airflow.sdk.log import mask_secret
from airflow.sdk.observability import stats

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.in_force import all_holds
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.show.alert_conditions import (
    BEFORE_UNLOAD,
    Condition,
    EndedRun,
    Observation,
    judge_run,
    roll_end_condition,
)
from pulsar_rebalancer.show.incidents import (
    AlertMessage,
    AlertsState,
    Incident,
    PendingMessage,
    WatchState,
    make_message,
    pending_messages,
    record_delivery,
    run_value_lines,
    update_state,
)
from pulsar_rebalancer.show.measurements import METRIC_PREFIX, Measurement, measure_orders, run_measurements
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import load_clusters
from pulsar_rebalancer_airflow.options import FAILURE, clusters_file, current_xcom, storage_root
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context


SEND_TIMEOUT_SECONDS = 10.0
"""Maximum time that a run spends on sending alerts, for all messages and receivers together."""

_URL_LOGGERS = ("apprise", "urllib3")
"""Loggers that write parts of URLs, which can contain secrets."""


def send_messages(connection: str, messages: Sequence[AlertMessage]) -> tuple[list[bool], list[str]]:
    """Send messages in order, each to all receivers at the same time, until a time limit is reached.

    The notifier of Airflow's Apprise provider is not used: it drops Apprise's result and has no timeout. A receiver
    that does not answer in time occupies one of the task's threads until the task ends. Return, for each message
    sent, whether a receiver accepted it; and the kinds of receivers that did not accept every message, without
    URLs, which can contain secrets. An error's message can contain a secret, too.
    """
    from apprise import Apprise, NotifyFormat

    for name in _URL_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    service = Apprise()
    missed = {"a receiver without a usable URL" for url in receiver_urls(connection) if not service.add(url)}
    until, taken = time.monotonic() + SEND_TIMEOUT_SECONDS, []
    for message in messages:
        left = until - time.monotonic()
        if left <= 0:
            break
        result = service.notify(
            title=message.title,
            body=message.body,
            notify_type=message.kind,
            body_format=NotifyFormat.TEXT,
            timeout=left,
        )
        missed |= {answer.name for answer in result if not answer}
        taken.append(result.success_count > 0)
    return taken, sorted(missed)


def receiver_urls(connection: str) -> list[str]:
    from airflow.providers.apprise.hooks.apprise import AppriseHook

    config: Any = AppriseHook(connection).get_config_from_conn(BaseHook.get_connection(connection))
    urls = [str(entry["path"]) for entry in (config if isinstance(config, list) else [config])]
    for url in urls:
        mask_secret(url)
    return urls


QUIET_PERIOD = timedelta(minutes=5)
"""Time for which a condition must be absent before it is reported as resolved."""

_log = logging.getLogger(__name__)


def send_run_alerts(context: Context, cluster: str, settings: Settings, run_address: str | None) -> None:
    """Send alerts about the current run. Errors are only logged, because alerts must not fail a run.

    The settings are those without the run's overrides; `run_address` is None if nothing was collected.
    """
    try:
        store, now = StateStore.from_context(context, cluster), datetime.now(UTC)
        if not settings.alert_connection:
            _drop_incidents(store)
            return
        folder = StoragePath(run_address) if run_address else None
        ended = replace(_ended_run(context, now), closed=_breaker_reason(store, settings, now), roll=store.peek(Roll))
        if folder is not None:
            ended = ended.with_documents(folder)
        incidents = store.peek(AlertsState).incidents
        last_seen = {condition: incident.seen_at for condition, incident in incidents.items()}
        observed = judge_run(ended, settings, last_seen, now)
        run_name = folder.name if folder else ""
        update_alerts(context, cluster, settings, AlertsState, observed, run_value_lines(ended), now, run=run_name)
    except Exception as error:
        _log.warning("Alerts: the messages of this run could not be sent (%s)", type(error).__name__)


def _breaker_reason(store: StateStore, settings: Settings, now: datetime) -> dict[Reason, str]:
    closed = all_holds(settings, store.orders(), now)
    return {closing.reason: closing.detail for closing in closed if closing.reason is Reason.BREAKER_OPEN}


def _drop_incidents(store: StateStore) -> None:
    """Drop open incidents, because alerts are off; later they are reported as new."""
    for model in (AlertsState, WatchState):
        if store.peek(model).incidents:
            store.put(model())


def _ended_run(context: Context, now: datetime) -> EndedRun:
    ti, dag_run = context["ti"], context["dag_run"]
    states = ti.get_task_states(dag_id=dag_run.dag_id, run_ids=[dag_run.run_id]).get(dag_run.run_id, {})
    failures = {task: current_xcom(context, task, FAILURE) for task in BEFORE_UNLOAD if states.get(task) == "failed"}
    started = dag_run.start_date
    return EndedRun(
        states={task: str(state) for task, state in states.items()},
        failures={task: reason for task, reason in failures.items() if isinstance(reason, str)},
        duration_s=(now - started.astimezone(UTC)).total_seconds() if started else None,
        is_manual=dag_run.run_type != "scheduled",
    )


def update_alerts(
    context: Context,
    cluster: str,
    settings: Settings,
    model: type[AlertsState],
    observations: Mapping[Condition, Observation],
    value_lines: Sequence[str],
    now: datetime,
    *,
    run: str = "",
) -> None:
    """Send a message for every incident that has started or ended, and store the open incidents.

    A message that no receiver accepted is sent again by the next run. Messages are sent before the store is
    written; if a task is killed in between, they are sent twice.

    Args:
        model: class of the document with the open incidents; only this task writes the document.
        value_lines: lines of text with key values for the messages.
        run: name of the run's folder; empty if there is none.
    """
    store = StateStore.from_context(context, cluster)
    state = update_state(store.peek(model), observations, now, run)
    pending = pending_messages(state, now, QUIET_PERIOD)
    if pending:
        link = run_link(context)
        messages = [make_message(cluster, message, value_lines, link) for message in pending]
        accepted = deliver_messages(settings.alert_connection, messages)
        for message, taken in zip(pending, accepted, strict=False):
            if taken:
                state = record_delivery(state, message)
                _log.info("Alert sent: condition %s %s", message.condition, "ended" if message.is_over else "started")
    store.put(state)


def deliver_messages(connection: str, messages: Sequence[AlertMessage]) -> list[bool]:
    """Send messages, and return whether a receiver accepted each. Errors are only logged, without secrets."""
    try:
        taken, missed = send_messages(connection, messages)
    except ImportError:
        _log.warning("Alerts need apache-airflow-providers-apprise: install pulsar-rebalancer[alerts]")
    except Exception as error:
        # The text of an unknown error may contain a URL with a secret.
        _log.warning("Alerts: connection %s cannot be used (%s)", connection, type(error).__name__)
    else:
        if missed or sum(taken) < len(messages):
            warning = "Alerts: %d of %d messages sent through connection %s. Failed receivers: %s"
            _log.warning(warning, sum(taken), len(messages), connection, ", ".join(missed) or "none")
        return taken
    return []


def run_link(context: Context) -> str:
    base = str(conf.get("api", "base_url", fallback="") or "http://localhost:8080").rstrip("/")
    run = context["dag_run"]
    return f"{base}/dags/{quote(run.dag_id, safe='')}/runs/{quote(run.run_id, safe='')}"


def send_roll_alerts(context: Context, entry: ClusterEntry, roll: Roll) -> Roll:
    """Send the messages that are due, and return the document with an updated `asked` and `untold`.

    A restart request, or the end of one, that no receiver accepted is sent again when the roll next changes. A message
    about the roll's end is left to the *report* task then.
    """
    changes: dict[str, object] = {}
    asked = roll.broker if roll.may_restart and not entry.settings.roll_restart_dag else ""
    if roll.asked and roll.asked not in (asked, roll.stranded):
        reason = Reason.ROLL_STOPPED if _has_skipped_broker(roll) else Reason.ROLLING
        if _send_roll_alert(context, entry, roll, Condition.ROLL_ASKS, reason, is_over=True):
            changes["asked"] = ""
    elif asked and not roll.asked and _send_roll_alert(context, entry, roll, Condition.ROLL_ASKS, Reason.ROLLING):
        changes["asked"] = asked
    if roll.ended and (end := roll_end_condition(roll)):
        changes["untold"] = not _send_roll_alert(context, entry, roll, end, roll.ended)
    return roll.model_copy(update=changes)


def _has_skipped_broker(roll: Roll) -> bool:
    outcome = roll.outcome if roll.broker == roll.asked else roll.done.get(roll.asked)
    return outcome is Reason.ROLL_STOPPED


def _send_roll_alert(
    context: Context, entry: ClusterEntry, roll: Roll, condition: Condition, reason: Reason, *, is_over: bool = False
) -> bool:
    connection, now = entry.settings.alert_connection, datetime.now(UTC)
    if not connection:
        return True
    detail = f"{roll.asked} no longer needs a restart" if is_over else roll.progress
    incident = Incident(since=roll.since or now, seen_at=now, reasons={reason: 1}, detail=detail)
    message = make_message(entry.name, PendingMessage(condition, is_over, incident), [roll.progress], run_link(context))
    return any(deliver_messages(connection, [message]))


_METRIC_OPTIONS = ("statsd_on", "statsd_datadog_enabled", "otel_on")


def send_metrics(cluster: str, run: StoragePath | None, outcome: Outcome | None) -> None:
    """Send a run's metrics if a metrics system is configured; only log errors, which must not fail a run.

    If the *report* task is cleared, the run is counted again. `run` is None if nothing was collected.
    """
    _send_measurements(_run_measurements(cluster, run, outcome))


def send_order_metrics(context: Context, cluster: str, settings: Settings) -> None:
    """Send metrics about current orders if a metrics system is configured, from a task that can change them.

    Errors are only logged. Nothing is sent while the state is lost.
    """
    _send_measurements(_order_measurements(context, cluster, settings))


def _send_measurements(measurements: Iterator[Measurement]) -> None:
    if not any(conf.getboolean("metrics", system) for system in _METRIC_OPTIONS):
        return
    try:
        for measurement in measurements:
            name, labels = METRIC_PREFIX + measurement.name, dict(measurement.labels)
            if measurement.is_counter:
                stats.incr(name, int(measurement.value), tags=labels)
            else:
                stats.gauge(name, measurement.value, tags=labels)
    except Exception as error:
        _log.warning("Metrics: sending failed, so this run's remaining metrics are lost (%s)", type(error).__name__)


def _order_measurements(context: Context, cluster: str, settings: Settings) -> Iterator[Measurement]:
    orders = StateStore.from_context(context, cluster).orders()
    if not orders.lost_text:
        yield from measure_orders(cluster, settings, orders, datetime.now(UTC))


def _run_measurements(cluster: str, run: StoragePath | None, outcome: Outcome | None) -> Iterator[Measurement]:
    yield from run_measurements(cluster, run, outcome)
    running = {entry.name for entry in load_clusters(clusters_file()) if entry.settings.mode is not Mode.OFF}
    for name in set(StoragePath(storage_root()).entry_names()) - running:
        yield Measurement.create("interval_seconds", 0, cluster=name)  # 0: the monitoring system must not expect runs


class AlertNotifier(BaseNotifier):
    """Send a message to every receiver of an Apprise connection, like the package's own alerts.

    Errors are only logged, without the receivers' URLs, which can contain secrets. The title is one line, the
    body plain text; both are templated.
    """

    template_fields = ("title", "body")

    def __init__(self, *, title: str, body: str, alert_connection: str = "alerts") -> None:
        super().__init__()
        self.title = title
        self.body = body
        self.alert_connection = alert_connection

    def notify(self, context: Context) -> None:
        """Send the message; receivers show it as a failure."""
        deliver_messages(self.alert_connection, [AlertMessage(self.title, self.body, "failure")])
