"""The documents of manual plans and drains. Each document is written by only one task of `pulsar_by_hand__<cluster>`.

A reset or restore of the state does not change these documents, unless they are lost.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.config.field_types import Action, Overrule
from pulsar_rebalancer.orders.control_document import Order
from pulsar_rebalancer.state.state_documents import StateDocument


class ShownPlan(BaseModel):
    """A plan as shown to a person, before a run carries it out.

    Attributes:
        plan_id: name of the plan's run folder.
        action: the requested action; None if a strategy decided the plan.
        at: when the plan's snapshot was taken.
        by: the Airflow user who requested the plan.
    """

    model_config = ConfigDict(frozen=True)

    plan_id: str
    action: Action | None
    at: AwareDatetime
    by: str


class ShownPlans(StateDocument):
    """The `shown` document: plans that were shown, by hash. Only the *plan* task writes it."""

    KEY: ClassVar[str] = "shown"

    plans: dict[str, ShownPlan] = {}

    def added(self, identity: str, plan: ShownPlan, now: datetime, kept: timedelta) -> ShownPlans:
        """Return a copy with one more plan, and without plans that are too old to be carried out.

        Args:
            identity: hash of the plan.
            kept: maximum age at which a plan can be handed over.
        """
        young = {known: shown for known, shown in self.plans.items() if now - shown.at <= kept}
        return ShownPlans(plans={identity: plan} | young)


class HandedOver(BaseModel):
    """A plan that a person handed over to be carried out.

    Attributes:
        plan: the shown plan.
        run_id: the Airflow run that carries out the plan; for a drain, the by-hand run that marked the broker as
            drained.
        at: when the plan was handed over.
        by: the Airflow user who handed it over.
        approved: True if the user approved the plan in mode `approve`.
        reason: why the user handed it over; empty if no reason was given.
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

    plans: dict[str, HandedOver] = {}

    def added(self, identity: str, handed: HandedOver, kept: timedelta) -> Self:
        """Return a copy with one more plan, and without plans that are too old to be carried out by any run.

        Args:
            identity: hash of the plan.
            handed: the plan, the person who handed it over, and the time.
            kept: maximum age at which a plan can be handed over, plus the maximum duration of its run.
        """
        young = {known: other for known, other in self.plans.items() if handed.at - other.plan.at <= kept}
        return self.model_copy(update={"plans": young | {identity: handed}})


class Drain(BaseModel):
    """A drain of a broker: its bundles move to other brokers, and no bundle moves to it until it is released.

    Attributes:
        at: when the drain started.
        by: the Airflow user who requested the drain.
        overrule: rules that do not apply to moves from this broker.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    by: str
    reason: str
    overrule: tuple[Overrule, ...] = ()


class Drains(StateDocument):
    """The `drains` document.

    Attributes:
        brokers: current drains, by broker.
        released: when each broker was last released. This prevents an old run from starting the drain again when the
            run is cleared.
    """

    KEY: ClassVar[str] = "drains"

    brokers: dict[str, Drain] = {}
    released: dict[str, AwareDatetime] = {}

    def without(self, broker: str, now: datetime) -> Self:
        """Return a copy in which the broker is released.

        Release times are dropped once all plans made before them are too old to be carried out.
        """
        brokers = {name: drain for name, drain in self.brokers.items() if name != broker}
        young = {name: at for name, at in self.released.items() if now - at <= _RELEASE_KEPT}
        return self.model_copy(update={"brokers": brokers, "released": young | {broker: now}})


_RELEASE_KEPT = timedelta(days=366)
"""How long release times are kept: after a person has released a broker, a drain that a stopped rolling
restart left behind must not come back."""


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
