"""Daily upkeep, the watch over the schedule, and the only task of a cluster with an invalid entry."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from pydantic import JsonValue

from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.maintenance.retention import Needed, maintain
from pulsar_rebalancer.orders.manual_plans import Answers, Question
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alert_conditions import Condition, Observation
from pulsar_rebalancer.show.incidents import AlertsState, WatchState
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.notifications import tell
from pulsar_rebalancer_airflow.operators.bases import ClusterOperator
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context


class MaintainOperator(ClusterOperator):
    """Compact and delete a cluster's old files. The task's XCom is a report with file counts and sizes in bytes.

    A scheduled run changes files. A manual run only reports what it would change, unless its parameter `dry_run` is
    off. A retry continues where the last attempt stopped. The state store is read but never written.
    """

    def execute(self, context: Context) -> dict[str, JsonValue]:
        """Compact and delete files.

        Raises:
            AirflowFailException: the state is lost, or the last committed plan cannot be read (then nothing
                is deleted, because any file could be in use), or a day's history is damaged (all other days
                are processed).
        """
        dry_run = context["dag_run"].run_type != "scheduled" and bool(context["params"]["dry_run"])
        with final_unless_passing():
            store, storage = self._store(context), self.storage
            plans, now = {store.get(Question).plan_id, *store.get(Answers).plans}, datetime.now(UTC)
            needed = Needed.read(storage, store.get(DecisionState), plans, now)
            report = maintain(storage, self.entry.settings, needed, now, dry_run=dry_run)
        self.log.info("Upkeep of cluster %s:\n%s", self.entry.name, report.table())
        if report.problems:
            context["ti"].xcom_push("return_value", report.document())
            raise AirflowFailException("; ".join(report.problems))
        return report.document()


class WatchOperator(BaseOperator):
    """Alert operators when no run has ended for several intervals, and again once a run has ended.

    The task needs its own DAG, because a run that does not start, hangs or times out sends no alert. Before
    the first run, the time is measured from the first check. A retry sends no alert twice.
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
        values = [f"seconds without the end of a run: {seconds:.0f}, limit {limit:.0f}"]
        tell(context, self.cluster, self.settings, WatchState, {Condition.NO_RUN: seen}, values, now)
        return seconds


class RefuseOperator(BaseOperator):
    """Fail, and report the error in the entry and the remedy. There are no retries, which would fail as well."""

    def __init__(self, *, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> None:
        raise AirflowFailException(self.reason)
