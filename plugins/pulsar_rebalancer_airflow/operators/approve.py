"""Approval: the question about a plan in Airflow, a person's answer, and the run that carries out the plan."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator, Param
from airflow.sdk.exceptions import AirflowSkipException, TaskAwaitingInput

from pulsar_rebalancer.carry_out.gate import ApprovalRequest, approval_request, second_person_refusal
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.orders.manual_plans import Answer, Answers, Question
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import RUN_TIMEOUT, Summary, verified_actions
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import one_line
from pulsar_rebalancer_airflow.notifications import send_order_metrics
from pulsar_rebalancer_airflow.operators.bases import HandOverOperator, is_retry, new_run_id, plan_refusal, roll_refusal
from pulsar_rebalancer_airflow.options import APPLY_DAG, fail_unless_temporary
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from airflow.sdk import Context


_ASKED_KEY = "asked"
MAX_REASON_CHARS = 500


class ApproveOperator(ApprovalOperator):
    """Ask a person to approve the plan that is awaiting approval.

    If nobody answers in time, the question expires, which counts neither as an approval nor as a rejection.
    In a cluster that requires two people, the person who requested the plan cannot approve it, and nobody can
    while the plan would not be carried out: the approval is ignored, and the question stays open.

    The task is skipped if another run is asking the current question, or if the question was already
    answered. If a person answers before the scheduler has recorded that the task is waiting, Airflow fails
    the task. The next attempt does not ask again, but continues with this answer.
    """

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        why = Param(
            None, type=["null", "string"], maxLength=MAX_REASON_CHARS, title="Reason", description="why, for the record"
        )
        super().__init__(
            subject="", defaults=self.REJECT, params={"reason": why}, **kwargs, inlets=[state_asset(entry.name)]
        )
        self.entry = entry
        self.storage = ClusterStorage(root, entry.name)

    def execute(self, context: Context) -> None:
        """Ask the question, and wait for the answer.

        Raises:
            AirflowSkipException: another plan is awaiting approval now, or the question was already answered.
            AirflowFailException: `plan_changed`, `state_lost`, or one of the plan's files cannot be read.
        """
        asked = context["task_state_store"]
        with fail_unless_temporary(context):
            store = StateStore.from_context(context, self.entry.name)
            question = store.get(Question)
            if question.run_id != context["dag_run"].run_id:
                raise AirflowSkipException(Reason.PLAN_EXPIRED.meaning)
            until = self._set_deadline(question)
            if is_retry(context, self) and asked.get(_ASKED_KEY):
                raise TaskAwaitingInput(method_name="execute_complete", timeout=self.response_timeout)
            if question.plan_id in store.get(Answers).plans:
                raise AirflowSkipException("A person answered this request before the task was cleared")
            self.subject, self.body = self._approval_request(question, until)
        try:
            super().execute(context)
        except TaskAwaitingInput:
            asked.set(_ASKED_KEY, True)
            raise

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Record the answer if a person gave it, then continue with it.

        Raises:
            AirflowFailException: `plan_expired` if another plan is awaiting approval now.
            TaskAwaitingInput: the approval is refused (`dag_paused`, `paused`, …, `same_person`, `no_user`).
        """
        if "error" not in event:
            event = event | {"params_input": {"reason": _answer_reason(event)}}
            if _answering_user(event):
                with fail_unless_temporary(context):
                    error = self._record_answer(context, event)
                if error is not None:
                    self.log.warning("Not approved: %s. [%s] %s", error.message, error.reason, error.reason.action)
                    super().execute(context)  # Airflow drops the answer, keeps the text, and waits again
                send_order_metrics(context, self.entry.name, self.entry.settings)
        return super().execute_complete(context, event)

    def _set_deadline(self, question: Question) -> datetime:
        now = datetime.now(UTC)
        until = question.answer_deadline(self.entry.settings.max_awaiting_minutes) or now
        self.response_timeout = max(until - now, timedelta(seconds=1))
        return until

    def _approval_request(self, question: Question, deadline: datetime) -> ApprovalRequest:
        run, summary = self._plan_to_approve(question)
        requesters = summary.requested_by if self.entry.settings.two_people else ()
        return approval_request(summary, verified_actions(run, summary), run, deadline, requesters)

    def _plan_to_approve(self, question: Question) -> tuple[StoragePath, Summary]:
        run = self.storage.run_folder(question.plan_id)
        if run is None or (summary := Summary.read(run)).hash != question.hash:
            raise PlanError(Reason.PLAN_CHANGED, f"the plan of run {question.plan_id} has changed")
        return run, summary

    def _record_answer(self, context: Context, event: dict[str, Any]) -> PlanError | None:
        """Record the approval or rejection, or return why the person may not approve the plan."""
        store = StateStore.from_context(context, self.entry.name)
        question, answers = store.get(Question), store.get(Answers)
        if question.run_id != context["dag_run"].run_id:
            raise PlanError(Reason.PLAN_EXPIRED, f"the run that asks for approval now: {question.run_id or 'none'}")
        before, carried_out_by = answers.plans.get(question.plan_id), ""
        if event["chosen_options"] == [self.APPROVE]:
            # A retry keeps what an earlier attempt has recorded.
            carried_out_by = before.carried_out_by if before else ""
            refusal = None if carried_out_by else self._answer_refusal(context, store, event)
            if refusal is not None:
                self._set_deadline(question)
                return refusal
            carried_out_by = carried_out_by or new_run_id("approved", question.plan_id)
        answer = Answer(
            question=question,
            at=datetime.now(UTC),
            by=_answering_user(event),
            reason=_answer_reason(event),
            carried_out_by=carried_out_by,
        )
        store.put(answers.record(answer, timedelta(minutes=self.entry.settings.max_awaiting_minutes) + RUN_TIMEOUT))
        self.log.warning("%s %s", "Approved" if carried_out_by else "Rejected", answer.by_text)
        return None

    def _answer_refusal(self, context: Context, store: StateStore, event: dict[str, Any]) -> PlanError | None:
        question = store.get(Question)
        refusal = plan_refusal(context, self.entry, store, datetime.now(UTC)) or roll_refusal(store, question.plan_id)
        if refusal is None and self.entry.settings.two_people:
            refusal = second_person_refusal(self._plan_to_approve(question)[1].requested_by, _user_names(event))
        return refusal


