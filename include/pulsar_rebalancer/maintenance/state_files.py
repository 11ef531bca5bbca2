"""The files of the state folder: which of them nobody needs any more."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Self

from pulsar_rebalancer.state import backup
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer.storage.layout import CONTROL, DRAINS, LOAD_DATA
from pulsar_rebalancer.storage.listing import Entry, Kind, below, entries, walk

if TYPE_CHECKING:
    from collections.abc import Collection

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

_MEANS = re.compile(r"means-\d{1,18}-[0-9a-f]{8}\.parquet")
_EXPORT = re.compile(r"export-(\d{8}T\d{6}Z)\.json")
_CHANGE = re.compile(r"change-[0-9A-Za-z_.-]+\.json")
_DRAFT = re.compile(r"\.[A-Za-z0-9=_.-]+\.(?:json|parquet)\.[0-9a-f]{8}")

_GRACE = timedelta(days=1)
"""A younger file may be of a run under way: decide writes means before record makes the state point to them."""

_NEVER = datetime.max.replace(tzinfo=UTC)


class Needed(NamedTuple):
    """What the state needs of a cluster's files.

    Attributes:
        plans: names of runs whose plans the stored state and its copies hold, or a person may still have carried out.
        files: names below the state folder: kept copies and the means they point to; None when the stored state is
            lost, so that everything in the folder may be needed to restore it.
    """

    plans: frozenset[str]
    files: frozenset[str] | None

    @classmethod
    def read(cls, storage: ClusterStorage, stored: DecisionState | None, plans: Collection[str] = ()) -> Self:
        """Return what a stored state and its copies need.

        Args:
            storage: of the cluster.
            stored: None when it is lost.
            plans: further names of runs whose plans are needed.

        Raises:
            StateError: `state_version`.
            SnapshotError: a copy cannot be read.
        """
        sequences = backup.committed_sequences(storage)
        # Copies of a higher number are of a store that was rolled back since: `keep_copy` does not keep them either.
        kept = sequences if stored is None else [seq for seq in sequences if seq <= stored.seq][-backup.KEPT :]
        copies = [backup.copy_of(storage, seq) for seq in kept]
        states = [DecisionState.parse(copy.read_json()) for copy in copies] + ([stored] if stored else [])
        files = {copy.name for copy in copies} | {state.means for state in states}
        return cls(
            frozenset({*plans, *(state.plan_id for state in states)}), None if stored is None else frozenset(files)
        )


def is_draft(entry: Entry) -> bool:
    """Return whether the entry is what a task that was killed left of a file it was writing."""
    return entry.kind is Kind.FILE and _DRAFT.fullmatch(entry.path) is not None


def unneeded_files(
    folder: StoragePath, needed: Collection[str] | None, now: datetime, retention_days: int
) -> tuple[dict[str, list[Entry]], list[str]]:
    """Return what can go from a state folder.

    Records of changes, which say who changed what and why, stay for ever. So do published load data, drains and orders.

    Args:
        folder: the state folder.
        needed: names that the state needs; None when it is lost, so that copies and means may be needed to restore it.
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
        elif kind in ("copies", "means") and (needed is None or entry.path in needed):
            continue
        elif kind not in ("changes", "kept"):
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
    if entry.path in (LOAD_DATA, DRAINS, CONTROL):
        return "kept"
    named = {"copies": backup.NAME, "exports": _EXPORT, "changes": _CHANGE}
    return next((kind for kind, pattern in named.items() if pattern.fullmatch(entry.path)), None)


def _content(folder: StoragePath, entry: Entry) -> list[Entry]:
    """Yield the entry itself, and what it holds."""
    return [entry] if entry.kind is Kind.FILE else [entry, *below(entry.path, walk(folder / entry.path))[1:]]


def _written(entry: Entry) -> datetime:
    found = _EXPORT.fullmatch(entry.path)
    try:
        return datetime.strptime(found[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) if found else _NEVER
    except ValueError:
        return _NEVER
