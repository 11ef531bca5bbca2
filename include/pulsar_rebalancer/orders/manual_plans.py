"""The documents of manual plans and drains, each written by only one task of `pulsar_by_hand__<cluster>`.

A reset or restore of the state does not change these documents, unless they are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.config.field_types import Action, Mode, Overrule
from pulsar_rebalancer.orders.limits import MAX_NAMED
from pulsar_rebalancer.orders.order import Order, OrderKind, Situation
from pulsar_rebalancer.state import StateDocument


class ShownPlan(BaseModel):
    """A plan as shown to a person; `action` is None if a strategy decided the plan."""

    model_config = ConfigDict(frozen=True)

    plan_id: str
    action: Action | None
    at: AwareDatetime
    by: str


class ShownPlans(StateDocument):
    """The `shown` document: plans that were shown, by hash. Only the *plan* task writes it."""

    KEY: ClassVar[str] = "shown"

    plans: dict[str, ShownPlan] = {}

    def with_plan(self, plan_hash: str, plan: ShownPlan, now: datetime, lifetime: timedelta) -> ShownPlans:
        young = {known: shown for known, shown in self.plans.items() if now - shown.at <= lifetime}
        return ShownPlans(plans={plan_hash: plan} | young)


class HandedOverPlan(BaseModel):
    """A plan that a person handed over to be carried out.

    Attributes:
        run_id: the Airflow run that carries it out; for a drain, the by-hand run that marked the broker.
        at: when the plan was handed over.
        approved: True if the user approved the plan in mode `approve`.
        reason: why the user handed it over; may be empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: ShownPlan
    run_id: str
    at: AwareDatetime
    by: str
    approved: bool = False
    reason: str = ""


class HandedOverPlans(StateDocument):
    """The `handed_over` document: plans that were handed over, by hash. Only the *carry_out* task writes it."""

    KEY: ClassVar[str] = "handed_over"

    plans: dict[str, HandedOverPlan] = {}

    def with_plan(self, plan_hash: str, handed_over: HandedOverPlan, lifetime: timedelta) -> Self:
        """Return a copy with one more plan, and without those that no run can carry out any more."""
        young = {known: other for known, other in self.plans.items() if handed_over.at - other.plan.at <= lifetime}
        return self.model_copy(update={"plans": young | {plan_hash: handed_over}})


class Drain(BaseModel):
    """A drain of a broker: its bundles move away, and none moves to it until it is released."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    by: str
    reason: str
    overrule: tuple[Overrule, ...] = ()


class Drains(StateDocument):
    """The `drains` document; `released` keeps a cleared old run from starting a drain again."""

    KEY: ClassVar[str] = "drains"

    brokers: dict[str, Drain] = {}
    released: dict[str, AwareDatetime] = {}

    def without_broker(self, broker: str, now: datetime) -> Self:
        """Return a copy in which the broker is released; release times that are too old are dropped."""
        brokers = {name: drain for name, drain in self.brokers.items() if name != broker}
        young = {name: at for name, at in self.released.items() if now - at <= _RELEASE_LIFETIME}
        return self.model_copy(update={"brokers": brokers, "released": young | {broker: now}})


_RELEASE_LIFETIME = timedelta(days=366)
"""Time for which a release is stored, so that an older rolling restart does not drain the broker again."""


class GateOpening(NamedTuple):
    """The last time at which the gate opened, and the Airflow run for whose plan it opened."""

    at: AwareDatetime
    run_id: str


class Question(StateDocument):
    """The `question` document: the plan that a person is asked to approve. Only the gate writes it.

    Attributes:
        plan_id: name of the plan's run folder; empty if no question is open.
        identity: hash of the plan's actions (`Actions.identity`).
        what: what the plan does, in words (`Summary.actions_text`).
        at: when the plan's snapshot was taken.
        run_id: the run of `pulsar_apply__<cluster>` that asks; its id is random, so nobody else can start it.
        before: the run that asked the previous question and has to be ended. Every question has its own run,
            because Airflow keeps the text of an unanswered question when its task is cleared.
        opening: the gate's last opening since the first question.
    """

    KEY: ClassVar[str] = "question"

    plan_id: str = ""
    hash: str = ""
    identity: str = ""
    what: str = "move bundles"
    at: AwareDatetime | None = None
    run_id: str = ""
    before: str = ""
    opening: GateOpening | None = None

    def gate_opened_since(self, handed_over: HandedOverPlan) -> bool:
        """Return whether the gate has since opened for another run, so bundles may have moved."""
        opening = self.opening
        return opening is not None and opening.at > handed_over.plan.at and opening.run_id != handed_over.run_id

    def answer_deadline(self, minutes: float) -> datetime | None:
        """Return the deadline for an answer (`max_awaiting_minutes`); None if no question is open."""
        return self.at + timedelta(minutes=minutes) if self.at is not None else None


class Answer(Order):
    """A person's answer to a question; `carried_out_by` is the run, empty for a rejection."""

    question: Question
    carried_out_by: str = ""

    @property
    def as_handed_over_plan(self) -> HandedOverPlan:
        plan = ShownPlan(plan_id=self.question.plan_id, action=None, at=self.question.at or self.at, by="")
        return HandedOverPlan(
            plan=plan, run_id=self.carried_out_by, at=self.at, by=self.by, reason=self.reason, approved=True
        )


