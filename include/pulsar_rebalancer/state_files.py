"""The files of the state folder: which of them nobody needs any more."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer import copies
from pulsar_rebalancer.extensible import heard
from pulsar_rebalancer.sweeping import Entry, Kind, below, entries, walk

if TYPE_CHECKING:
    from collections.abc import Collection

    from pulsar_rebalancer.storage import Folder

_MEANS = re.compile(r"means-\d{1,18}-[0-9a-f]{8}\.parquet")
_EXPORT = re.compile(r"export-(\d{8}T\d{6}Z)\.json")
_CHANGE = re.compile(r"change-[0-9A-Za-z_.-]+\.json")
_DRAFT = re.compile(r"\.[A-Za-z0-9=_.-]+\.(?:json|parquet)\.[0-9a-f]{8}")

_GRACE = timedelta(days=1)
"""A younger file may be of a run under way: decide writes means before record makes the state point to them."""

_NEVER = datetime.max.replace(tzinfo=UTC)


def is_draft(entry: Entry) -> bool:
    """Whether the entry is what a task that was killed left of a file it was writing."""
    return entry.kind is Kind.FILE and _DRAFT.fullmatch(entry.path) is not None


def sort_out(
    folder: Folder, held: Collection[str] | None, now: datetime, retention_days: int
) -> tuple[dict[str, list[Entry]], list[str]]:
    """What can go from a state folder.

    Records of changes stay for ever: they say who changed what, and why. So does the one file of published load data.

    Args:
        folder: the state folder.
        held: names that the state needs; None when it is lost, so that copies and means may be needed to restore it.
        now: the present.
        retention_days: age from which exports go; 0: never.

    Returns:
        What can go, by `copies`, `means`, `exports` and `drafts`; and names that are not the rebalancer's.
    """
    old: dict[str, list[Entry]] = defaultdict(list)
    foreign = []
    for entry in entries(folder):
        kind = _kind(entry)
        if kind is None:
            foreign.append(entry.path)
        elif kind == "exports":
            if retention_days and _written(entry) < now - timedelta(days=retention_days):
                old[kind].append(entry)
        elif kind in ("copies", "means") and (held is None or entry.path in held):
            continue
        elif kind not in ("changes", "load data"):
            content = _content(folder, entry)
            times = [found.changed_at for found in content if found.changed_at]
            if times and max(times) < now - _GRACE:
                old[kind] += content
    return dict(old), foreign


def _kind(entry: Entry) -> str | None:
    if entry.kind is Kind.OTHER:
        return None
    if _MEANS.fullmatch(entry.path):
        return "means"  # Spark may write a folder
    if entry.kind is Kind.FOLDER:
        return None
    if is_draft(entry):
        return "drafts"
    if entry.path == heard.FILE:
        return "load data"
    named = {"copies": copies.NAME, "exports": _EXPORT, "changes": _CHANGE}
    return next((kind for kind, pattern in named.items() if pattern.fullmatch(entry.path)), None)


def _content(folder: Folder, entry: Entry) -> list[Entry]:
    """The entry itself, and what it holds."""
    return [entry] if entry.kind is Kind.FILE else [entry, *below(entry.path, walk(folder / entry.path))[1:]]


def _written(entry: Entry) -> datetime:
    found = _EXPORT.fullmatch(entry.path)
    try:
        return datetime.strptime(found[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) if found else _NEVER
    except ValueError:
        return _NEVER
