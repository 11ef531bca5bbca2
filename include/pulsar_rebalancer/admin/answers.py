"""Parse broker responses. A response in an unexpected format raises an error with a reason code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_broker_id
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import parse_json

if TYPE_CHECKING:
    from pydantic import JsonValue

    from pulsar_rebalancer.admin.token_mask import TokenMask

_QUOTED_CHARS = 200
_LONGEST_DETAIL = 1500
_LONGEST_TEXT = 1000
_BY_STATUS = {401: Reason.FORBIDDEN, 403: Reason.FORBIDDEN, 404: Reason.NOT_FOUND, 409: Reason.CONFLICT}


def failure(
    mask: TokenMask,
    reason: Reason,
    what: str,
    broker: str,
    detail: str,
    status: int | None = None,
    *,
    sent: bool = True,
) -> AdminError:
    """Return an error whose message names the request, broker, failure and remedy, with the token masked.

    Args:
        what: method and path of the request.
        broker: brokerId, or the address to which the request was sent.
        status: HTTP status; None if there was no response.
        sent: see `AdminError`.
    """
    action = reason.action
    to_do = f". {action}" if action and not action.startswith("Nothing") else ""
    seen = " ".join(mask.text(f"{what} at {broker}: {detail.removesuffix('.')}").splitlines())[:_LONGEST_DETAIL]
    return AdminError(reason, f"{seen}{to_do}", broker=broker, status=status, sent=sent)


def first_line(text: str) -> str:
    """Return the first non-empty line of a string, cut to 200 characters. Control characters are not removed."""
    return next((line for line in map(str.strip, text.splitlines()) if line), "")[:_QUOTED_CHARS]


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """A broker's response, after all redirects.

    Attributes:
        what: method and path of the request.
        broker: brokerId, or the seed's address if the request went to a seed.
        cut: True if the body was too long and only its beginning was read.
    """

    what: str
    broker: str
    status: int
    body: bytes
    mask: TokenMask = field(repr=False)
    cut: bool = False

    @property
    def is_unauthenticated(self) -> bool:
        """Return whether the broker rejected the credentials; Jetty then responds with 401 and gives no reason.

        If the credentials are valid but the role lacks a permission, the 401 response gives a reason.
        """
        return self.status == 401 and not self._said()

    def error(self, on_412: Reason) -> AdminError:
        """Return the error for a request that the broker refused.

        Args:
            on_412: reason code for "precondition failed", which Pulsar uses for stale bundle ranges, rejected settings,
                and names that it cannot parse.
        """
        said = self._said()
        detail = f"answered {self.status}" + (f", {_message_line(said)}" if said else "")
        return failure(self.mask, self._reason(on_412, said), self.what, self.broker, detail, self.status)

    def _reason(self, on_412: Reason, said: str) -> Reason:
        if self.status == 412:
            return on_412
        if self.status >= 500:
            # ExtensibleLoadManagerWrapper.generateLoadReport is not supported.
            unsupported = self.what.endswith("/load-report") and "UnsupportedOperation" in said
            return Reason.NO_LOAD_REPORT if unsupported else Reason.SERVER_ERROR
        return _BY_STATUS.get(self.status, Reason.BAD_ANSWER)

    def _said(self) -> str:
        """Return the value of `reason` in an error body; empty if there is none."""
        try:
            body = parse_json(self.body, self.mask.text)
        except ValueError:
            return ""
        reason = body.get("reason") if isinstance(body, dict) else None
        return reason if isinstance(reason, str) else ""

    def text(self) -> str:
        """Return the body as text, without the quotation marks of a JSON string.

        Raises:
            AdminError: `bad_answer`.
        """
        try:
            body = self.body.strip()
            text = str(parse_json(body, self.mask.text)) if body.startswith(b'"') else body.decode()
        except ValueError:
            raise self.bad("the answer is not text") from None
        if len(text) > _LONGEST_TEXT:
            raise self.bad(f"the answer has {len(text)} characters, expected at most {_LONGEST_TEXT}")
        return text

    def json(self) -> Any:
        """Return the body as JSON; None if it is empty.

        Raises:
            AdminError: `bad_answer`.
        """
        if not self.body.strip():
            return None
        try:
            return parse_json(self.body, self.mask.text)
        except ValueError:
            raise self.bad("the answer is not JSON") from None

    def mapping(self) -> dict[str, JsonValue]:
        """Return the body as a JSON object.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.mapping_or_none()
        if value is None:
            raise self.bad("the answer is not a JSON object")
        return value

    def mapping_or_none(self) -> dict[str, JsonValue] | None:
        """Return the body as a JSON object; None if it is empty or `null`.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.json()
        if not isinstance(value, dict | None):
            raise self.bad("the answer is not a JSON object")
        return value

    def strings(self) -> list[str]:
        """Return the body as a JSON list of strings.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.json()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.bad("the answer is not a JSON list of strings")
        return value

    def objects(self) -> list[dict[str, JsonValue]]:
        """Return the body as a JSON list of objects.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.json()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.bad("the answer is not a JSON list of objects")
        return value

    def brokers(self) -> list[str]:
        """Return the body as a sorted list of brokerIds; duplicates are kept.

        An entry that is not of the form host:port could be the address of another server. It is returned in quotation
        marks, and requests to it are refused.

        Raises:
            AdminError: `bad_answer` if no entry is of the form host:port.
        """
        entries = self.json()
        if not isinstance(entries, list):
            raise self.bad("the answer is not a JSON list")
        listed = sorted(map(_listed, entries))
        if listed and not any(map(is_broker_id, listed)):
            raise self.bad(f"no brokerId of the form host:port in the list, but {listed[0]}")
        return listed

    def bad(self, detail: str) -> AdminError:
        """Return a `bad_answer` error."""
        return failure(self.mask, Reason.BAD_ANSWER, self.what, self.broker, detail, self.status)


def _listed(entry: object) -> str:
    if isinstance(entry, str):
        return entry if is_broker_id(entry) else first_line(ascii(entry))
    return f"'{type(entry).__name__}'"


def _message_line(said: str) -> str:
    """Return the line that contains the exception message, without Pulsar's banner and stack trace."""
    for mark in ("Message:", "Stacktrace:"):
        line = first_line(said.partition(mark)[2])
        if line and line not in ("null", "Stacktrace:"):
            return line
    return first_line(said)
