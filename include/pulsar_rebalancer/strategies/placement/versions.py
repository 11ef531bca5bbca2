"""Find the brokers with the latest release (Pulsar's BrokerVersionFilter)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SEMANTIC_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


def latest(candidates: Sequence[str], versions: Mapping[str, str | None]) -> list[str]:
    """Return the candidates with the latest version; empty if a version cannot be read (BrokerVersionFilter)."""
    parsed = {broker: _version(versions.get(broker)) for broker in candidates}
    if not parsed or None in parsed.values():
        return []
    newest = max(version for version in parsed.values() if version is not None)
    return [broker for broker in candidates if parsed[broker] == newest]


class _Release(NamedTuple):
    """A semantic version that can be compared with others. A pre-release is earlier than its release."""

    numbers: tuple[int, ...]
    is_release: bool
    identifiers: tuple[tuple[bool, int, str], ...]


def _version(text: str | None) -> _Release | None:
    match = _SEMANTIC_VERSION.fullmatch(text or "")
    if match is None:
        return None
    identifiers = match[4].split(".") if match[4] else []
    order = tuple((not i.isdecimal(), int(i) if i.isdecimal() else 0, i) for i in identifiers)
    return _Release(tuple(int(match[n]) for n in (1, 2, 3)), not identifiers, order)
