"""The errors of the domain: each carries a reason code that the README explains."""

from __future__ import annotations


class RebalancerError(Exception):
    """Something an operator can act on.

    Args:
        reason: stable code, listed in `pulsar_rebalancer.reasons`.
        message: what was wrong, with the offending value; never a secret.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{message} [{reason}]")
        self.reason = reason
        self.message = message


class SettingsError(RebalancerError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another one."""


class AdminError(RebalancerError):
    """A broker's admin REST API refused, failed, or could not be reached.

    Args:
        reason: stable code.
        message: what was wrong; never a secret.
        broker: brokerId, or the address that was asked.
        status: HTTP status, if there was an answer.
        sent: False when there was no connection to the one who should have carried it out: so nobody did.
    """

    def __init__(
        self, reason: str, message: str, *, broker: str = "", status: int | None = None, sent: bool = True
    ) -> None:
        super().__init__(reason, message)
        self.broker = broker
        self.status = status
        self.sent = sent


class SnapshotError(RebalancerError):
    """A file of a run is missing, of another version, or does not hold what its schema says."""


class StateError(RebalancerError):
    """The state kept between runs is lost, of another version, or has moved on (`stale_plan`)."""


class PlanError(RebalancerError):
    """A plan is not the one that was recorded, too old, or damaged."""