class CarryOutApprovedOperator(HandOverOperator):
    """Start a rebalancing run that takes a new snapshot and carries out the approved plan."""

    def execute(self, context: Context) -> None:
        """Start the rebalancing run.

        Raises AirflowFailException: `no_user`, `dag_paused`, `state_lost`, or why nothing may be moved now.
        """
        with fail_unless_temporary(context):
            store, asked_by = StateStore.from_context(context, self.entry.name), context["dag_run"].run_id
            # Do not use the asking task's XCom, which others may write, or its state, which operators may set.
            answers = store.get(Answers).plans.values()
            noted = (known for known in answers if known.question.run_id == asked_by and known.carried_out_by)
            answer = next(noted, None)
            if answer is None:
                raise PlanError(Reason.NO_USER, f"run {asked_by} asked for approval, but no approval is recorded")
            refusal = plan_refusal(context, self.entry, store, datetime.now(UTC))
            if refusal := refusal or roll_refusal(store, answer.question.plan_id):
                raise refusal
            self.trigger_run_id, self.conf = answer.carried_out_by, {"plan": answer.question.hash}
            self.note = f"Approved {answer.by_text}"
        super().execute(context)


def _answering_user(answer: dict[str, Any]) -> str:
    return next(filter(None, _user_names(answer)), "")


def _user_names(answer: dict[str, Any]) -> list[str]:
    user = answer.get("responded_by_user")
    return [one_line(str(user.get(name) or "")) for name in ("name", "id")] if isinstance(user, dict) else []


def _answer_reason(answer: dict[str, Any]) -> str:
    given = answer.get("params_input")
    said = given.get("reason") if isinstance(given, dict) else None
    return one_line(said.strip(), MAX_REASON_CHARS) if isinstance(said, str) else ""


class QuestionsOperator(BaseOperator):
    """Return the runs to start: the run that asks a new question, and the previous run if it has not ended.

    The previous run is started again so that it ends, because its question is no longer current.
    """

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(cluster)])
        self.cluster = cluster

    def execute(self, context: Context) -> list[str]:
        question = StateStore.from_context(context, self.cluster).peek(Question)
        begins = [question.before] if has_open_run(context, self.cluster, question.before) else []
        asked = question.run_id and context["ti"].get_dr_count(f"{APPLY_DAG}{self.cluster}", run_ids=[question.run_id])
        return begins if asked or not question.run_id else [*begins, question.run_id]


def has_open_run(context: Context, cluster: str, run_id: str) -> bool:
    states = ["queued", "running"]
    return bool(run_id and context["ti"].get_dr_count(f"{APPLY_DAG}{cluster}", run_ids=[run_id], states=states))
