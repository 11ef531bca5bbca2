"""Mode `approve`: the open question and people's answers.

Neither a reset nor a restore of the state touches the two documents.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import AwareDatetime

from pulsar_rebalancer.state.manual_plans import HandedOver, ShownPlan
from pulsar_rebalancer.state.orders.control_document import Order
from pulsar_rebalancer.state.state_documents import StateDocument

if TYPE_CHECKING:
    from datetime import datetime


class Question(StateDocument):
    """The `question` document: the plan that a person is asked about; the gate is its only writer.

    Attributes:
        plan_id: name of the run's folder that holds the plan; empty if no question is open.
        hash: of the plan.
        identity: hash of its actions (`Actions.identity`).
        at: when its snapshot was taken.
        run_id: the run of `pulsar_apply__<cluster>` that asks. No one can guess its id and start it first.
        before: the run that asked the previous question, which is to end. Each question has a run of its own, because
            Airflow keeps the text of an unanswered question when its task is cleared.
    """

    KEY: ClassVar[str] = "question"

    plan_id: str = ""
    hash: str = ""
    identity: str = ""
    at: AwareDatetime | None = None
    run_id: str = ""
    before: str = ""

    def until(self, minutes: float) -> datetime | None:
        """Return the time until which it can be answered; None if no question is open.

        Args:
            minutes: age up to which a plan can be approved (`max_awaiting_minutes`).
        """
        return self.at + timedelta(minutes=minutes) if self.at is not None else None


class Answer(Order):
    """A person's answer to a question; the reason may be empty.

    Attributes:
        carried_out_by: the run that carries the approved plan out; empty if it is rejected.
    """

    question: Question
    carried_out_by: str = ""

    @property
    def handed_over(self) -> HandedOver:
        """Return the approved plan as the run that carries it out knows it."""
        plan = ShownPlan(plan_id=self.question.plan_id, action=None, at=self.question.at or self.at, by="")
        return HandedOver(
            plan=plan, run_id=self.carried_out_by, at=self.at, by=self.by, reason=self.reason, approved=True
        )


class Answers(StateDocument):
    """The `answers` document: people's answers, by plan_id; the task *approve* is its only writer."""

    KEY: ClassVar[str] = "answers"

    plans: dict[str, Answer] = {}

    def noted(self, answer: Answer, kept: timedelta) -> Self:
        """Return a copy with one more answer, and without those older than `kept`."""
        young = {plan_id: other for plan_id, other in self.plans.items() if answer.at - other.at < kept}
        return self.model_copy(update={"plans": young | {answer.question.plan_id: answer}})

    def approval(self, plan_hash: str, run_id: str) -> Answer | None:
        """Return the approval of a plan that this very run carries out."""
        approvals = (
            note for note in self.plans.values() if (note.question.hash, note.carried_out_by) == (plan_hash, run_id)
        )
        return next(approvals, None) if run_id else None

    def rejected(self, now: datetime, minutes: float) -> dict[str, Answer]:
        """Return the rejections by `Actions.identity`: their actions are not asked about again.

        Args:
            minutes: how long a rejection holds; a plan may wait as long (`max_awaiting_minutes`).
        """
        kept = timedelta(minutes=minutes)
        young = (answer for answer in self.plans.values() if now - answer.at < kept and not answer.carried_out_by)
        return {answer.question.identity: answer for answer in young}
