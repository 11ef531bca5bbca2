"""The error response of a broker that refuses a request."""

from __future__ import annotations

import json


class Refusal(Exception):
    """An error that a broker returns as its response.

    Attributes:
        status: HTTP status.
        message: value of `reason` in the JSON answer.
        broker: brokerId of the broker that caused the refusal; empty if no single broker did.
    """

    def __init__(self, status: int, message: str, broker: str = "") -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.broker = broker


def read_json(body: bytes) -> object:
    """Return the JSON document in the body of a request.

    Raises:
        Refusal: 400 if the body is not JSON, contains NaN or lone surrogates, or is nested too deeply.
    """
    try:
        document: object = json.loads(body)
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not a usable JSON document: {type(error).__name__}") from None
    return document
