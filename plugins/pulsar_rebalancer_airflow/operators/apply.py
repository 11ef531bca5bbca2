"""Approval: a plan that waits is shown to a person, and handed over to a rebalancing run once it is approved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from pulsar_rebalancer.carry_out.approval import page
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import LONGEST_RUN, Summary
from pulsar_rebalancer.state.manual_plans import ApprovedPlans, HandedOver, ShownPlan
from pulsar_rebalancer.state.orders.control_document import Approvals, Awaiting
from pulsar_rebalancer.state.state_documents import MovesState
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.locations import APPLY_DAG, left_about_run
from pulsar_rebalancer_airflow.operators.approve import responder
from pulsar_rebalancer_airflow.operators.hand_over import HandOverOperator
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import Context

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.storage.path import StoragePath


class _QuestionOperator(TriggerDagRunOperator):
    """Begin the run of a question anew, or for the first time.

    Args:
        cluster: name in the clusters file.
    """

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(
            trigger_dag_id=f"{APPLY_DAG}{cluster}",
            reset_dag_run=True,
            openlineage_inject_parent_info=False,
            logical_date=None,
            **kwargs,
            inlets=[state_asset(cluster)],
        )
        self.cluster = cluster


class AskOperator(_QuestionOperator):
    """Have the plan that waits shown to a person, in a run of its own.

    When a plan is carried out instead, the question that is still open ends: its run begins anew and asks nothing.
    Skipped otherwise, and where the plan that waits was asked about, answered or not.

    Args:
        gate: task id of the gate.
        kwargs: those of `_QuestionOperator`.
    """

    def __init__(self, *, gate: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate = gate

    def execute(self, context: Context) -> None:
        """Start the run that asks.

        Raises:
            AirflowSkipException: no plan of this run waits, and no question is to end.
        """
        said = left_about_run(context, self.gate, "reason")
        awaiting = StateStore.of(context, self.cluster).answers_or_none(Awaiting)
        if said == Reason.AWAITING_APPROVAL and awaiting.plan_id:
            # In any state: whoever has answered is not asked again, however late the answer came.
            if context["ti"].get_dr_count(self.trigger_dag_id, run_ids=[awaiting.asked]):
                raise AirflowSkipException(f"Asked already: {awaiting.asked}")
            self.trigger_run_id = awaiting.asked
        else:
            older = awaiting.older if said == Reason.OPEN and not awaiting.plan_id else ()
            self.trigger_run_id = next(iter(open_questions(context, self.cluster, reversed(older))), "")
            if not self.trigger_run_id:
                raise AirflowSkipException(f"No plan waits: {said}")
        super().execute(context)


class EndOlderOperator(_QuestionOperator):
    """End the newest of the older questions that are open: its run begins anew and, superseded, asks nothing.

    It does the same with the next older one, so that all end. Skipped when there is none; a retry does the same again.
    """

    def execute(self, context: Context) -> None:
        """Have the older run begin anew.

        Raises:
            AirflowSkipException: no older question is open.
        """
        older = StateStore.of(context, self.cluster).answers_or_none(Awaiting).older_than(context["dag_run"].run_id)
        self.trigger_run_id = next(iter(open_questions(context, self.cluster, reversed(older))), "")
        if not self.trigger_run_id:
            raise AirflowSkipException("No older question is open")
        super().execute(context)


class ShowAwaitingOperator(BaseOperator):
    """Make the page of the plan that waits, in Markdown; it is the XCom of the task.

    The run of a plan that no longer waits skips it, and asks nobody.

    Args:
        entry: the cluster's entry in the clusters file.
        root: storage root.
    """

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(entry.name)])
        self.entry = entry
        self.storage = ClusterStorage(root, entry.name)

    def execute(self, context: Context) -> dict[str, str]:
        """Show.

        Returns:
            `plan` (the hash), `subject` and `body`.

        Raises:
            AirflowSkipException: the plan of this run no longer waits.
            AirflowFailException: `superseded`, because something was moved since, or a file of its run cannot be read.
        """
        with final_unless_passing(context):
            store = StateStore.of(context, self.entry.name)
            if store.answers(Awaiting).asked != context["dag_run"].run_id:
                raise AirflowSkipException(Reason.SUPERSEDED.meaning)
            awaiting, run, summary = _waiting(store, self.storage, context)
            shown = page(summary, run, _until(summary, self.entry))
        self.log.info("%s\n%s", shown.subject, shown.body)
        return {"plan": awaiting.hash, "subject": shown.subject, "body": shown.body}


class ApplyOperator(HandOverOperator):
    """Hand the plan that was approved over to a rebalancing run, which reads everything anew.

    A retry hands over nothing twice: the run's id is made from the hash.

    Args:
        entry: the cluster's entry in the clusters file.
        root: storage root.
        show: id of the task that showed the plan.
        approve: id of the task that asked for approval.
    """

    def __init__(
        self, *, entry: ClusterEntry, root: str, show: str = "show", approve: str = "approve", **kwargs: Any
    ) -> None:
        super().__init__(entry=entry, root=root, **kwargs)
        self.show = show
        self.approve = approve

    def execute(self, context: Context) -> None:
        """Hand over.

        Raises:
            AirflowFailException: `not_approved`, `superseded`, `awaited_too_long`, `plan_used`, or what lets nothing be
                moved now (`paused`, …); what waits cannot be read (`approval_unreadable`).
        """
        with final_unless_passing(context):
            ti, store, now = context["ti"], StateStore.of(context, self.entry.name), datetime.now(UTC)
            asked, answer = ti.xcom_pull(task_ids=self.show), ti.xcom_pull(task_ids=self.approve)
            # Whoever ends the question by hand, as Airflow lets people do, approved nothing.
            if not _approved(answer):
                raise PlanError(Reason.NOT_APPROVED, f"the answer is {answer!r}")
            awaiting, _, summary = _waiting(store, self.storage, context)
            approval = store.answers(Approvals).plans.get(awaiting.plan_id)
            if approval is None:
                raise PlanError(Reason.NOT_APPROVED, f"no approval of {awaiting.plan_id} is noted")
            if awaiting.hash != asked["plan"]:
                raise PlanError(Reason.SUPERSEDED, f"plan {awaiting.hash[:16]} has taken its place")
            if now > _until(summary, self.entry):
                raise PlanError(Reason.AWAITED_TOO_LONG, f"it was made at {summary.collected_at:%Y-%m-%d %H:%M:%S} UTC")
            self._refuse_while_closed(store, now)
            run_id = f"approved__{awaiting.hash[:32]}"
            if ti.get_dr_count(self.trigger_dag_id, run_ids=[run_id]):
                raise PlanError(Reason.PLAN_USED, f"see run {run_id}")
            shown = ShownPlan(plan_id=awaiting.plan_id, action=None, at=summary.collected_at, by="")
            approved = HandedOver(
                plan=shown, run_id=run_id, at=now, by=approval.by, reason=approval.reason, approved=True
            )
            kept = timedelta(minutes=self.entry.settings.max_awaiting_minutes) + LONGEST_RUN
            # One that cannot be read is written anew: what it held counts as not approved.
            store.put(store.answers_or_none(ApprovedPlans).added(awaiting.hash, approved, kept))
            self.trigger_run_id, self.conf = run_id, {"plan": awaiting.hash}
            self.log.info("%s approved plan %s; run %s", approved.by, awaiting.plan_id, run_id)
        super().execute(context)


def open_questions(context: Context, cluster: str, run_ids: Iterable[str]) -> tuple[str, ...]:
    """Return those of some runs of the apply DAG that have not come to their end."""
    ti, states = context["ti"], ["queued", "running"]
    return tuple(each for each in run_ids if ti.get_dr_count(f"{APPLY_DAG}{cluster}", run_ids=[each], states=states))


def _waiting(store: StateStore, storage: ClusterStorage, context: Context) -> tuple[Awaiting, StoragePath, Summary]:
    """Return the plan that waits, which the present run of the apply DAG shows.

    Raises:
        PlanError: `superseded`; another run shows it, its files are another plan's, or something was moved since.
    """
    awaiting = store.answers(Awaiting)
    run = storage.run(awaiting.plan_id)
    if run is None or awaiting.asked != context["dag_run"].run_id:
        raise PlanError(Reason.SUPERSEDED, f"the plan that waits is shown by {awaiting.asked or 'no run'}")
    if awaiting.at is not None and store.get(MovesState).moved_since(awaiting.at):
        raise PlanError(Reason.SUPERSEDED, "bundles were moved since it was made")
    summary = Summary.read(run)
    if summary.hash != awaiting.hash:
        raise PlanError(Reason.SUPERSEDED, f"run {run.name} has another plan by now")
    return awaiting, run, summary


def _until(summary: Summary, entry: ClusterEntry) -> datetime:
    return summary.collected_at + timedelta(minutes=entry.settings.max_awaiting_minutes)


def _approved(answer: Any) -> bool:
    chosen = answer.get("chosen_options") if isinstance(answer, dict) else None
    return chosen == [ApprovalOperator.APPROVE] and bool(responder(answer))
