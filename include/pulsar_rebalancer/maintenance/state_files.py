"""Find the files in the state folder that are no longer needed."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Self

from pulsar_rebalancer.state import backup
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer.storage.layout import BUNDLE_HARM, CONTROL, DRAINS, LOAD_DATA, ROLL
from pulsar_rebalancer.storage.listing import Entry, Kind, below, entries, walk

if TYPE_CHECKING:
    from collections.abc import Collection

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

_REFERRED_TO = re.compile(r"(?:means|costs)-\d{1,18}-[0-9a-f]{8}\.parquet")
_EXPORT = re.compile(r"export-(\d{8}T\d{6}Z)\.json")
_CHANGE = re.compile(r"change-[0-9A-Za-z_.-]+\.json")
_DRAFT = re.compile(r"\.[A-Za-z0-9=_.-]+\.(?:json|parquet)\.[0-9a-f]{8}")

_GRACE = timedelta(days=1)
"""Minimum age of files to delete: *decide* writes files before *record* commits the state that refers to them."""

_NEVER = datetime.max.replace(tzinfo=UTC)


class Needed(NamedTuple):
    """The runs and files that must be kept because a cluster's state needs them.

    Attributes:
        plans: names of runs whose plans are in the stored state or a copy of it, or may still be carried out.
        files: names of files in the state folder: state copies to keep, and files that the state or a copy refers to.
            None if the stored state is lost, because any file might then be needed to restore it.
    """

    plans: frozenset[str]
    files: frozenset[str] | None

    @classmethod
    def read(cls, storage: ClusterStorage, stored: DecisionState | None, plans: Collection[str] = ()) -> Self:
        """Return the runs and files that must be kept for a stored state and its copies.

        Args:
            stored: the stored state; None if it is lost.
            plans: names of further runs whose plans are needed.

        Raises:
            StateError: `state_version`.
            SnapshotError: a copy cannot be read.
        """
        sequences = backup.committed_sequences(storage)
        # Copies with a higher number are from before the store was rolled back: `keep_copy` deletes them as well.
        kept = sequences if stored is None else [seq for seq in sequences if seq <= stored.seq][-backup.KEPT :]
        copies = [backup.copy_of(storage, seq) for seq in kept]
        states = [DecisionState.parse(copy.read_json()) for copy in copies] + ([stored] if stored else [])
        files = {copy.name for copy in copies}.union(*(state.files for state in states))
        return cls(
            frozenset({*plans, *(state.plan_id for state in states)}), None if stored is None else frozenset(files)
        )


def is_draft(entry: Entry) -> bool:
    """Return whether an entry is an incomplete file left by a killed task."""
    return entry.kind is Kind.FILE and _DRAFT.fullmatch(entry.path) is not None


def unneeded_files(
    folder: StoragePath, needed: Collection[str] | None, now: datetime, retention_days: int
) -> tuple[dict[str, list[Entry]], list[str]]:
    """Return the entries in a state folder that can be deleted.

    These are never deleted: records of changes (who changed what, and why), published load data, drains, orders, the
    rolling restart and the costs of moves.

    Args:
        needed: names of files that must not be deleted, from `Needed.files`.
        retention_days: age in days at which exports are deleted; 0 to keep them forever.

    Returns:
        Entries to delete, by kind (`copies`, `means`, `exports` or `drafts`), and names of files from other programs.
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
        elif kind in ("copies", "means") and (needed is None or entry.path in needed):
            continue
        elif kind not in ("changes", "kept"):
            content = _content(folder, entry)
            times = [part.changed_at for part in content if part.changed_at]
            if times and max(times) < now - _GRACE:
                old[kind] += content
    return dict(old), foreign


def _kind(entry: Entry) -> str | None:
    if entry.kind is Kind.OTHER:
        return None
    if _REFERRED_TO.fullmatch(entry.path):
        return "means"  # Spark may write a folder
    if entry.kind is Kind.FOLDER:
        return None
    if is_draft(entry):
        return "drafts"
    if entry.path in (LOAD_DATA, DRAINS, CONTROL, ROLL, BUNDLE_HARM):
        return "kept"
    named = {"copies": backup.NAME, "exports": _EXPORT, "changes": _CHANGE}
    return next((kind for kind, pattern in named.items() if pattern.fullmatch(entry.path)), None)


def _content(folder: StoragePath, entry: Entry) -> list[Entry]:
    """Return the entry and everything below it."""
    return [entry] if entry.kind is Kind.FILE else [entry, *below(entry.path, walk(folder / entry.path))[1:]]


def _written(entry: Entry) -> datetime:
    match = _EXPORT.fullmatch(entry.path)
    try:
        return datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) if match else _NEVER
    except ValueError:
        return _NEVER
