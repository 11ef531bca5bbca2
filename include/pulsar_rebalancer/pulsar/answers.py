"""Parse broker responses. A response in an unexpected format raises an error with a reason code."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pydantic import JsonValue, SecretStr

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_broker_id
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import parse_json, storable

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


MASK = "***"


class TokenMask:
    """Replaces secrets in responses with `***`, both in plain form and escaped for a URL, HTML or JSON."""

    def __init__(self, token: SecretStr | None) -> None:
        self._forms: list[str] = []
        self.add(token.get_secret_value() if token is not None else "")

    def add(self, value: str) -> None:
        """Add a token or secret to be masked."""
        forms = {value, quote(value, safe=""), html.escape(value), json.dumps(value)[1:-1]} - {""}
        self._forms = sorted(forms.union(self._forms), key=len, reverse=True)

    def body(self, data: bytes) -> bytes:
        """Return a response body with the secrets masked."""
        for form in self._forms:
            data = data.replace(form.encode(), MASK.encode())
        return data

    def text(self, text: str) -> str:
        """Return the text with the secrets masked, in a form that can be stored (`texts.storable`).

        Mask text before cutting it: part of a secret is not recognised.
        """
        for form in self._forms:
            text = text.replace(form, MASK)
        return storable(text)


_RANGE = re.compile(r"0x[0-9a-fA-F]{8}_0x[0-9a-fA-F]{8}")
_DOMAINS = ("persistent", "non-persistent", "segment", "topic")


def path(*segments: str) -> str:
    """Return an absolute path made of percent-encoded segments.

    Raises:
        AdminError: `not_found` if a segment is empty, `.`, `..` or not valid UTF-8. Pulsar has no such names, and the
            request would go to another path.
    """
    return "".join(f"/{_segment(s)}" for s in segments)


def _segment(name: str) -> str:
    if name in ("", ".", ".."):
        raise AdminError(Reason.NOT_FOUND, f"{name!r} cannot be part of a name in Pulsar; nothing was sent")
    try:
        return quote(name, safe=":")
    except UnicodeEncodeError:
        raise AdminError(Reason.NOT_FOUND, f"{name!a} is not valid text; nothing was sent") from None


def split_namespace(namespace: str) -> tuple[str, str]:
    """Return the tenant and the namespace of `tenant/namespace`.

    Raises:
        AdminError: `not_found` if the text has a different form.
    """
    tenant, slash, local = namespace.partition("/")
    if not (tenant and slash and local) or "/" in local:
        raise AdminError(Reason.NOT_FOUND, f"{namespace!a} is not a namespace of the form tenant/namespace")
    return tenant, local


def split_bundle(bundle: str) -> tuple[str, str, str]:
    """Return the tenant, namespace and range of `tenant/namespace/0x…_0x…`.

    Raises:
        AdminError: `bad_range` if the text has a different form; brokers would respond to some such requests with 500.
    """
    parts = bundle.split("/")
    if len(parts) != 3 or not all(parts) or _RANGE.fullmatch(parts[2]) is None:
        raise AdminError(
            Reason.BAD_RANGE, f"{bundle!a} is not a bundle of the form tenant/namespace/0x00000000_0xffffffff"
        )
    return parts[0], parts[1], parts[2]


def split_topic(topic: str) -> tuple[str, str, str, str]:
    """Return the four parts of `domain://tenant/namespace/topic`; the topic may contain slashes if it is a segment.

    Raises:
        AdminError: `not_found` if the text has a different form.
    """
    domain, _, rest = topic.partition("://")
    parts = rest.split("/", 2)
    if domain not in _DOMAINS or len(parts) != 3 or not all(parts):
        raise AdminError(Reason.NOT_FOUND, f"{topic!a} is not a topic of the form domain://tenant/namespace/topic")
    return domain, parts[0], parts[1], parts[2]
