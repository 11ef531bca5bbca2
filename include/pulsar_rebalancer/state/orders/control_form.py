"""The form of `pulsar_control__<cluster>`, in which people give orders."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from pulsar_rebalancer.config.typed import parse_typed

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = r"(decision-[0-9]{1,18}|export-[0-9]{8}T[0-9]{6}Z)\.json"
"""Pattern for the names of files that can be restored; it matches no paths."""


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
        """Return whether the action stops the current run from starting further moves."""
        return self in (ControlAction.STOP, ControlAction.PAUSE)

    @property
    def is_order(self) -> bool:
        """Return whether the action changes only the `control` document."""
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
        description="restore: decision-<number>.json or export-<time>.json; empty: the newest copy",
    )

    @property
    def changes(self) -> bool:
        """Return whether the request changes anything."""
        return self.action not in (ControlAction.SHOW, ControlAction.EXPORT)

    @model_validator(mode="after")
    def _fields_of_the_action(self) -> Self:
        if self.changes and not self.reason:
            raise ValueError(f"{self.action} needs reason: say why")
        if (self.until is not None) != (self.action is ControlAction.PAUSE):
            raise ValueError("until: a pause needs its end, and nothing else has one")
        if self.file and self.action is not ControlAction.RESTORE:
            raise ValueError(f"file: {self.action} does not use it")
        return self


def parse_control_form(values: Mapping[str, object]) -> ControlRequest:
    """Return the validated fields of a submitted form.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`, with the names of the fields.
    """
    return parse_typed(ControlRequest, values, "form")
