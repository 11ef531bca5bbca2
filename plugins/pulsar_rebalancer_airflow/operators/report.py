"""The end of a run, daily upkeep, the watch over the schedule, and the only task of a cluster with an invalid entry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from pydantic import JsonValue

from pulsar_rebalancer.carry_out import split_executor as splitting
from pulsar_rebalancer.carry_out.move_history import drop_destinations, moves_state_to_keep
from pulsar_rebalancer.config.clusters_file import RunSettings
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.orders.breaker import Breaker, Tally, advance_breaker, breaker_closed_at
from pulsar_rebalancer.orders.in_force import FILE_ONLY_SETTINGS
from pulsar_rebalancer.orders.manual_plans import Answers, Question
from pulsar_rebalancer.orders.order import Control
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import MAX_RETURN_TRIES, BundleClientGaps, Outcome, conclude_run, failed_moves
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.retention import NeededData, maintain_storage
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.show import words
from pulsar_rebalancer.show.alert_conditions import Condition, Observation
from pulsar_rebalancer.show.incidents import AlertsState, WatchState
from pulsar_rebalancer.show.measurements import outcome_text
from pulsar_rebalancer.state import SETTLED, DecisionState, MovesState
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.notifications import send_metrics, send_order_metrics, send_run_alerts, update_alerts
from pulsar_rebalancer_airflow.operators.bases import ClusterOperator, RunOperator, is_retry
from pulsar_rebalancer_airflow.options import NOTE, current_xcom, fail_unless_temporary, run_folder, storage_of
from pulsar_rebalancer_airflow.state_store import StateStore, moves_alias, moves_asset, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReportOperator(RunOperator):
    """Write `outcome.json`, tidy the unload history, and send alerts and metrics.

    If a bundle was moved, the task creates an asset event that can start other DAGs. The task is a teardown: it
    always runs, and its failure does not fail the run. A retry writes the same files again, and keeps all outcomes.
    The task's XCom is the number of moves by outcome. `gate` is the gate's task id. `settings` are None to switch
    off alerts and the circuit breaker.
    """

    def __init__(self, *, cluster: str, gate: str, settings: Settings | None = None, **kwargs: Any) -> None:
        super().__init__(cluster=cluster, outlets=[moves_alias(cluster)], **kwargs)
        self.gate = gate
        self.settings = settings

    def execute(self, context: Context) -> dict[str, int]:
        """Report the run's outcome, and return the number of moves by reason code.

        Raises RebalancerError: `foreign_run`, or one of the run's files or the stored history cannot be read.
        """
        run: StoragePath | None = None
        outcome: Outcome | None = None
        try:
            if not self.run:
                self.log.info("Cluster %s: the run collected no data", self.cluster)
                return {}
            run = run_folder(context, self.cluster, self.run)
            outcome = self._write_outcome(context, run)
            return {str(reason): count for reason, count in outcome.move_counts.items()}
        finally:
            send_metrics(self.cluster, run, outcome)
            if self.settings is not None:
                send_order_metrics(context, self.cluster, self.settings)
                send_run_alerts(context, self.cluster, self.settings, run.uri if run else None)

    def _write_outcome(self, context: Context, run: StoragePath) -> Outcome:
        now, store = datetime.now(UTC), self._state_store(context)
        request, earlier, stored = RunRequest.read(run), Outcome.read_if_exists(run), store.get(MovesState)
        history = drop_destinations(stored, Snapshot(run).owners(stored.kept_destinations), request.collected_at, now)
        gate = Reason.get(str(current_xcom(context, self.gate, "reason") or ""))
        kept = {bundle: record.destination for bundle, record in history.kept_destinations.items()}
        outcome = conclude_run(run, gate, now, kept)
        outcome = outcome.model_copy(update={"in_force": self._orders_text(context, store, request.resolved)})
        settings = request.resolved.settings
        # `Unload.tries` counts runs in a row: a record must outlast the intervals between them. What strategies learn
        # pauses for `SETTLED` minutes after a move.
        shortest = max(settings.shedding_delay_seconds, MAX_RETURN_TRIES * settings.interval_seconds) / 60
        grace = max(settings.grace_period_minutes, shortest, SETTLED)
        counted_at = store.get(DecisionState).counted_at
        splits = splitting.splits_to_keep(history.splits, outcome, now, counted_at)
        history = moves_state_to_keep(history.model_copy(update={"splits": splits}), outcome, now, grace)
        if history != stored:
            store.put(history)
        self.log.info("%s", outcome_text(outcome, run))
        self._store_client_gaps(outcome, earlier)
        # One event per plan. Airflow drops the events of an attempt that fails, so a retry adds it again.
        if _has_changes(outcome) and (is_retry(context, self) or not (earlier and _has_changes(earlier))):
            extra: dict[str, JsonValue] = {
                "cluster": self.cluster,
                "plan_id": run.name,
                "run": run.uri,
                "moved": outcome.moved_count,
                "split": outcome.split_count,
            }
            context["outlet_events"][moves_alias(self.cluster)].add(moves_asset(self.cluster), extra=extra)
        if self.settings is not None and self.settings.breaker is not None:
            closed = breaker_closed_at(store.peek(Control))
            failed = failed_moves(outcome.moves, stored.unloads, closed)
            seen = _breaker_tally(run, request, outcome, earlier, failed)
            if earlier is None or seen.failed_moves or seen.has_moved:
                # A retry has the same name, so what an earlier attempt has counted is not counted again.
                counted = f"{run.name} {outcome.moved_count} {len(failed)}"
                present = store.get(Breaker)
                changed = advance_breaker(present, self.settings.breaker, seen, now, counted, closed)
                if changed != present:
                    store.put(changed)
        if told := words.changes_text(outcome, Summary.read_or_none(run)):
            context["ti"].xcom_push(key=NOTE, value=told)  # the plugin's listener adds it to the run's note
        # Written last, because it shows which moves have been counted.
        outcome.write(run)
        return outcome

    def _store_client_gaps(self, outcome: Outcome, earlier_outcome: Outcome | None) -> None:
        """Store how the moves affected clients, for later manual plans that move the same bundles; only log errors."""
        fresh = set(outcome.moves).difference(earlier_outcome.moves if earlier_outcome else ())
        gaps = {move.bundle: move.client_gap for move in fresh if move.attempts}
        folder = storage_of(self.cluster).state
        try:
            if gaps:
                self._last_client_gaps(folder).with_gaps(gaps, outcome.ended_at).write(folder)
        except SnapshotError as error:
            self.log.warning("Client gaps of this run were not stored, so later manual plans lack them: %s", error)

    def _last_client_gaps(self, folder: StoragePath) -> BundleClientGaps:
        try:
            return BundleClientGaps.read_if_exists(folder) or BundleClientGaps()
        except SnapshotError as error:
            if error.reason is not Reason.FILE_DAMAGED:
                raise
            self.log.warning("The stored client gaps of earlier runs are lost: %s", error)
            return BundleClientGaps()

    def _orders_text(self, context: Context, store: StateStore, run_settings: RunSettings) -> str:
        settings = run_settings.settings
        if self.settings is not None:
            settings = settings.model_copy(update={name: getattr(self.settings, name) for name in FILE_ONLY_SETTINGS})
        return store.orders_text(settings, context["dag_run"].start_date, run_settings.origins)


def _breaker_tally(
    run: StoragePath, request: RunRequest, outcome: Outcome, earlier_outcome: Outcome | None, failed_bundles: set[str]
) -> Tally:
    """Return what the circuit breaker counts: the moves that an earlier report has not reported yet."""
    reported = {move.bundle for move in earlier_outcome.moves if move.counts_as_failed} if earlier_outcome else set()
    validation = Validation.read(run) if (run / "validation.json").exists() else None
    summary = Summary.read(run) if (run / "plan" / "summary.json").exists() else None
    return Tally(
        bad_broker_count=_bad_broker_count(validation) if validation else None,
        failed_moves=len(failed_bundles - reported),
        has_moved=outcome.moved_count > (earlier_outcome.moved_count if earlier_outcome else 0),
        range_before_moves=summary.score_range if summary else None,
        measured_after=request.collected_at - timedelta(minutes=request.resolved.settings.host_usage_interval_minutes),
        broker_count=summary.brokers if summary else 0,
    )


def _bad_broker_count(validation: Validation) -> int:
    # Bundle names contain a slash.
    return sum("/" not in name and not why.has(Trait.EXPECTED) for name, why in validation.quarantine_reasons.items())


def _has_changes(outcome: Outcome) -> bool:
    return bool(outcome.moved_count or outcome.split_count)


class MaintainOperator(ClusterOperator):
    """Compact and delete a cluster's old files. The task's XCom is a report with file counts and sizes in bytes.

    A scheduled run changes files. A manual run only reports what it would change, unless its parameter `dry_run` is
    off. A retry continues where the last attempt stopped. The state store is read but never written.
    """

    def execute(self, context: Context) -> dict[str, JsonValue]:
        """Compact and delete files.

        Raises:
            AirflowFailException: the state is lost, or the last committed plan cannot be read (then nothing is deleted,
                because any file could be in use), or a day's history is damaged (all other days are processed).
        """
        dry_run = context["dag_run"].run_type != "scheduled" and bool(context["params"]["dry_run"])
        with fail_unless_temporary():
            store, storage = self._state_store(context), self.storage
            plans, now = {store.get(Question).plan_id, *store.get(Answers).plans}, datetime.now(UTC)
            needed = NeededData.read(storage, store.get(DecisionState), plans, now)
            report = maintain_storage(storage, self.entry.settings, needed, now, dry_run=dry_run)
        self.log.info("Upkeep of cluster %s:\n%s", self.entry.name, report.text_table())
        if report.problems:
            context["ti"].xcom_push("return_value", report.json_document())
            raise AirflowFailException("; ".join(report.problems))
        return report.json_document()


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
        store = StateStore.from_context(context, self.cluster)
        last = store.peek(AlertsState).run_at
        if last is not None and last > now:
            last = None  # the clock has since been set back; waiting for that time would suppress alerts
        since = last or min(store.peek(WatchState).began_at or now, now)
        seconds = (now - since).total_seconds()
        limit = self.settings.alert_after_intervals * self.settings.interval_seconds
        text = f"last run ended {since:%Y-%m-%d %H:%M:%S %Z}" if last else "no run has ended yet"
        self.log.info("Cluster %s: %s; %.0f s have passed, alert after %.0f s", self.cluster, text, seconds, limit)
        seen = Observation(
            seconds > limit, {Reason.NO_RUN: 1}, f"{text}; interval {self.settings.interval_seconds:g} s"
        )
        if self.settings.mode is Mode.OFF:
            seen = Observation(False, why_unwatched=Reason.MODE_OFF)
        values = [f"seconds since a run last ended: {seconds:.0f}, limit {limit:.0f}"]
        update_alerts(context, self.cluster, self.settings, WatchState, {Condition.NO_RUN: seen}, values, now)
        return seconds


class RefuseOperator(BaseOperator):
    """Fail, and report the error in the entry and the remedy. There are no retries, which would fail as well."""

    def __init__(self, *, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> None:
        raise AirflowFailException(self.reason)
