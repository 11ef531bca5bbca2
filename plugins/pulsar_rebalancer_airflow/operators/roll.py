"""Roll: show a rolling restart, or carry it out in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, AirflowTaskTimeout

from pulsar_rebalancer.carry_out.gate import require_second_person
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.decide import roll_plan
from pulsar_rebalancer.decide.rolling import RollFacts, RollSample, advance, why_turn_unsafe
from pulsar_rebalancer.errors import AdminError, PlanError, SettingsError, SnapshotError, StateError
from pulsar_rebalancer.orders.in_force import LASTING_REASONS, all_holds
from pulsar_rebalancer.orders.manual_plans import Drains, Question, answer_due
from pulsar_rebalancer.orders.order import Control, Hold, Situation
from pulsar_rebalancer.orders.roll_document import Phase, Roll, RollRequest, ShownRestarts, parse_roll_form
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.snapshot import Snapshot, latest_sample
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.hooks import PulsarAdminHook
from pulsar_rebalancer_airflow.notifications import send_order_metrics, send_roll_alerts
from pulsar_rebalancer_airflow.operators.bases import refuse_while_plan_waits, requesting_user
from pulsar_rebalancer_airflow.options import APPLY_DAG, REBALANCE_DAG, fail_unless_temporary
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context

_MIN_STUCK_INTERVALS = 5
"""Minimum number of intervals without progress before a rolling restart stops."""

_MAX_EXTRA_AGE = timedelta(minutes=3)
"""Time by which the age of the latest sample may exceed one interval."""


class RollOperator(BaseSensorOperator):
    """Show a rolling restart, or carry it out; only this task writes the `roll` document.

    A step reads the latest run's files and the stored documents, and stores the result with a single write.
    The task holds no slot between steps. A retry, even after a crash, resumes after the roll's last step.
    """

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, mode="reschedule", inlets=[state_asset(entry.name)])
        self.entry = entry
        self.storage = ClusterStorage(root, entry.name)

    def poke(self, context: Context) -> PokeReturnValue:
        """Take one step.

        Returns:
            Whether the task is done, and its XCom: the shown roll (`ShownRestarts`), or the outcome by broker. The
            XCom `elsewhere` says at the roll's end why bundles are not back, by broker.

        Raises:
            AirflowFailException: the form is invalid; the roll is refused (`unknown_name`, `last_broker`,
                `rolling`, `plan_under_way`, `other_plan`, …) or has stopped (`roll_stopped`, `roll_stuck`,
                `restart_failed`, `broker_not_back`).
        """
        with fail_unless_temporary(context):
            store = StateStore.from_context(context, self.entry.name)
            roll = store.get(Roll)
            if not self._is_continuation(context, roll):
                form = parse_roll_form(context["params"])
                if not form.plan:
                    return PokeReturnValue(True, self._show_plan(context, store, roll, form))
                roll = self._begin_roll(context, store, roll, form.plan)
                store.put(roll)
            after = advance(roll, self._roll_facts(context, store, roll)) if roll.is_active else roll
            if after != roll:
                after = send_roll_alerts(context, self.entry, after)
                store.put(after)
                send_order_metrics(context, self.entry.name, self.entry.settings)
            self.log.info("%s", after.progress)
            if not after.is_active:
                context["ti"].xcom_push(key="elsewhere", value=after.elsewhere)
            if after.ended not in (None, Reason.ROLLED):
                raise PlanError(after.ended, after.progress)
            return PokeReturnValue(not after.is_active, after.done)

    def _is_continuation(self, context: Context, roll: Roll) -> bool:
        ti = context["ti"]
        first = ti.max_tries - (self.retries or 0) + 1  # since the task was last cleared
        return roll.run_id == context["dag_run"].run_id and (roll.is_active or ti.try_number > first)

    def _show_plan(self, context: Context, store: StateStore, roll: Roll, form: RollRequest) -> dict[str, Any]:
        sample, now = self._latest_sample(), datetime.now(UTC)
        by = requesting_user(context)
        shown = roll_plan.roll_preview(sample, form.brokers, by, form.reason)
        try:
            planned = roll_plan.predict_restarts(sample, shown.order)
        except AirflowTaskTimeout as error:
            # A retry would take as long, and an active roll could take no step meanwhile.
            raise AirflowFailException("the dry run timed out: give fewer brokers") from error
        refused = "; ".join(f"{why.reason}: {why.message}" for why in self._roll_refusals(context, store, roll, now))
        closed = (f"{why.reason} {why.detail}" for why in self._holds(store, now) if why.reason not in LASTING_REASONS)
        waits = "; ".join(filter(None, [*closed, roll_plan.why_no_turn(sample)]))
        store.put(roll.model_copy(update={"shown": shown}))
        answer = ShownRestarts(plan=shown.id, refused=refused, waits=waits, restarts=tuple(planned))
        self.log.info("%s", roll_plan.roll_text(answer, form.reason, context["dag_run"].dag_id))
        return answer.model_dump(mode="json")

    def _begin_roll(self, context: Context, store: StateStore, roll: Roll, plan_id: str) -> Roll:
        now, shown, settings, run_id = datetime.now(UTC), roll.shown, self.entry.settings, context["dag_run"].run_id
        by = requesting_user(context)
        if roll.is_active:
            return self._take_over_roll(context, roll, plan_id, by)
        again = shown is not None and roll.at is not None and shown.at > roll.at and roll.run_id != run_id
        if roll.id == plan_id and not again:
            raise PlanError(Reason.PLAN_USED, f"{roll.progress} (run {roll.run_id})")
        if shown is None or shown.id != plan_id:
            raise PlanError(Reason.OTHER_PLAN, f"{plan_id[:16]} is not the id that the last dry run showed")
        age, limit = (now - shown.at).total_seconds(), settings.max_awaiting_minutes * 60
        if age > limit:
            raise PlanError(Reason.PLAN_EXPIRED, f"dry run {plan_id[:16]} is {age:.0f} s old; the limit is {limit:g} s")
        require_second_person(settings, shown.by, by, asks_second_person=False)
        for why in self._roll_refusals(context, store, roll, now):
            raise why
        sample = self._latest_sample()
        if roll_plan.roll_preview(sample, shown.order, shown.by, shown.reason).id != plan_id:
            raise PlanError(Reason.OTHER_PLAN, f"brokers joined, left or restarted after dry run {plan_id[:16]}")
        listed = tuple(broker.broker for broker in sample.read_broker_samples({}))
        self.log.warning("%s begins a rolling restart of %s: %s", by or "unknown", ", ".join(shown.order), shown.reason)
        return roll.started_roll(shown, run_id, listed, now, by, sample.folder.name)

    def _roll_refusals(self, context: Context, store: StateStore, roll: Roll, now: datetime) -> Iterator[PlanError]:
        if roll.is_active:
            yield PlanError(Reason.ROLLING, roll.progress)
            return
        if drained := store.orders().get(Drains).brokers:
            yield PlanError(Reason.DRAINING, f"release these brokers first: {', '.join(drained)[:500]}")
        for closed in self._holds(store, now):
            if closed.reason in LASTING_REASONS:
                yield PlanError(closed.reason, f"the rolling restart does not begin: {closed.detail}")
        try:
            refuse_while_plan_waits(context, f"{REBALANCE_DAG}{self.entry.name}", store)
        except PlanError as error:
            yield error
        if plan := self._hash_of_waiting_manual_plan(context, store, now):
            yield PlanError(Reason.PLAN_UNDER_WAY, f"manual plan {plan} waits for approval: approve or reject it first")
        if hindrance := self._why_no_restart(context):
            yield PlanError(Reason.RESTART_FAILED, f"the rolling restart needs {hindrance}")

    def _hash_of_waiting_manual_plan(self, context: Context, store: StateStore, now: datetime) -> str:
        question, at = store.get(Question), Situation(self.entry.settings, store.orders(), now)
        run = self.storage.run_folder(question.plan_id)
        if run is None or answer_due(at) is None:
            return ""
        ended = context["ti"].get_dr_count(
            f"{APPLY_DAG}{self.entry.name}", run_ids=[question.run_id], states=["success", "failed"]
        )
        summary = Summary.read_or_none(run)
        return question.hash[:16] if summary is not None and summary.by_hand is not None and not ended else ""

    def _take_over_roll(self, context: Context, roll: Roll, plan_id: str, giver: str) -> Roll:
        """Return the document of an active roll that this run continues, because the roll's own run no longer does."""
        run = context["dag_run"]
        goes_on = context["ti"].get_dr_count(run.dag_id, run_ids=[roll.run_id], states=["queued", "running"])
        if plan_id != roll.id or goes_on:
            raise PlanError(Reason.ROLLING, f"{roll.progress} (run {roll.run_id}, plan {roll.id})")
        self.log.warning(
            "Run %s (by %s) continues the rolling restart of run %s", run.run_id, giver or "unknown", roll.run_id
        )
        return roll.model_copy(update={"run_id": run.run_id})

    def _latest_sample(self) -> Snapshot:
        age = timedelta(seconds=self.entry.settings.interval_seconds) + _MAX_EXTRA_AGE
        return latest_sample(self.storage, datetime.now(UTC), age.total_seconds())

    def _roll_facts(self, context: Context, store: StateStore, roll: Roll) -> RollFacts:
        now, settings = datetime.now(UTC), self.entry.settings
        control, held = store.peek(Control), self._hold_text(store, now)
        # A roll that is held before a turn looks at no sample.
        seen, unknown = (None, held) if held and roll.phase is Phase.WAITING else self._roll_sample(store, roll)
        stop, skip = roll.stop_order(control), roll.skip_order(control)
        facts = RollFacts(
            now=now,
            max_wait_minutes=max(settings.roll_wait_minutes, _MIN_STUCK_INTERVALS * settings.interval_seconds / 60),
            sample=seen,
            why_no_sample=unknown,
            why_held=held,
            stop_order=stop,
            skip_order=skip,
            min_gap=timedelta(seconds=settings.interval_seconds / 2),
        )
        if not settings.roll_restart_dag:
            return facts
        hindrance, run_id = self._why_no_restart(context), _restart_run_id(roll)
        safe = seen is not None and not why_turn_unsafe(roll, seen)
        restart = self._restart_state(context, roll, run_id, may_start=safe and not (held or stop or skip or hindrance))
        dag = f"{settings.roll_restart_dag}, run {run_id}"
        return facts._replace(restart_state=restart, dag_and_run=dag, why_no_restart=hindrance)

    def _hold_text(self, store: StateStore, now: datetime) -> str:
        closed = self._holds(store, now)
        return f"permission: {closed[0].reason} {closed[0].detail}" if closed else ""

    def _holds(self, store: StateStore, now: datetime) -> list[Hold]:
        return all_holds(self.entry.settings, store.orders(), now)

    def _roll_sample(self, store: StateStore, roll: Roll) -> tuple[RollSample | None, str]:
        try:
            drained = store.get(Drains).brokers
            seen = roll_plan.roll_sample(self._latest_sample(), roll, drained)
            started = seen.start_times.get(roll.broker)
            to_restart = roll.phase is Phase.RESTARTING and started is not None and started == roll.started
            return (self._add_owned_bundles(roll, seen) if to_restart else seen), ""
        except (SnapshotError, StateError) as error:
            return None, f"a usable sample: {error.message}"

    def _add_owned_bundles(self, roll: Roll, sample: RollSample) -> RollSample:
        try:
            return roll_plan.add_arrived_bundles(sample, self.storage, roll, asyncio.run(self._owned_bundles(roll)))
        except (AdminError, SettingsError) as error:
            return sample._replace(problems={**sample.problems, roll.broker: error.reason})

    async def _owned_bundles(self, roll: Roll) -> set[str]:
        settings = self.entry.settings
        connection = PulsarAdminHook(settings.connection).get_connection_settings()
        async with PulsarAdmin(connection) as admin:
            admin.set_brokers(roll.listed)
            return await admin.reported_bundles(roll.broker)

    def _why_no_restart(self, context: Context) -> str:
        dag_id = self.entry.settings.roll_restart_dag
        if not dag_id:
            return ""
        try:
            paused = context["ti"].get_dag(dag_id).is_paused
        except AirflowRuntimeError as error:
            if not _is_refusal(error):
                raise
            return f"DAG {dag_id}, which Airflow does not know"
        return f"DAG {dag_id}, which is paused in Airflow" if paused else ""

    def _restart_state(self, context: Context, roll: Roll, run_id: str, *, may_start: bool) -> str:
        """Return the state of the broker's restart run, which `may_start` starts if missing; empty if none."""
        if roll.phase is not Phase.RESTARTING:
            return ""
        ti, dag_id = context["ti"], self.entry.settings.roll_restart_dag
        found = ti.get_dr_count(dag_id, run_ids=[run_id])
        if not found and may_start:
            try:
                _trigger_run(dag_id, run_id, {"broker": roll.broker, "roll": roll.id})
                self.log.info("Triggered %s, run %s, to restart %s", dag_id, run_id, roll.broker)
            except AirflowRuntimeError as error:
                self.log.warning("DAG %s could not be triggered: %s", dag_id, error)
                if _is_refusal(error):
                    return "failed"
            found = ti.get_dr_count(dag_id, run_ids=[run_id])
        if not found:
            return ""
        states = ("failed", "success")
        return next((state for state in states if ti.get_dr_count(dag_id, run_ids=[run_id], states=[state])), "running")


def _restart_run_id(roll: Roll) -> str:
    return f"roll__{roll.at:%Y%m%dT%H%M%S}__{roll.id[:16]}__{len(roll.done)}"


def _is_refusal(error: AirflowRuntimeError) -> bool:
    """Return whether Airflow has refused a request for good. After any other error, it may even have done it."""
    return (error.error.detail or {}).get("status_code") in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)


def _trigger_run(dag_id: str, run_id: str, conf: dict[str, str]) -> None:
    # TriggerDagRunOperator ends its task when it triggers a run; this task continues.
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import TriggerDagRun

    task_runner.SUPERVISOR_COMMS.send(TriggerDagRun(dag_id=dag_id, run_id=run_id, conf=conf))
