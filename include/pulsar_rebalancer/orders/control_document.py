"""The `control` document: operators' orders, written only by `pulsar_control__<cluster>`.

A reset or restore of the state does not change the document, unless it is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from pulsar_rebalancer.config.settings import BreakerRules, parse_typed
from pulsar_rebalancer.errors import WrongFields
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.state.state_documents import StateDocument
from pulsar_rebalancer.texts import one_line


class Order(BaseModel):
    """An order from a person; `by` is the Airflow user."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    by: str
    reason: str

    @property
    def because(self) -> str:
        return one_line(f"by {self.by or 'unknown'}" + (f": {self.reason}" if self.reason else ""), 600)


class PauseOrder(Order):
    until: AwareDatetime


class SkipBrokerOrder(Order):
    """An order to end the turn of a rolling restart's current broker, named lest the next be skipped."""

    broker: str


class Control(StateDocument):
    """The `control` document.

    Attributes:
        pause: order to move nothing until a given time.
        skip: order to move nothing in the next recorded run. The run's sample must be later than the order.
        stop: order to start no further moves in runs that were in progress when the order was given. Later runs are not
            affected.
        breaker_closed: order to close the circuit breaker, if it was open when the order was given.
        stop_roll: order to stop the rolling restart that was in progress when the order was given.
        skip_broker: order to end the turn of the rolling restart's current broker.
        breaker: the circuit breaker, which is stored in its own document, not in this one.
        lost: which documents of the state store are lost, and why; nothing is moved then. Empty if none is. Not stored.
        rolling: True if a rolling restart is finishing its current broker's turn. Not stored.
    """

    KEY: ClassVar[str] = "control"

    pause: PauseOrder | None = None
    skip: Order | None = None
    stop: Order | None = None
    breaker_closed: Order | None = None
    stop_roll: Order | None = None
    skip_broker: SkipBrokerOrder | None = None
    breaker: Breaker = Field(Breaker(), exclude=True)
    lost: str = Field("", exclude=True)
    rolling: bool = Field(False, exclude=True)

    def breaker_open_until(self, rules: BreakerRules | None) -> datetime | None:
        return self.breaker.open_until(rules, self.breaker_closed.at if self.breaker_closed else None)

    def stopped_since(self, started: datetime | None) -> bool:
        """Return whether a stop was ordered at or after a given time (None: at all)."""
        return self.stop is not None and (started is None or self.stop.at >= started)


FILE_NAME = r"export-[0-9]{8}T[0-9]{6}Z\.json"
"""Pattern for the names of exports; it matches no paths."""


class ControlAction(StrEnum):
    """An action that a person can choose in the form."""

    SHOW = "show"
    PAUSE = "pause"
    RESUME = "resume"
    SKIP = "skip"
    STOP = "stop"
    CLOSE_BREAKER = "close_breaker"
    SKIP_BROKER = "skip_broker"
    STOP_ROLL = "stop_roll"
    EXPORT = "export"
    RESET = "reset"
    RESTORE = "restore"

    @property
    def stops(self) -> bool:
        return self in (ControlAction.STOP, ControlAction.PAUSE)

    @property
    def is_order(self) -> bool:
        others = (ControlAction.RESUME, ControlAction.SKIP, ControlAction.CLOSE_BREAKER)
        return self.stops or self in (*others, ControlAction.SKIP_BROKER, ControlAction.STOP_ROLL)


class ControlRequest(BaseModel):
    """The fields of the form. Fields that the chosen action does not use must be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: ControlAction = Field(ControlAction.SHOW, description="what to do; show changes nothing")
    reason: str = Field("", max_length=500, description="why; needed for all but show and export")
    until: AwareDatetime | None = Field(None, description="pause: its end, with a time zone")
    file: str = Field(
        "",
        pattern=f"^({FILE_NAME})?$",
        description="restore: export-<time>.json; empty: the state of the last committed plan",
    )

    broker: str = Field("", max_length=500, description="skip_broker: the broker whose turn it is, host:port")

    @property
    def changes(self) -> bool:
        return self.action not in (ControlAction.SHOW, ControlAction.EXPORT)

    @model_validator(mode="after")
    def _fields_of_the_action(self) -> Self:
        pauses, skips = self.action is ControlAction.PAUSE, self.action is ControlAction.SKIP_BROKER
        wrong = {}
        if self.changes and not self.reason:
            wrong["reason"] = "Say why; the reason is recorded."
        if (self.until is not None) != pauses:
            wrong["until"] = "Say when the pause ends." if pauses else "Only a pause has an end."
        if bool(self.broker) != skips:
            wrong["broker"] = "Name the broker whose turn it is." if skips else "Only skip_broker takes a broker."
        if self.file and self.action is not ControlAction.RESTORE:
            wrong["file"] = "Only restore takes a file."
        if wrong:
            raise WrongFields(wrong)
        return self


def parse_control_form(values: Mapping[str, object]) -> ControlRequest:
    """Return the validated fields; raise SettingsError (`wrong_setting`)."""
    return parse_typed(ControlRequest, values, "form")
