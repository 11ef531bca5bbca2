"""What an answer of a broker means: a value of the documented shape, or an error with a reason code."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_broker_id
from pulsar_rebalancer.reasons import REASONS

REASON_CHARS = 200
_BY_STATUS = {403: "forbidden", 404: "not_found", 409: "conflict"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def failure(
    reason: str, what: str, broker: str, detail: str, status: int | None = None, *, sent: bool = True
) -> AdminError:
    """An error that says which request failed where, how, and what to do.

    Args:
        reason: reason code.
        what: method and path of the request.
        broker: brokerId, or the address that was asked.
        detail: what was seen.
        status: HTTP status, if there was an answer.
        sent: see `AdminError`.
    """
    action = REASONS[reason].action
    detail = _CONTROL.sub(" ", detail)  # it may quote an address or a library that quotes the network
    to_do = f". {action}" if action and not action.startswith("Nothing") else ""
    text = f"{what} at {broker}: {detail.removesuffix('.')}{to_do}"
    return AdminError(reason, text, broker=broker, status=status, sent=sent)


def clean(text: str) -> str:
    """The first line of a text from the network, without control characters, cut to 200 characters."""
    lines = [line.strip() for line in text.splitlines()]
    return _CONTROL.sub(" ", next((line for line in lines if line), ""))[:REASON_CHARS]


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer after redirects.

    Attributes:
        what: method and path of the request.
        broker: who answered: brokerId, or the seed's address.
        status: HTTP status.
        body: the body as it came.
        cut: whether the body is only the beginning of a longer one.
    """

    what: str
    broker: str
    status: int
    body: bytes
    cut: bool = False

    def error(self, on_412: str) -> AdminError:
        """The error of a refused request.

        Args:
            on_412: reason code of "precondition failed", which Pulsar uses for stale bundle ranges, for settings
                it refuses, and for names it cannot parse.
        """
        said = self._said()
        detail = f"answered {self.status}" + (f", {_telling_line(said)}" if said else "")
        return failure(self._reason(on_412, said), self.what, self.broker, detail, self.status)

    def _reason(self, on_412: str, said: str) -> str:
        if self.status == 401:
            # Without valid credentials Jetty answers an HTML page; a valid role without the right gets JSON.
            return "forbidden" if said else "unauthorized"
        if self.status == 412:
            return on_412
        if self.status >= 500:
            # ExtensibleLoadManagerWrapper.generateLoadReport is not supported.
            unsupported = self.what.endswith("/load-report") and "UnsupportedOperation" in said
            return "no_load_report" if unsupported else "server_error"
        return _BY_STATUS.get(self.status, "bad_answer")

    def _said(self) -> str:
        """The `reason` of an error body, or an empty text."""
        try:
            body = json.loads(self.body)
        except (ValueError, RecursionError):
            return ""
        reason = body.get("reason") if isinstance(body, dict) else None
        return reason if isinstance(reason, str) else ""

    def text(self) -> str:
        """The body as text, without the quotes of a JSON string.

        Raises:
            AdminError: `bad_answer`.
        """
        try:
            text = self.body.decode().strip()
            return str(json.loads(text)) if text.startswith('"') else text
        except ValueError:
            raise self.bad("the answer is no text") from None

    def json(self) -> Any:
        """The body as JSON; None when it is empty.

        Raises:
            AdminError: `bad_answer`.
        """
        if not self.body.strip():
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise self.bad("the answer is no JSON") from None

    def mapping(self) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.mapping_or_none()
        if value is None:
            raise self.bad("the answer is no JSON object")
        return value

    def mapping_or_none(self) -> dict[str, Any] | None:
        """The body as a JSON object; None when it is empty or `null`.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.json()
        if not isinstance(value, dict | None):
            raise self.bad("the answer is no JSON object")
        return value

    def strings(self) -> list[str]:
        """The body as a JSON list of texts.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.json()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.bad("the answer is no JSON list of texts")
        return value

    def objects(self) -> list[dict[str, Any]]:
        """The body as a JSON list of objects.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.json()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.bad("the answer is no JSON list of objects")
        return value

    def brokers(self) -> list[str]:
        """The body as a list of brokerIds, sorted; one that is listed twice stays so.

        Raises:
            AdminError: `bad_answer`; one is not of the form host:port, so it could address something else.
        """
        found = sorted(self.strings())
        for broker in found:
            if not is_broker_id(broker):
                raise self.bad(f"{clean(ascii(broker))} is no brokerId of the form host:port")
        return found

    def bad(self, detail: str) -> AdminError:
        """A `bad_answer` for this answer."""
        return failure("bad_answer", self.what, self.broker, detail, self.status)


def _telling_line(said: str) -> str:
    """The line that tells something: Pulsar wraps an exception in a banner, its message and its stack trace."""
    for mark in ("Message:", "Stacktrace:"):
        line = clean(said.partition(mark)[2])
        if line and line not in ("null", "Stacktrace:"):
            return line
    return clean(said)
