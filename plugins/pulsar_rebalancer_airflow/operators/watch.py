"""Watch: check whether a run of the cluster has ended recently."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alerts.alert_conditions import Condition, Observation
from pulsar_rebalancer.show.alerts.incidents import AlertsState, WatchState
from pulsar_rebalancer_airflow.notifications.alerting import tell
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_rebalancer.config.settings import Settings


class WatchOperator(BaseOperator):
    """Alert people when no run has ended for several intervals, and again once a run has ended.

    The task needs its own DAG, because a run that does not start, hangs or times out sends no alert. Before the first
    run, the time is measured from the first check. A retry checks again, but sends no alert twice.
    """

    def __init__(self, *, cluster: str, settings: Settings, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(cluster)])
        self.cluster = cluster
        self.settings = settings

    def execute(self, context: Context) -> float:
        """Check the cluster, send alerts, and return the seconds since the last run ended."""
        now = datetime.now(UTC)
        store = StateStore.of(context, self.cluster)
        last = store.readable(AlertsState).run_at
        if last is not None and last > now:
            last = None  # the clock has since been set back; waiting for that time would suppress alerts
        since = last or min(store.readable(WatchState).began_at or now, now)
        seconds = (now - since).total_seconds()
        limit = self.settings.alert_after_intervals * self.settings.interval_seconds
        said = f"last run ended {since:%Y-%m-%d %H:%M:%S %Z}" if last else "no run has ended yet"
        self.log.info("Cluster %s: %s, %.0f s ago; alert after %.0f s", self.cluster, said, seconds, limit)
        seen = Observation(
            seconds > limit, {Reason.NO_RUN: 1}, f"{said}; interval {self.settings.interval_seconds:g} s"
        )
        if self.settings.mode is Mode.OFF:
            seen = Observation(False, unwatched=Reason.MODE_OFF)
        figures = [f"seconds without the end of a run: {seconds:.0f}, limit {limit:.0f}"]
        tell(context, self.cluster, self.settings, WatchState, {Condition.NO_RUN: seen}, figures, now)
        return seconds
