"""Send a run's metrics to the metrics system configured in Airflow (StatsD, Datadog or OpenTelemetry)."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.measurements import PREFIX, Measurement, measure, measure_orders
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.fitting import load_clusters
from pulsar_rebalancer_airflow.locations import clusters_file, storage_of, storage_root
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import Context

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.outcome import Outcome

_log = logging.getLogger(__name__)

_SYSTEMS = ("statsd_on", "statsd_datadog_enabled", "otel_on")


def emit(cluster: str, run: StoragePath | None, outcome: Outcome | None) -> None:
    """Send a run's metrics; do nothing if no metrics system is configured.

    Errors are only logged, because metrics must not fail a run. If the *report* task is cleared, the run is counted
    again.

    Args:
        cluster: name in the clusters file.
        run: the run's folder; None if nothing was collected.
        outcome: the run's outcome; None if unknown.
    """
    _send(_measured(cluster, run, outcome))


def emit_orders(context: Context, cluster: str, settings: Settings) -> None:
    """Send metrics about a cluster's current orders; do nothing if no metrics system is configured.

    This function is for tasks that can change these orders. Errors are only logged. If drains or the rolling restart
    cannot be read, only their gauges are left out.

    Args:
        context: context of a task that has the cluster's state asset as an inlet.
        settings: settings from the clusters file.
    """
    _send(_in_force(context, cluster, settings))


def _send(measurements: Iterator[Measurement]) -> None:
    if not any(conf.getboolean("metrics", system) for system in _SYSTEMS):
        return
    try:
        for measurement in measurements:
            name, labels = PREFIX + measurement.name, dict(measurement.labels)
            if measurement.counter:
                stats.incr(name, int(measurement.value), tags=labels)
            else:
                stats.gauge(name, measurement.value, tags=labels)
    except Exception as error:
        _log.warning("Metrics: nothing more could be sent about this run (%s)", type(error).__name__)


def _in_force(context: Context, cluster: str, settings: Settings) -> Iterator[Measurement]:
    store, storage = StateStore.of(context, cluster), storage_of(cluster)
    drains, error = store.known_drained(storage)
    unknown = [] if error is None else ["brokers_drained"]
    if error is not None and error.reason is not Reason.DRAINS_UNREADABLE:
        unknown += ["roll_phase", "roll_brokers_left"]
    measurements = measure_orders(cluster, settings, store.told(storage, drains), datetime.now(UTC))
    yield from (measurement for measurement in measurements if measurement.name not in unknown)


def _measured(cluster: str, run: StoragePath | None, outcome: Outcome | None) -> Iterator[Measurement]:
    yield from measure(cluster, run, outcome)
    running = {entry.name for entry in load_clusters(clusters_file()) if entry.settings.mode is not Mode.OFF}
    for name in set(StoragePath(storage_root()).names()) - running:
        yield Measurement.of("interval_seconds", 0, cluster=name)  # 0: the monitoring system must not expect runs