class Answers(StateDocument):
    """The `answers` document: operators' answers, by plan_id. Only the *approve* task writes it."""

    KEY: ClassVar[str] = "answers"

    plans: dict[str, Answer] = {}

    def record(self, answer: Answer, lifetime: timedelta) -> Self:
        young = {plan_id: other for plan_id, other in self.plans.items() if answer.at - other.at < lifetime}
        return self.model_copy(update={"plans": young | {answer.question.plan_id: answer}})

    def approval(self, plan_hash: str, run_id: str) -> Answer | None:
        approvals = (
            note for note in self.plans.values() if (note.question.hash, note.carried_out_by) == (plan_hash, run_id)
        )
        return next(approvals, None) if run_id else None

    def rejection_by_plan(self, now: datetime, minutes: float) -> dict[str, Answer]:
        """Return the rejections still valid, by `Actions.identity`; these are not asked about again."""
        lifetime = timedelta(minutes=minutes)
        young = (answer for answer in self.plans.values() if now - answer.at < lifetime and not answer.carried_out_by)
        return {answer.question.identity: answer for answer in young}


def answer_due(situation: Situation) -> datetime | None:
    """Return the deadline for approving a plan; None if no plan is awaiting approval."""
    question, answers = situation.orders.get(Question), situation.orders.get(Answers)
    until = question.answer_deadline(situation.settings.max_awaiting_minutes)
    is_open = situation.settings.mode is Mode.APPROVE and question.plan_id not in answers.plans
    return until if is_open and until is not None and situation.now < until else None


def _question_texts(situation: Situation) -> Iterator[str]:
    """Yield texts about the open question, and about rejected plans that are not asked about again."""
    if situation.settings.mode is not Mode.APPROVE:
        return
    minutes, until = situation.settings.max_awaiting_minutes, answer_due(situation)
    if until is not None:
        yield f"a plan to {situation.orders.get(Question).what} waits for approval until {until:%Y-%m-%d %H:%M %Z}"
    rejected = situation.orders.get(Answers).rejection_by_plan(situation.now, minutes).values()
    for answer in sorted(rejected, key=lambda answer: answer.at)[-MAX_NAMED:]:
        again = f"{answer.at + timedelta(minutes=minutes):%H:%M %Z}"
        moves = f"the moves of plan {answer.question.plan_id}"
        yield f"Airflow asks nobody about {moves} before {again}, because these moves were rejected {answer.by_text}"


def _drain_texts(situation: Situation) -> Iterator[str]:
    for broker, drain in situation.orders.get(Drains).brokers.items():
        yield f"{broker} is drained by {drain.by or 'unknown'}: {drain.reason}"


DRAIN = OrderKind(order_texts=_drain_texts)

QUESTION = OrderKind(order_texts=_question_texts)
