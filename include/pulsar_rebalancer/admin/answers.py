"""Read what a broker answers: a value of the documented shape, or an error with a reason code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_broker_id
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import one_line, parse_json

if TYPE_CHECKING:
    from pydantic import JsonValue

    from pulsar_rebalancer.admin.token_mask import TokenMask

QUOTED_CHARS = 200
_LONGEST_DETAIL = 1500
_LONGEST_TEXT = 1000
_BY_STATUS = {403: Reason.FORBIDDEN, 404: Reason.NOT_FOUND, 409: Reason.CONFLICT}


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
    """Return the error that says which request failed where, how, and what to do; the token is masked in it.

    Args:
        mask: of the connection's token.
        reason: reason code.
        what: method and path of the request.
        broker: brokerId, or the address that was asked.
        detail: what was seen.
        status: HTTP status, if there was an answer.
        sent: see `AdminError`.
    """
    action = reason.action
    to_do = f". {action}" if action and not action.startswith("Nothing") else ""
    seen = one_line(mask.text(f"{what} at {broker}: {detail.removesuffix('.')}"), _LONGEST_DETAIL)
    return AdminError(reason, f"{seen}{to_do}", broker=broker, status=status, sent=sent)


def first_line(text: str) -> str:
    """Return the first line of a text from the network, fit to be shown, cut to 200 characters."""
    lines = [line.strip() for line in text.splitlines()]
    return one_line(next((line for line in lines if line), ""), QUOTED_CHARS)


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """A broker's answer after redirects.

    Attributes:
        what: method and path of the request.
        broker: who answered: brokerId, or the seed's address.
        status: HTTP status.
        body: the body as it came.
        mask: of the connection's token.
        cut: whether the body is only the beginning of a longer one.
    """

    what: str
    broker: str
    status: int
    body: bytes
    mask: TokenMask = field(repr=False)
    cut: bool = False

    def error(self, on_412: Reason) -> AdminError:
        """Return the error of a refused request.

        Args:
            on_412: reason code of "precondition failed", which Pulsar uses for stale bundle ranges, for settings
                it refuses, and for names it cannot parse.
        """
        said = self._said()
        detail = f"answered {self.status}" + (f", {_telling_line(said)}" if said else "")
        return failure(self.mask, self._reason(on_412, said), self.what, self.broker, detail, self.status)

    def _reason(self, on_412: Reason, said: str) -> Reason:
        if self.status == 401:
            # Without valid credentials Jetty answers an HTML page; a valid role without the right gets JSON.
            return Reason.FORBIDDEN if said else Reason.UNAUTHORIZED
        if self.status == 412:
            return on_412
        if self.status >= 500:
            # ExtensibleLoadManagerWrapper.generateLoadReport is not supported.
            unsupported = self.what.endswith("/load-report") and "UnsupportedOperation" in said
            return Reason.NO_LOAD_REPORT if unsupported else Reason.SERVER_ERROR
        return _BY_STATUS.get(self.status, Reason.BAD_ANSWER)

    def _said(self) -> str:
        """Return the `reason` of an error body, or an empty text."""
        try:
            body = parse_json(self.body, self.mask.text)
        except ValueError:
            return ""
        reason = body.get("reason") if isinstance(body, dict) else None
        return reason if isinstance(reason, str) else ""

    def text(self) -> str:
        """Return the body as text, without the quotes of a JSON string.

        Raises:
            AdminError: `bad_answer`.
        """
        try:
            body = self.body.strip()
            text = str(parse_json(body, self.mask.text)) if body.startswith(b'"') else body.decode()
        except ValueError:
            raise self.bad("the answer is no text") from None
        if len(text) > _LONGEST_TEXT:
            raise self.bad(f"the answer is a text of {len(text)} characters")
        return text

    def json(self) -> Any:
        """Return the body as JSON; None when it is empty.

        Raises:
            AdminError: `bad_answer`.
        """
        if not self.body.strip():
            return None
        try:
            return parse_json(self.body, self.mask.text)
        except ValueError:
            raise self.bad("the answer is no JSON") from None

    def mapping(self) -> dict[str, JsonValue]:
        """Return the body as a JSON object.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.mapping_or_none()
        if value is None:
            raise self.bad("the answer is no JSON object")
        return value

    def mapping_or_none(self) -> dict[str, JsonValue] | None:
        """Return the body as a JSON object; None when it is empty or `null`.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.json()
        if not isinstance(value, dict | None):
            raise self.bad("the answer is no JSON object")
        return value

    def strings(self) -> list[str]:
        """Return the body as a JSON list of texts.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.json()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.bad("the answer is no JSON list of texts")
        return value

    def objects(self) -> list[dict[str, JsonValue]]:
        """Return the body as a JSON list of objects.

        Raises:
            AdminError: `bad_answer`.
        """
        value = self.json()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.bad("the answer is no JSON list of objects")
        return value

    def brokers(self) -> list[str]:
        """Return the body as a list of brokerIds, sorted; one that is listed twice stays so.

        An entry of another form, which could address something else, stands there in quotation marks: it is refused
        when it is asked, and the others are not.

        Raises:
            AdminError: `bad_answer`; no entry is of the form host:port.
        """
        found = self.json()
        if not isinstance(found, list):
            raise self.bad("the answer is no JSON list")
        listed = sorted(map(_listed, found))
        if listed and not any(map(is_broker_id, listed)):
            raise self.bad(f"no brokerId of the form host:port in the list, but {listed[0]}")
        return listed

    def bad(self, detail: str) -> AdminError:
        """Return a `bad_answer` for this answer."""
        return failure(self.mask, Reason.BAD_ANSWER, self.what, self.broker, detail, self.status)


def _listed(entry: object) -> str:
    if isinstance(entry, str):
        return entry if is_broker_id(entry) else first_line(ascii(entry))
    return f"'{type(entry).__name__}'"


def _telling_line(said: str) -> str:
    """Return the line that tells something: Pulsar wraps an exception in a banner, its message and its trace."""
    for mark in ("Message:", "Stacktrace:"):
        line = first_line(said.partition(mark)[2])
        if line and line not in ("null", "Stacktrace:"):
            return line
    return first_line(said)
