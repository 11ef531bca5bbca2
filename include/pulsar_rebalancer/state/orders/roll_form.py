"""The form of `pulsar_roll__<cluster>`, in which people request a rolling restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pulsar_rebalancer.config.resolution import PLAN_HASH
from pulsar_rebalancer.config.typed import parse_typed
from pulsar_rebalancer.names import Brokers

if TYPE_CHECKING:
    from collections.abc import Mapping


class RollRequest(BaseModel):
    """The fields of the form. If `plan` is empty, the roll is only shown, not carried out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    brokers: Brokers = Field((), description="the brokers (host:port), in the order in which they restart; empty: all")
    reason: str = Field("", max_length=500, description="why; recorded with the roll")
    plan: str = Field("", pattern=f"^({PLAN_HASH})?$", description="id of the shown roll to carry out")

    @model_validator(mode="after")
    def _fields_of_the_step(self) -> Self:
        if self.plan and (self.brokers or self.reason):
            raise ValueError("plan: give only the id of the shown roll, which has its brokers and its reason")
        if not self.plan and not self.reason:
            raise ValueError("reason: say why, or give the id of a roll that was shown as plan")
        if len(set(self.brokers)) < len(self.brokers):
            raise ValueError("brokers: name each broker once")
        return self


def parse_roll_form(values: Mapping[str, object]) -> RollRequest:
    """Return the validated fields of a submitted form.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`, with the names of the fields.
    """
    return parse_typed(RollRequest, values, "form")
