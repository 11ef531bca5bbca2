"""Parse broker responses. A response in an unexpected format raises an error with a reason code."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pydantic import JsonValue, SecretStr

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import HASH_RANGE_PATTERN, is_broker_id
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import parse_json, storable_text

_MAX_QUOTED = 200
_MAX_DETAIL = 1500
_MAX_TEXT = 1000
_REASON_BY_STATUS = {401: Reason.FORBIDDEN, 403: Reason.FORBIDDEN, 404: Reason.NOT_FOUND}


def admin_error(
    mask: TokenMask,
    reason: Reason,
    request_line: str,
    broker: str,
    detail: str,
    status: int | None = None,
    *,
    was_sent: bool = True,
) -> AdminError:
    action = reason.action
    to_do = f". {action}" if action and not action.startswith("Nothing") else ""
    seen = " ".join(mask.hide(f"{request_line} at {broker}: {detail.removesuffix('.')}").splitlines())[:_MAX_DETAIL]
    return AdminError(reason, f"{seen}{to_do}", broker=broker, status=status, was_sent=was_sent)


def first_line(text: str) -> str:
    """Return the first non-empty line, cut to 200 characters; control characters are not removed."""
    return next((line for line in map(str.strip, text.splitlines()) if line), "")[:_MAX_QUOTED]


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """A response after all redirects; `what` is method and path, `is_cut_off`: only the beginning was read."""

    what: str
    broker: str
    status: int
    body: bytes
    token_mask: TokenMask = field(repr=False)
    is_cut_off: bool = False

    @property
    def is_unauthenticated(self) -> bool:
        """Return whether the credentials were rejected; a 401 for a missing permission gives a reason."""
        return self.status == 401 and not self._error_reason()

    def as_error(self, on_412: Reason) -> AdminError:
        """Return the error for a request that the broker refused.

        `on_412` is the reason code for "precondition failed", which Pulsar uses for stale bundle ranges,
        rejected settings, and names that it cannot parse.
        """
        said = self._error_reason()
        detail = f"answered {self.status}" + (f", {_message_line(said)}" if said else "")
        return admin_error(self.token_mask, self._error_code(on_412, said), self.what, self.broker, detail, self.status)

    def _error_code(self, on_412: Reason, error_reason: str) -> Reason:
        if self.status == 412:
            return on_412
        if self.status >= 500:
            # ExtensibleLoadManagerWrapper.generateLoadReport is not supported.
            unsupported = self.what.endswith("/load-report") and "UnsupportedOperation" in error_reason
            return Reason.NO_LOAD_REPORT if unsupported else Reason.SERVER_ERROR
        if self.status == 409 and self.what.partition("?")[0].endswith("/unload"):
            return Reason.DESTINATION_GONE
        return _REASON_BY_STATUS.get(self.status, Reason.BAD_ANSWER)

    def _error_reason(self) -> str:
        try:
            body = parse_json(self.body, self.token_mask.hide)
        except ValueError:
            return ""
        reason = body.get("reason") if isinstance(body, dict) else None
        return reason if isinstance(reason, str) else ""

    def text(self) -> str:
        try:
            body = self.body.strip()
            text = str(parse_json(body, self.token_mask.hide)) if body.startswith(b'"') else body.decode()
        except ValueError:
            raise self.bad_body("the answer is not text") from None
        if len(text) > _MAX_TEXT:
            raise self.bad_body(f"the answer has {len(text)} characters, expected at most {_MAX_TEXT}")
        return text

    def json(self) -> Any:
        """Return the body as JSON, None if it is empty; raise AdminError (`bad_answer`)."""
        if not self.body.strip():
            return None
        try:
            return parse_json(self.body, self.token_mask.hide)
        except ValueError:
            raise self.bad_body("the answer is not JSON") from None

    def mapping(self) -> dict[str, JsonValue]:
        value = self.mapping_or_none()
        if value is None:
            raise self.bad_body("the answer is not a JSON object")
        return value

    def mapping_or_none(self) -> dict[str, JsonValue] | None:
        value = self.json()
        if not isinstance(value, dict | None):
            raise self.bad_body("the answer is not a JSON object")
        return value

    def strings(self) -> list[str]:
        value = self.json()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.bad_body("the answer is not a JSON list of strings")
        return value

    def objects(self) -> list[dict[str, JsonValue]]:
        value = self.json()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.bad_body("the answer is not a JSON list of objects")
        return value

    def brokers(self) -> list[str]:
        """Return the body as a sorted list of brokerIds; duplicates are kept.

        An entry not of the form host:port could be another server's address: it is returned in quotation marks,
        and requests to it are refused. Raises AdminError (`bad_answer`) if there are only such entries.
        """
        entries = self.json()
        if not isinstance(entries, list):
            raise self.bad_body("the answer is not a JSON list")
        listed = sorted(map(_entry_text, entries))
        if listed and not any(map(is_broker_id, listed)):
            raise self.bad_body(f"the list has no brokerId of the form host:port; its first entry is {listed[0]}")
        return listed

    def bad_body(self, detail: str) -> AdminError:
        return admin_error(self.token_mask, Reason.BAD_ANSWER, self.what, self.broker, detail, self.status)


def _entry_text(entry: object) -> str:
    if isinstance(entry, str):
        return entry if is_broker_id(entry) else first_line(ascii(entry))
    return f"'{type(entry).__name__}'"


def _message_line(error_reason: str) -> str:
    for mark in ("Message:", "Stacktrace:"):
        line = first_line(error_reason.partition(mark)[2])
        if line and line not in ("null", "Stacktrace:"):
            return line
    return first_line(error_reason)


MASK = "***"


class TokenMask:
    """Replaces secrets in responses with `***`, both in plain form and escaped for a URL, HTML or JSON."""

    def __init__(self, token: SecretStr | None) -> None:
        self._forms: list[str] = []
        self.add(token.get_secret_value() if token is not None else "")

    def add(self, value: str) -> None:
        forms = {value, quote(value, safe=""), html.escape(value), json.dumps(value)[1:-1]} - {""}
        self._forms = sorted(forms.union(self._forms), key=len, reverse=True)

    def hide_bytes(self, data: bytes) -> bytes:
        for form in self._forms:
            data = data.replace(form.encode(), MASK.encode())
        return data

    def hide(self, text: str) -> str:
        """Return storable text with the secrets masked; cut it afterwards: part of a secret is missed."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return storable_text(text)


