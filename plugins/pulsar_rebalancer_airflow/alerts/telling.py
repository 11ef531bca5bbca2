"""What a task does to tell people: from sightings and the stored conditions to messages, and back into the store."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk.configuration import conf

from pulsar_rebalancer.alert_text import compose
from pulsar_rebalancer.alerts import advance, delivered, due
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer_airflow.alerts.ending import read_ended
from pulsar_rebalancer_airflow.alerts.sightings import figures_of, sightings_of
from pulsar_rebalancer_airflow.state_store import ALERTS, StateStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.alerts import AlertsState, Condition, Due, Seen
    from pulsar_rebalancer.settings import Settings

_log = logging.getLogger(__name__)


def run_link(context: Context) -> str:
    """Address of the run in Airflow's UI."""
    base = str(conf.get("api", "base_url", fallback="") or "http://localhost:8080").rstrip("/")
    run = context["dag_run"]
    return f"{base}/dags/{quote(run.dag_id, safe='')}/runs/{quote(run.run_id, safe='')}"


def tell_of_run(context: Context, cluster: str, settings: Settings, run: str | None) -> None:
    """Tell what the run of a context shows. Whatever goes wrong is a warning and does the run no harm.

    Args:
        context: of the task that reports.
        cluster: name in the clusters file.
        settings: of the clusters file.
        run: address of the run's folder; None when nothing was collected.
    """
    if not settings.alert_connection:
        return
    try:
        now = datetime.now(UTC)
        ended = read_ended(context, run, now)
        name = Folder(run).name if run else ""
        tell(context, cluster, settings, ALERTS, sightings_of(ended, settings), figures_of(ended), now, run=name)
    except Exception as error:
        _log.warning("Alerts: nothing could be told of this run (%s)", type(error).__name__)


def tell(
    context: Context,
    cluster: str,
    settings: Settings,
    key: str,
    sightings: Mapping[Condition, Seen | None],
    figures: Sequence[str],
    now: datetime,
    *,
    run: str = "",
) -> None:
    """Tell what started and what is over, and store what is open.

    What a receiver did not take is stored as untold, so a later run tells it. The store is written after the messages
    were sent: a task that dies in between tells them once more.

    Args:
        context: of the running task; the cluster's state asset is one of its inlets.
        cluster: name in the clusters file.
        settings: of the clusters file; `alert_connection` is not empty.
        key: of the document whose only writer the task is.
        sightings: what was seen.
        figures: lines for the messages.
        now: the present.
        run: name of the run's folder; empty when it has none.
    """
    store, quiet = StateStore.of(context, cluster), timedelta(minutes=settings.alert_quiet_minutes)
    state = advance(store.alerts(key), sightings, now, run)
    waiting = due(state, now, quiet)
    if waiting:
        state = _send(context, settings.alert_connection, state, waiting, cluster, figures, now)
    store.put_alerts(state, key)


def _send(
    context: Context,
    connection: str,
    state: AlertsState,
    waiting: Sequence[Due],
    cluster: str,
    figures: Sequence[str],
    now: datetime,
) -> AlertsState:
    # Apprise is optional, and only whoever has something to tell pays for loading it.
    from pulsar_rebalancer_airflow.alerts.notifier import AlertNotifier, UndeliveredError

    link = run_link(context)
    messages = [(compose(cluster, message, figures, link), message.reached) for message in waiting]
    notifier = AlertNotifier(connection=connection, messages=messages)
    try:
        notifier.notify(context)
    except UndeliveredError as error:
        _log.warning("Alerts through connection %s: %s. What they missed is tried again later", connection, error)
    except ImportError:
        _log.warning("Alerts need apache-airflow-providers-apprise: install pulsar-rebalancer[alerts]")
    except Exception as error:
        # The text of an unknown error may hold an URL, and that a secret.
        _log.warning("Alerts: connection %s cannot be used (%s)", connection, type(error).__name__)
    for number, message in enumerate(waiting):
        complete = notifier.complete(number)
        state = delivered(state, message, notifier.reached[number], now, complete=complete)
        if complete:
            _log.info("Told %s of %s", "the end" if message.over else "the start", message.condition)
    return state
