"""The answer of a broker that refuses a request."""

from __future__ import annotations

import json


class Refusal(Exception):
    """An answer other than success.

    Attributes:
        status: HTTP status.
        message: the `reason` of the JSON answer.
        broker: brokerId that the refusal is about; empty if it is not about one broker.
    """

    def __init__(self, status: int, message: str, broker: str = "") -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.broker = broker


def read_json(body: bytes) -> object:
    """Return the JSON document of a request.

    Raises:
        Refusal: 400 if it is not JSON, or cannot be part of an answer: NaN, lone surrogates, nested too deeply.
    """
    try:
        document: object = json.loads(body)
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not a usable JSON document: {type(error).__name__}") from None
    return document