_TOPIC_DOMAINS = ("persistent", "non-persistent", "segment", "topic")


def path(*segments: str) -> str:
    """Return an absolute path made of percent-encoded segments.

    Raises AdminError (`not_found`) for an empty segment, `.`, `..` or invalid UTF-8: Pulsar has no such
    names, and the request would go to another path.
    """
    return "".join(f"/{_path_segment(s)}" for s in segments)


def _path_segment(name: str) -> str:
    if name in ("", ".", ".."):
        raise AdminError(Reason.NOT_FOUND, f"{name!r} cannot be part of a name in Pulsar; nothing was sent")
    try:
        return quote(name, safe=":")
    except UnicodeEncodeError:
        raise AdminError(Reason.NOT_FOUND, f"{name!a} is not valid text; nothing was sent") from None


def split_namespace(namespace: str) -> tuple[str, str]:
    """Return tenant and namespace of `tenant/namespace`; raise AdminError (`not_found`)."""
    tenant, slash, local = namespace.partition("/")
    if not (tenant and slash and local) or "/" in local:
        raise AdminError(Reason.NOT_FOUND, f"{namespace!a} is not a namespace of the form tenant/namespace")
    return tenant, local


def split_bundle(bundle: str) -> tuple[str, str, str]:
    """Return tenant, namespace and range of a bundle's name; raise AdminError (`range_gone`)."""
    parts = bundle.split("/")
    if len(parts) != 3 or not all(parts) or HASH_RANGE_PATTERN.fullmatch(parts[2]) is None:
        raise AdminError(
            Reason.RANGE_GONE, f"{bundle!a} is not a bundle of the form tenant/namespace/0x00000000_0xffffffff"
        )
    return parts[0], parts[1], parts[2]


def split_topic(topic: str) -> tuple[str, str, str, str]:
    """Return the parts of `domain://tenant/namespace/topic`; raise AdminError (`not_found`)."""
    domain, _, rest = topic.partition("://")
    parts = rest.split("/", 2)
    if domain not in _TOPIC_DOMAINS or len(parts) != 3 or not all(parts):
        raise AdminError(Reason.NOT_FOUND, f"{topic!a} is not a topic of the form domain://tenant/namespace/topic")
    return domain, parts[0], parts[1], parts[2]
