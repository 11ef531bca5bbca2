"""Releases of brokers in their order (BrokerVersionFilter of Pulsar)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SEMANTIC_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


def latest(candidates: Sequence[str], versions: Mapping[str, str | None]) -> list[str]:
    """Return the candidates of the latest version, or none if a version cannot be read (BrokerVersionFilter)."""
    found = {broker: _version(versions.get(broker)) for broker in candidates}
    if not found or None in found.values():
        return []
    newest = max(version for version in found.values() if version is not None)
    return [broker for broker in candidates if found[broker] == newest]


class _Release(NamedTuple):
    """A semantic version in its order: a pre-release comes before its release."""

    numbers: tuple[int, ...]
    is_release: bool
    identifiers: tuple[tuple[bool, int, str], ...]


def _version(text: str | None) -> _Release | None:
    found = _SEMANTIC_VERSION.fullmatch(text or "")
    if found is None:
        return None
    identifiers = found[4].split(".") if found[4] else []
    order = tuple((not i.isdecimal(), int(i) if i.isdecimal() else 0, i) for i in identifiers)
    return _Release(tuple(int(found[n]) for n in (1, 2, 3)), not identifiers, order)
