"""Build URL paths from Pulsar names. A name always becomes a single path segment."""

from __future__ import annotations

import re
from urllib.parse import quote

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Reason

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
