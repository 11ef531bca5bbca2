"""Manual plans. A plan is shown first; a person then hands it over to a rebalancing run, giving its hash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.branch import BaseBranchOperator
from airflow.sdk import BaseOperator

from pulsar_rebalancer.carry_out.gate import require_second_person
from pulsar_rebalancer.collect.split_candidates import read_candidate
from pulsar_rebalancer.config.clusters_file import RunParams
from pulsar_rebalancer.config.field_types import Action
from pulsar_rebalancer.decide.plan_files import plan_document, plan_text
from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.decide.run_plan import plan_request
from pulsar_rebalancer.decide.sources.requested import bundle_to_split
from pulsar_rebalancer.errors import PlanError, field_error
from pulsar_rebalancer.orders.manual_plans import (
    Answers,
    Drain,
    Drains,
    HandedOverPlan,
    HandedOverPlans,
    ShownPlan,
    ShownPlans,
)
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import BundleClientGaps, Outcome, read_move_outcomes
from pulsar_rebalancer.run.plan import RUN_TIMEOUT, Summary, outcome_by_split, read_moves
from pulsar_rebalancer.run.request import PlanRequest, RunRequest, parse_form
from pulsar_rebalancer.run.snapshot import Snapshot, SplitCandidates, StateBefore
from pulsar_rebalancer.storage.documents import ClusterStorage, time_of
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import capitalized
from pulsar_rebalancer_airflow.hooks import PulsarAdminHook
from pulsar_rebalancer_airflow.notifications import send_order_metrics
from pulsar_rebalancer_airflow.operators.bases import (
    HandOverOperator,
    cancelled_runs,
    new_run_id,
    plan_refusal,
    refuse_cleared_task,
    refuse_while_plan_waits,
    requesting_user,
)
from pulsar_rebalancer_airflow.operators.collect import CollectOperator
from pulsar_rebalancer_airflow.options import fail_unless_temporary, run_folder
from pulsar_rebalancer_airflow.state_store import StateStore, StoredState, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context


class FormOperator(BaseBranchOperator):
    """Reject an invalid form; otherwise choose the next task. A retry returns the same result.

    `show_task` is the id of the first task for making a plan, `act_task` of the task for acting immediately.
    """

    def __init__(self, *, cluster: str, show_task: str, act_task: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(cluster)])
        self.cluster = cluster
        self.shows = show_task
        self.acts = act_task

    def choose_branch(self, context: Context) -> str:
        """Return the id of the next task. Raises `wrong_setting` with the wrong fields, or `rolling`."""
        with fail_unless_temporary(context):
            shows = parse_form(context["params"]).only_shows_plan
            if shows:
                refuse_while_rolling(StateStore.from_context(context, self.cluster))
            return self.shows if shows else self.acts


def refuse_undrained_brokers(store: StoredState, brokers: Iterable[str]) -> None:
    """Raise SettingsError `not_drained` unless all brokers are drained, by a person or a roll that has stopped."""
    drained = {*store.get(Drains).brokers, store.get(Roll).stranded} - {""}
    if others := ", ".join(name for name in brokers if name not in drained):
        text = f"These brokers are not drained: {others}. Drained brokers: {', '.join(sorted(drained)) or 'none'}."
        raise field_error(Reason.NOT_DRAINED, "broker", text)


def refuse_while_rolling(store: StateStore) -> None:
    """Raise PlanError `rolling` during a rolling restart, which would refuse to have the plan carried out."""
    roll = store.get(Roll)
    if roll.is_active:
        raise PlanError(Reason.ROLLING, roll.progress)


class CollectForPlanOperator(CollectOperator):
    """Collect the sample for a manual plan. No run parameters are read, because the form has none."""

    only_shows = True

    def _run_params(self, context: Context) -> RunParams:
        return RunParams()


class PlanByHandOperator(BaseOperator):
    """Make and show the plan that a person requested in the form. Nothing is moved.

    The plan is written under the run's folder. Its hash is kept in the state store for as long as the plan
    may be carried out. A retry makes the same plan from the same snapshot. The XCom is the plan as shown.
    """

    template_fields: Sequence[str] = ("root", "run")

    def __init__(self, *, cluster: str, root: str, run: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(cluster)])
        self.cluster = cluster
        self.root = root
        self.run = run

    def execute(self, context: Context) -> dict[str, Any]:
        """Make and show the plan.

        Returns:
            `plan` (the hash), `until`, the moves, the number of disturbed clients, how long clients were
                disconnected during each bundle's last move (seconds), and scores before and after.

        Raises:
            AirflowFailException: `foreign_run`, or a reason of `decide.run_plan.plan_request`.
        """
        with fail_unless_temporary(context):
            run = run_folder(context, self.cluster, self.run)
            request, by = parse_form(context["params"]), requesting_user(context)
            if request.action is Action.SPLIT:
                asyncio.run(self._read_split_candidates(run, request)).write(run)
            storage = ClusterStorage(self.root, self.cluster)
            summary = plan_request(storage, run, request, by)
            kept = timedelta(minutes=summary.resolved.settings.max_awaiting_minutes)
            if summary.has_effect:
                store, now = StateStore.from_context(context, self.cluster), datetime.now(UTC)
                entry = ShownPlan(plan_id=run.name, action=request.action, at=summary.collected_at, by=by)
                store.put(store.get(ShownPlans).with_plan(summary.hash, entry, now, kept))
            last = BundleClientGaps.last_gaps(storage.state, (move.bundle for move in read_moves(run)))
            self.log.info("%s", plan_text(summary, run, context["dag_run"].dag_id, last))
        return plan_document(summary, run, last)

    async def _read_split_candidates(self, run: StoragePath, request: PlanRequest) -> SplitCandidates:
        sample = PlanningSample.read(Snapshot(run), request.overruled_rules)
        bundle, settings = bundle_to_split(sample, request.bundles[0]), sample.snapshot.settings
        connection = PulsarAdminHook(settings.connection).get_connection_settings()
        async with PulsarAdmin(connection) as admin:
            return SplitCandidates(bundles=(await read_candidate(admin, bundle.bundle, bundle.broker),))


class CarryOutOperator(HandOverOperator):
    """Release brokers, or carry out the plan with the given hash.

    If the plan is a drain, its brokers are marked as drained, also during a pause or outside the windows; later runs
    then move their bundles. Any other plan is handed over to a rebalancing run, in which the gate decides as usual. A
    plan that was cancelled, stopped or prevented can be handed over again; the new run carries out the rest of the
    plan.
    """

    def execute(self, context: Context) -> None:
        """Carry out the plan, or release the brokers.

        Raises:
            AirflowFailException: `other_plan`, `plan_expired`, `plan_used`, `plan_under_way`, `same_person`, `no_user`,
                `dag_paused`, or the reason why nothing may be moved now (`observe`, `paused`, …; for a drain only those
                that do not end by themselves); for a release, `not_drained`, or `no_user` if the run was cleared.
        """
        with fail_unless_temporary(context):
            form, store = parse_form(context["params"]), StateStore.from_context(context, self.entry.name)
            by, now = requesting_user(context), datetime.now(UTC)
            refuse_while_rolling(store)
            if not form.plan:
                refuse_cleared_task(context)
                self._release_drains(store, form, by)
                send_order_metrics(context, self.entry.name, self.entry.settings)
                return
            entry, request = self._shown_plan(store, form, now)
            drains = request.action is Action.DRAIN
            if refusal := plan_refusal(context, self.entry, store, now, may_wait=drains):
                raise refusal
            require_second_person(self.entry.settings, entry.by, by, asks_second_person=not drains)
            handed = HandedOverPlan(plan=entry, run_id=context["dag_run"].run_id, at=now, by=by)
            others = store.get(HandedOverPlans)
            before = others.plans.get(form.plan)
            if drains:
                handed = self._drain_record(store, handed, before, request.broker)
            else:
                handed = self._assign_run(context, store, handed, before)
            kept = timedelta(minutes=self.entry.settings.max_awaiting_minutes)
            store.put(others.with_plan(form.plan, handed, kept + RUN_TIMEOUT))
            refuse_while_rolling(store)  # it may have begun since the check above
            if drains:  # recorded above: if this attempt ends early, the run's next attempt continues
                drain = Drain(at=handed.at, by=handed.by, reason=request.reason, overrule=request.overrule)
                before_it = store.get(Drains)
                drained = before_it.brokers | dict.fromkeys(request.broker, drain)
                store.put(before_it.model_copy(update={"brokers": drained}))
                try:
                    refuse_while_rolling(store)
                except PlanError:
                    store.put(before_it)
                    raise
                names = ", ".join(request.broker)
                self.log.warning("Marked as drained by %s: %s (%s)", drain.by or "unknown", names, drain.reason)
                send_order_metrics(context, self.entry.name, self.entry.settings)
                return
            self.trigger_run_id, self.conf = handed.run_id, {"plan": form.plan}
            self.note = capitalized(f"{request.action} by {by}: {request.reason}".removesuffix(": "))
            self.log.info("Run %s of %s carries out plan %s", handed.run_id, self.trigger_dag_id, entry.plan_id)
        super().execute(context)

    def _release_drains(self, store: StateStore, form: PlanRequest, user: str) -> None:
        refuse_undrained_brokers(store, form.broker)
        drains = store.get(Drains)
        for broker in form.broker:
            drains = drains.without_broker(broker, datetime.now(UTC))
        store.put(drains)
        self.log.warning("%s released %s: %s", user or "unknown", ", ".join(form.broker), form.reason)

    def _shown_plan(self, store: StateStore, form: PlanRequest, now: datetime) -> tuple[ShownPlan, PlanRequest]:
        """Return the plan with the form's hash, and its request; raise an error if the plan may not be carried out."""
        entry = store.get(ShownPlans).plans.get(form.plan)
        run = self.storage.run_folder(entry.plan_id) if entry else None
        planned = Summary.read(run).by_hand if run else None
        if entry is None or planned is None:
            raise PlanError(Reason.OTHER_PLAN, f"no plan {form.plan[:16]} was shown recently")
        different = form.changed_fields(planned.request)
        if different:
            raise PlanError(Reason.OTHER_PLAN, f"fields that differ from plan {form.plan[:16]}: {', '.join(different)}")
        age, limit = (now - entry.at).total_seconds(), self.entry.settings.max_awaiting_minutes * 60
        if age > limit:
            raise PlanError(Reason.PLAN_EXPIRED, f"plan {form.plan[:16]} is {age:.0f} s old; the limit is {limit:g} s")
        return entry, planned.request

    def _drain_record(
        self,
        store: StateStore,
        handed_over: HandedOverPlan,
        earlier_plan: HandedOverPlan | None,
        brokers: Iterable[str],
    ) -> HandedOverPlan:
        """Return the record of a drain's plan; keep the existing one if the same run was cleared.

        An error is raised if a broker was released after that record was made, or another run used the plan.
        """
        drained = store.orders().get(Drains).brokers
        if earlier_plan is None:
            run = self.storage.run_folder(handed_over.plan.plan_id)
            if run is None or drained.keys() != StateBefore.read(run).drains.brokers.keys():
                named = f"brokers drained now: {', '.join(drained) or 'none'}"
                raise PlanError(
                    Reason.OTHER_PLAN, f"brokers were drained or released after the plan was shown; {named}"
                )
            return handed_over
        known = store.get(Drains).released
        released = [known[broker] for broker in brokers if broker in known]
        if earlier_plan.run_id != handed_over.run_id or any(at >= earlier_plan.at for at in released):
            raise PlanError(Reason.PLAN_USED, f"run {earlier_plan.run_id} has already used the plan")
        return earlier_plan

    def _assign_run(
        self, context: Context, store: StateStore, handed_over: HandedOverPlan, earlier_plan: HandedOverPlan | None
    ) -> HandedOverPlan:
        """Return a copy of a plan's record with the id of the run that carries out the plan.

        A new run follows an earlier one only if that was cancelled in the queue, or orders or settings
        prevented part of the plan.
        """
        answers = store.get(Answers)
        refuse_while_plan_waits(context, self.trigger_dag_id, store)
        if earlier_plan is not None and not self._run_count(context, {earlier_plan.run_id}):
            return handed_over.model_copy(update={"run_id": earlier_plan.run_id})  # recorded by an earlier attempt
        if earlier_plan is not None and not self._was_held_back(context, earlier_plan, answers):
            raise PlanError(
                Reason.PLAN_USED, f"run {earlier_plan.run_id} of {self.trigger_dag_id} has already used the plan"
            )
        return handed_over.model_copy(update={"run_id": new_run_id("by_hand", handed_over.plan.plan_id)})

    def _was_held_back(self, context: Context, handed_over: HandedOverPlan, answers: Answers) -> bool:
        """Return whether a plan's run was cancelled or is gone, or orders or settings prevented part of the plan.

        Later orders do not count. In mode `approve`, another run carries out the approved plan.
        """
        run_ids = {handed_over.run_id}
        if self._is_cancelled_or_gone(context, handed_over.run_id):
            return True
        latest = self.storage.latest_runs(datetime.now(UTC))
        young = takewhile(lambda run: (time_of(run.name) or handed_over.at) >= handed_over.plan.at, latest)
        for run in reversed([*young]):
            request = RunRequest.read_or_none(run)
            if request is None or request.airflow_run_id not in run_ids:
                continue
            answer = answers.plans.get(run.name)
            if answer is not None and answer.carried_out_by:
                run_ids.add(answer.carried_out_by)
                if self._is_cancelled_or_gone(context, answer.carried_out_by):
                    return True
            if _leaves_bundles_behind(run):
                return True
        return False

    def _is_cancelled_or_gone(self, context: Context, run_id: str) -> bool:
        return not self._run_count(context, {run_id}) or bool(cancelled_runs(context, self.trigger_dag_id, {run_id}))

    def _run_count(self, context: Context, run_ids: set[str]) -> int:
        return int(context["ti"].get_dr_count(self.trigger_dag_id, run_ids=sorted(run_ids)))


def _leaves_bundles_behind(run: StoragePath) -> bool:
    reasons = {ended.reason for found in (read_move_outcomes(run), outcome_by_split(run)) for ended in found.values()}
    outcome = Outcome.read_if_exists(run)
    if outcome is not None and outcome.verdict is not Reason.AWAITING_APPROVAL:
        reasons.add(outcome.verdict)
    return any(reason.has(Trait.NOT_BEGUN) and reason.has(Trait.RETRIED) for reason in reasons)
