"""Mode `approve`: the open question to a person, and the answers.

A reset or restore of the state does not change these two documents.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from pydantic import AwareDatetime

from pulsar_rebalancer.state.manual_plans import HandedOver, ShownPlan
from pulsar_rebalancer.state.orders.control_document import Order
from pulsar_rebalancer.state.state_documents import StateDocument

if TYPE_CHECKING:
    from datetime import datetime


class Opening(NamedTuple):
    """The last time at which the gate opened, and the Airflow run for whose plan it opened."""

    at: AwareDatetime
    run_id: str


class Question(StateDocument):
    """The `question` document: the plan that a person is asked to approve. Only the gate writes it.

    Attributes:
        plan_id: name of the plan's run folder; empty if no question is open.
        hash: hash of the plan.
        identity: hash of the plan's actions (`Actions.identity`).
        at: when the plan's snapshot was taken.
        run_id: the run of `pulsar_apply__<cluster>` that asks the question. Its id is random, so nobody else can start
            the run.
        before: the run that asked the previous question and has to be ended. Every question has its own run,
            because Airflow keeps the text of an unanswered question when its task is cleared.
        opening: the gate's last opening since the first question.
    """

    KEY: ClassVar[str] = "question"

    plan_id: str = ""
    hash: str = ""
    identity: str = ""
    at: AwareDatetime | None = None
    run_id: str = ""
    before: str = ""
    opening: Opening | None = None

    def supersedes(self, handed: HandedOver) -> bool:
        """Return whether the gate has opened for another run since an approved plan was made.

        The bundles may have moved since, so the plan must not be carried out any more.
        """
        opening = self.opening
        return opening is not None and opening.at > handed.plan.at and opening.run_id != handed.run_id

    def until(self, minutes: float) -> datetime | None:
        """Return the deadline for an answer; None if no question is open.

        Args:
            minutes: maximum age at which a plan can be approved (`max_awaiting_minutes`).
        """
        return self.at + timedelta(minutes=minutes) if self.at is not None else None


class Answer(Order):
    """A person's answer to a question. The reason may be empty.

    Attributes:
        carried_out_by: the run that carries out the approved plan; empty if the plan was rejected.
    """

    question: Question
    carried_out_by: str = ""

    @property
    def handed_over(self) -> HandedOver:
        """Convert an approval to the record of a plan that was handed over."""
        plan = ShownPlan(plan_id=self.question.plan_id, action=None, at=self.question.at or self.at, by="")
        return HandedOver(
            plan=plan, run_id=self.carried_out_by, at=self.at, by=self.by, reason=self.reason, approved=True
        )


class Answers(StateDocument):
    """The `answers` document: people's answers, by plan_id. Only the *approve* task writes it."""

    KEY: ClassVar[str] = "answers"

    plans: dict[str, Answer] = {}

    def noted(self, answer: Answer, kept: timedelta) -> Self:
        """Return a copy with one more answer, and without answers older than `kept`."""
        young = {plan_id: other for plan_id, other in self.plans.items() if answer.at - other.at < kept}
        return self.model_copy(update={"plans": young | {answer.question.plan_id: answer}})

    def approval(self, plan_hash: str, run_id: str) -> Answer | None:
        """Return the answer that approves a plan for this run to carry out; None if there is none."""
        approvals = (
            note for note in self.plans.values() if (note.question.hash, note.carried_out_by) == (plan_hash, run_id)
        )
        return next(approvals, None) if run_id else None

    def rejected(self, now: datetime, minutes: float) -> dict[str, Answer]:
        """Return the rejections that are still valid, by `Actions.identity`.

        People are not asked about the same actions while a rejection is valid.

        Args:
            minutes: how long a rejection remains valid (`max_awaiting_minutes`).
        """
        kept = timedelta(minutes=minutes)
        young = (answer for answer in self.plans.values() if now - answer.at < kept and not answer.carried_out_by)
        return {answer.question.identity: answer for answer in young}
