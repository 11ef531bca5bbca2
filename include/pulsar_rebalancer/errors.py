"""Errors raised by the rebalancer; docs/reference/reason-codes.md explains their reason codes."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import one_line


class RebalancerError(Exception):
    """An error that an operator can act on. Its message becomes one line and contains no secrets."""

    def __init__(self, reason: Reason, message: str) -> None:
        message = one_line(message)
        super().__init__(f"{message} [{reason}]")
        self.reason = reason
        self.message = message


class SettingsError(RebalancerError):
    """A setting is unknown, has the wrong type, is out of range, or contradicts another setting.

    Args:
        fields: what is wrong with each field of a form that a person filled in.
    """

    def __init__(self, reason: Reason, message: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(reason, message)
        self.fields = {name: one_line(sentence) for name, sentence in (fields or {}).items()}


def field_error(reason: Reason, name: str, sentence: str) -> SettingsError:
    return SettingsError(reason, f"form: {name}: {sentence}", {name: sentence})


class FieldsError(ValueError):
    """Raised by the validator of a form, with a sentence for each wrong field."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__(", ".join(fields))
        self.fields = fields


class AdminError(RebalancerError):
    """A request to a broker's admin REST API was refused, failed, or could not be sent.

    Args:
        broker: brokerId, or the address to which the request was sent.
        status: HTTP status; None if there was no answer.
        was_sent: False if no connection could be made, so the broker cannot have carried out the request.
    """

    def __init__(
        self, reason: Reason, message: str, *, broker: str = "", status: int | None = None, was_sent: bool = True
    ) -> None:
        super().__init__(reason, message)
        self.broker = broker
        self.status = status
        self.sent = was_sent


class SnapshotError(RebalancerError):
    """A file under the storage root is missing or damaged, has an unsupported version, or cannot be read or written."""


class StateError(RebalancerError):
    """The stored state is lost, or newer than the plan (`stale_plan`)."""


class PlanError(RebalancerError):
    """A plan is too old, damaged, or not the plan that was recorded."""
