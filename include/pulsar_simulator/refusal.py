"""What a broker says when it does not do what was asked."""

from __future__ import annotations


class Refusal(Exception):
    """An answer other than success.

    Attributes:
        status: HTTP status.
        message: the `reason` of the JSON answer.
        broker: brokerId that refuses; empty when it is the cluster.
    """

    def __init__(self, status: int, message: str, broker: str = "") -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.broker = broker
