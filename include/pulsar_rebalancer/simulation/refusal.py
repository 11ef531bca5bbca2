"""What a broker says when it does not do what was asked."""

from __future__ import annotations

from pulsar_rebalancer.errors import AdminError

_CODES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict", 412: "bad_range"}


def refusal(status: int, text: str, broker: str = "") -> AdminError:
    """The error behind an HTTP status; `text` becomes the `reason` of the JSON answer."""
    return AdminError(_CODES.get(status, "server_error"), text, broker=broker, status=status)
