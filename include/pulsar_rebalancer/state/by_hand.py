"""The documents of what people do by hand; `pulsar_by_hand__<cluster>` is the only writer of all of them.

Neither a reset nor a restore of the state touches them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.config.enums import Action, Overrule
from pulsar_rebalancer.state.model import StateDocument

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class ShownPlan(BaseModel):
    """A plan made by hand that was shown to whoever asked for it.

    Attributes:
        plan_id: name of the folder that it lies in.
        action: what was asked for.
        at: when its snapshot was taken.
        by: Airflow's user who asked for it.
        run_id: the Airflow run that carries it out; empty while nobody has asked for that.
        handed_over_by: Airflow's user who did.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan_id: str
    action: Action
    at: AwareDatetime
    by: str
    run_id: str = ""
    handed_over_by: str = ""


class ShownPlans(StateDocument):
    """The `shown` document: plans by their hash."""

    KEY: ClassVar[str] = "shown"

    plans: dict[str, ShownPlan] = {}

    def added(
        self, identity: str, plan: ShownPlan, now: datetime, kept: timedelta, longest_run: timedelta
    ) -> ShownPlans:
        """Return it with one more plan, without those that were shown too long ago to be carried out.

        What was handed over stays so, and is known for as long as its run may last.

        Args:
            identity: hash of the plan.
            plan: what was shown.
            now: the present.
            kept: age up to which a plan may be handed over.
            longest_run: how long a run that carries one out may last.
        """
        young = {
            known: shown
            for known, shown in self.plans.items()
            if now - shown.at <= (kept + longest_run if shown.run_id else kept)
        }
        return ShownPlans(plans={identity: plan} | young)


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
    """The `drains` document: what is drained, by broker."""

    KEY: ClassVar[str] = "drains"

    brokers: dict[str, Drain] = {}
