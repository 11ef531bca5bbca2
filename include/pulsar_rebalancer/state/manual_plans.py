"""The documents of what people do by hand; one task of `pulsar_by_hand__<cluster>` is the only writer of each.

Neither a reset nor a restore of the state touches them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.config.enums import Action, Overrule
from pulsar_rebalancer.state.state_documents import StateDocument

if TYPE_CHECKING:
    from datetime import datetime


class ShownPlan(BaseModel):
    """A plan made by hand that was shown to whoever asked for it.

    Attributes:
        plan_id: name of the folder that it lies in.
        action: what was asked for; None when a strategy decided it.
        at: when its snapshot was taken.
        by: Airflow's user who asked for it.
    """

    model_config = ConfigDict(frozen=True)

    plan_id: str
    action: Action | None
    at: AwareDatetime
    by: str


class ShownPlans(StateDocument):
    """The `shown` document, written by the task *plan* alone: plans by their hash."""

    KEY: ClassVar[str] = "shown"

    plans: dict[str, ShownPlan] = {}

    def added(self, identity: str, plan: ShownPlan, now: datetime, kept: timedelta) -> ShownPlans:
        """Return it with one more plan, without those that were shown too long ago to be carried out.

        Args:
            identity: hash of the plan.
            plan: what was shown.
            now: the present.
            kept: age up to which a plan may be handed over.
        """
        young = {known: shown for known, shown in self.plans.items() if now - shown.at <= kept}
        return ShownPlans(plans={identity: plan} | young)


class HandedOver(BaseModel):
    """A plan made by hand that somebody has carried out.

    Attributes:
        plan: what was shown.
        run_id: the Airflow run that carries it out; of a drain, the run of the by-hand DAG that marked the broker.
        at: when it was handed over.
        by: Airflow's user who did it.
        approved: whether that was a person's approval of this very plan, in mode `approve`.
        reason: why, as far as that person said it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: ShownPlan
    run_id: str
    at: AwareDatetime
    by: str
    approved: bool = False
    reason: str = ""


class HandedOverPlans(StateDocument):
    """The `handed_over` document, written by the task *carry_out* alone: plans by their hash."""

    KEY: ClassVar[str] = "handed_over"

    plans: dict[str, HandedOver] = {}

    def added(self, identity: str, handed: HandedOver, kept: timedelta) -> Self:
        """Return it with one more plan, without those whose runs have ended long ago and that nobody may give again.

        Args:
            identity: hash of the plan.
            handed: who handed it over, and when.
            kept: age of a plan up to which it may be handed over, and how long its run may last.
        """
        young = {known: other for known, other in self.plans.items() if handed.at - other.plan.at <= kept}
        return self.model_copy(update={"plans": young | {identity: handed}})


class Drain(BaseModel):
    """A broker whose bundles leave and where nothing is brought, until it is released.

    Attributes:
        at: since when.
        by: Airflow's user who asked for it.
        reason: why.
        overrule: what does not hold for the bundles that leave.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    by: str
    reason: str
    overrule: tuple[Overrule, ...] = ()


class Drains(StateDocument):
    """The `drains` document.

    Attributes:
        brokers: what is drained, by broker.
        released: when a broker was released last: the run that marked it before marks it no more when it is cleared.
    """

    KEY: ClassVar[str] = "drains"

    brokers: dict[str, Drain] = {}
    released: dict[str, AwareDatetime] = {}

    def without(self, broker: str, now: datetime) -> Self:
        """Return it with a broker released, and without releases of long ago: no plan is that young any more."""
        brokers = {name: drain for name, drain in self.brokers.items() if name != broker}
        young = {name: at for name, at in self.released.items() if now - at <= _RELEASE_KEPT}
        return self.model_copy(update={"brokers": brokers, "released": young | {broker: now}})

    def united(self, other: Self) -> Self:
        """Return what holds of two copies: what either of them has drained, and the later releases."""
        both = self.released.keys() & other.released.keys()
        later = {broker: max(self.released[broker], other.released[broker]) for broker in both}
        released = self.released | other.released | later
        return self.model_copy(update={"brokers": self.brokers | other.brokers, "released": released})


_RELEASE_KEPT = timedelta(days=2)
"""Longer than `max_shown_plan_age_seconds` may be, and a run may last."""
