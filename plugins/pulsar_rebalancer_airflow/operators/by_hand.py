"""Plans made by hand: made and shown first, then handed over to a rebalancing run by their hash."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.branch import BaseBranchOperator
from airflow.sdk import BaseOperator

from pulsar_rebalancer.admin import PulsarAdmin
from pulsar_rebalancer.collect.split_candidates import read_candidate
from pulsar_rebalancer.config.enums import Action
from pulsar_rebalancer.config.resolution import RunParams
from pulsar_rebalancer.decide.by_hand.makers import target_of_split
from pulsar_rebalancer.decide.by_hand.plan_text import document, has_effect, text
from pulsar_rebalancer.decide.by_hand.preview import show
from pulsar_rebalancer.decide.by_hand.scene import Scene
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.manual_request import parse_form
from pulsar_rebalancer.run.outcome import Outcome, read_waves
from pulsar_rebalancer.run.plan import LONGEST_RUN, Summary
from pulsar_rebalancer.run.run_folder import belongs
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.splits import read_outcomes
from pulsar_rebalancer.run.state_before import StateBefore
from pulsar_rebalancer.run.topic_loads import Candidates
from pulsar_rebalancer.show.page.recent_runs import folders
from pulsar_rebalancer.state.manual_plans import Drain, HandedOver, HandedOverPlans, ShownPlan, ShownPlans
from pulsar_rebalancer.state.orders.question import Answers
from pulsar_rebalancer.storage.layout import ClusterStorage, time_of
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.locations import run_folder
from pulsar_rebalancer_airflow.operators.collect import CollectOperator
from pulsar_rebalancer_airflow.operators.hand_over import HandOverOperator, new_run_id
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.run.manual_request import HandRequest
    from pulsar_rebalancer.storage.path import StoragePath


class FormOperator(BaseBranchOperator):
    """Refuse a form that is wrong, and choose the way: a plan is made and shown, or something is done.

    A retry comes to the same end.

    Args:
        shows: id of the task with which a plan begins to be made.
        acts: id of the task that does something.
    """

    def __init__(self, *, shows: str, acts: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shows = shows
        self.acts = acts

    def choose_branch(self, context: Context) -> str:
        """Return the id of the next task.

        Raises:
            AirflowFailException: `wrong_setting` or `contradiction`, with the names of the fields.
        """
        with final_unless_passing(context):
            return self.shows if parse_form(context["params"]).shows else self.acts


class CollectForPlanOperator(CollectOperator):
    """Collect for a plan made by hand: the form's fields are none of a run's parameters."""

    def _params(self, context: Context) -> RunParams:
        return RunParams()


class PlanByHandOperator(BaseOperator):
    """Make the plan that the form asks for, and show it; it moves nothing.

    The plan is below the run's folder, and its hash in the state store, for as long as it may be carried out. A
    retry makes the same plan from the same snapshot. What is shown is the XCom of the task.

    Args:
        cluster: name in the clusters file.
        root: storage root.
        run: address of the run's folder.
    """

    template_fields: Sequence[str] = ("root", "run")

    def __init__(self, *, cluster: str, root: str, run: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(cluster)])
        self.cluster = cluster
        self.root = root
        self.run = run

    def execute(self, context: Context) -> dict[str, Any]:
        """Make and show.

        Returns:
            `plan` (the hash), `until`, what moves, whom it disturbs, scores before and after.

        Raises:
            AirflowFailException: `foreign_run`, or why nothing of the kind can be done (`by_hand.plan.show`).
        """
        with final_unless_passing(context):
            run = run_folder(context, self.cluster, self.run)
            request, by = parse_form(context["params"]), context["dag_run"].triggering_user_name or ""
            if request.action is Action.SPLIT:
                asyncio.run(self._read_topics(run, request)).write(run)
            summary = show(ClusterStorage(self.root, self.cluster), run, request, by)
            kept = timedelta(seconds=summary.resolved.settings.max_shown_plan_age_seconds)
            if has_effect(summary):
                store, now = StateStore.of(context, self.cluster), datetime.now(UTC)
                entry = ShownPlan(plan_id=run.name, action=request.action, at=summary.collected_at, by=by)
                store.put(store.get(ShownPlans).added(summary.hash, entry, now, kept))
            self.log.info("%s", text(summary, run, context["dag_run"].dag_id))
        return document(summary, run)

    async def _read_topics(self, run: StoragePath, request: HandRequest) -> Candidates:
        """Ask about the bundle that is to be split."""
        scene = Scene.read(Snapshot(run), ClusterStorage(self.root, self.cluster).state, request.overruled)
        bundle, settings = target_of_split(scene, request.bundles[0]), scene.snapshot.settings
        connection = PulsarAdminHook(settings.connection).get_connection_settings(settings.pulsar_cluster)
        async with PulsarAdmin(connection) as admin:
            return Candidates(bundles=(await read_candidate(admin, bundle.bundle, bundle.broker),))


class CarryOutOperator(HandOverOperator):
    """Do what the form asks for at once, or carry out the plan with its hash.

    The plan of a drain marks its broker: every interval's run serves it from then on. Any other plan is handed over to
    a rebalancing run, which goes through the same gate as every other. A plan that was stopped may be handed over
    again: what is left of it is carried out.

    Args:
        entry: the cluster's entry in the clusters file.
        root: storage root.
    """

    def execute(self, context: Context) -> None:
        """Carry out.

        Raises:
            AirflowFailException: `other_plan`, `shown_too_long_ago`, `plan_used`, `plan_under_way`, nothing is moved
                in the cluster's mode (`observe`), or it is held back (`paused`, …); to release: `not_drained`.
        """
        with final_unless_passing(context):
            form, store = parse_form(context["params"]), StateStore.of(context, self.entry.name)
            by, now = context["dag_run"].triggering_user_name or "", datetime.now(UTC)
            if form.plan:
                hands_over = self._carry_out(context, store, form, by, now)
            else:
                hands_over = False
                self._release(store, form, by)
        if hands_over:
            super().execute(context)

    def _release(self, store: StateStore, form: HandRequest, by: str) -> None:
        """Release a broker."""
        drains, unreadable = store.readable_drains(self.storage)
        # Marks that cannot be read are lost; the readable ones are written again.
        if form.broker not in drains.brokers and not unreadable:
            raise PlanError(
                Reason.NOT_DRAINED, f"{form.broker} is not drained; drained are: {', '.join(drains.brokers)}"
            )
        store.put_drains(self.storage, drains.without(form.broker, datetime.now(UTC)))
        self.log.warning("%s released %s: %s", by or "unknown", form.broker, form.reason)

    def _carry_out(self, context: Context, store: StateStore, form: HandRequest, by: str, now: datetime) -> bool:
        """Mark a broker as drained, or set the run up that carries the plan out; return whether there is one."""
        entry, request = self._shown(store, store.get(ShownPlans), form, now)
        others = store.get(HandedOverPlans)
        before = others.plans.get(form.plan)
        drains = request.action is Action.DRAIN
        if drains:
            handed = HandedOver(plan=entry, run_id=context["dag_run"].run_id, at=now, by=by)
            if before is None:
                self._check_drains(store, entry)
            elif before.run_id != handed.run_id or self._released(store, request.broker, before.at):
                raise PlanError(Reason.PLAN_USED, f"see run {before.run_id}")
            else:
                handed = before  # cleared or restarted
        else:
            answers = store.readable(Answers)
            self._check_none_under_way(context, others, answers)
            handed = HandedOver(plan=entry, run_id=self._run_id(context, entry, before, answers), at=now, by=by)
        kept = timedelta(seconds=self.entry.settings.max_shown_plan_age_seconds)
        store.put(others.added(form.plan, handed, kept + LONGEST_RUN))
        if drains:  # noted first: an attempt that ends early is followed by one of the same run, which goes on
            drain = Drain(at=handed.at, by=handed.by, reason=request.reason, overrule=request.overrule)
            self._mark(store, request.broker, drain)
            return False
        self.trigger_run_id, self.conf = handed.run_id, {"plan": form.plan}
        self.log.info("Plan %s is carried out by run %s of %s", entry.plan_id, handed.run_id, self.trigger_dag_id)
        return True

    def _check_drains(self, store: StateStore, entry: ShownPlan) -> None:
        """Refuse the plan of a drain that was shown with other brokers drained than now."""
        run, marked = self.storage.run(entry.plan_id), store.drains(self.storage).brokers
        shown_with = StateBefore.read(run).drains.brokers if run else {}
        if marked.keys() != shown_with.keys():
            raise PlanError(Reason.OTHER_PLAN, f"since it was shown, what is drained is another: {', '.join(marked)}")

    def _released(self, store: StateStore, broker: str, marked_at: datetime) -> bool:
        """Return whether somebody released a broker since it was marked: a run that is cleared marks it no more."""
        released = store.drains(self.storage).released.get(broker)
        return released is not None and released >= marked_at

    def _mark(self, store: StateStore, broker: str, drain: Drain) -> None:
        """Mark a broker as drained."""
        marked = store.drains(self.storage)
        store.put_drains(self.storage, marked.model_copy(update={"brokers": marked.brokers | {broker: drain}}))
        self.log.warning("%s has %s drained: %s", drain.by or "unknown", broker, drain.reason)

    def _shown(
        self, store: StateStore, shown: ShownPlans, form: HandRequest, now: datetime
    ) -> tuple[ShownPlan, HandRequest]:
        """Return the plan of the form's hash, if it may be carried out."""
        entry = shown.plans.get(form.plan)
        run = self.storage.run(entry.plan_id) if entry else None
        planned = Summary.read(run).by_hand if run else None
        if entry is None or planned is None:
            raise PlanError(Reason.OTHER_PLAN, f"no plan {form.plan[:16]} was shown lately")
        different = form.differs(planned.request)
        if different:
            raise PlanError(Reason.OTHER_PLAN, f"plan {form.plan[:16]} was made with other {', '.join(different)}")
        age = (now - entry.at).total_seconds()
        if age > self.entry.settings.max_shown_plan_age_seconds:
            raise PlanError(Reason.SHOWN_TOO_LONG_AGO, f"plan {form.plan[:16]} is {age:.0f} s old")
        self._refuse_while_closed(store, now)
        return entry, planned.request

    def _run_id(self, context: Context, plan: ShownPlan, before: HandedOver | None, answers: Answers) -> str:
        """Return the run that is to carry a plan out; once more only if the last one was stopped."""
        if before is not None and not context["ti"].get_dr_count(self.trigger_dag_id, run_ids=[before.run_id]):
            return before.run_id  # noted by an attempt that ended early
        if before is not None and not self._was_stopped(context, before, answers):
            raise PlanError(Reason.PLAN_USED, f"see run {before.run_id} of {self.trigger_dag_id}")
        return new_run_id("by_hand", plan.plan_id)

    def _was_stopped(self, context: Context, handed: HandedOver, answers: Answers) -> bool:
        """Return whether a stop, a pause or the like left a part of a plan; one that came after the end did not.

        In mode `approve` another run carries out what is approved of the one that was handed over.
        """
        run_ids = {handed.run_id}
        for run in reversed(
            [*takewhile(lambda run: not _older(run, handed), folders(self.storage, datetime.now(UTC)))]
        ):
            request = run / "input" / "settings.json"
            document = request.read_json() if request.exists() else None
            if not any(belongs(document, self.storage.cluster, run_id) for run_id in run_ids):
                continue
            answer = answers.plans.get(run.name)
            if answer is not None and answer.carried_out_by:
                if not context["ti"].get_dr_count(self.trigger_dag_id, run_ids=[answer.carried_out_by]):
                    return True  # held back between the approval and its run
                run_ids.add(answer.carried_out_by)
            reasons = {each.reason for found in (read_waves(run), read_outcomes(run)) for each in found.values()}
            outcome = Outcome.find(run)
            if outcome is not None and outcome.verdict is not Reason.AWAITING_APPROVAL:
                reasons.add(outcome.verdict)
            if any(reason.has(Trait.NOT_BEGUN) and reason.has(Trait.RETRIED) for reason in reasons):
                return True
        return False

    def _check_none_under_way(self, context: Context, handed: HandedOverPlans, answers: Answers) -> None:
        approved = {answer.carried_out_by for answer in answers.plans.values()} - {""}
        run_ids, dag_id = sorted(approved.union(other.run_id for other in handed.plans.values())), self.trigger_dag_id
        if run_ids and context["ti"].get_dr_count(dag_id, run_ids=run_ids, states=["queued", "running"]):
            raise PlanError(Reason.PLAN_UNDER_WAY, f"one of the runs {', '.join(run_ids)} of {dag_id}"[:500])


def _older(run: StoragePath, handed: HandedOver) -> bool:
    return (time_of(run.name) or handed.at) < handed.plan.at
