"""The errors of the domain: each carries a reason code that docs/reference/reason-codes.md explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.texts import one_line

if TYPE_CHECKING:
    from pulsar_rebalancer.reasons import Reason


class RebalancerError(Exception):
    """Something an operator can act on.

    Args:
        reason: why.
        message: what was wrong, with the offending value; never a secret. Each of its lines is cut and cleaned,
            because the value may come from the network.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        message = "\n".join(map(one_line, message.split("\n")))
        super().__init__(f"{message} [{reason}]")
        self.reason = reason
        self.message = message


class SettingsError(RebalancerError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another one."""


class AdminError(RebalancerError):
    """A broker's admin REST API refused, failed, or could not be reached.

    Args:
        reason: why.
        message: what was wrong; never a secret.
        broker: brokerId, or the address that was asked.
        status: HTTP status, if there was an answer.
        sent: False when there was no connection to the one who should have carried it out: so nobody did.
    """

    def __init__(
        self, reason: Reason, message: str, *, broker: str = "", status: int | None = None, sent: bool = True
    ) -> None:
        super().__init__(reason, message)
        self.broker = broker
        self.status = status
        self.sent = sent


class SnapshotError(RebalancerError):
    """A file below the storage root is missing, of another version, damaged, or cannot be read or written."""


class StateError(RebalancerError):
    """The state kept between runs is lost, of another version, or has moved on (`stale_plan`)."""


class PlanError(RebalancerError):
    """A plan is not the one that was recorded, too old, or damaged."""
