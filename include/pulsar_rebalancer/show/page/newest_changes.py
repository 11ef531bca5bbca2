"""The newest runs that changed a cluster, by their outcomes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.reasons import Trait
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.show.page.page_model import MovedRun
from pulsar_rebalancer.storage.cache import Cache

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

_LOOKED_BACK = 240
"""Maximum number of runs to search."""


class Change(NamedTuple):
    """What an ended run changed.

    Attributes:
        begun: True if the run began to move or split bundles.
        moved: the run, if it moved bundles; else None.
    """

    folder: StoragePath
    ended_at: datetime
    begun: bool
    moved: MovedRun | None


class Changes(NamedTuple):
    """The newest change, and the newest run that moved bundles."""

    newest: Change | None = None
    moved: MovedRun | None = None


_changes: Cache[Change] = Cache(20_000)
"""What each ended run changed, by run folder."""


def newest_changes(storage: ClusterStorage, now: datetime) -> Changes:
    """Return a cluster's newest changes.

    Raises:
        SnapshotError: `storage_failed`.
    """
    newest = None
    for at, folder in islice(storage.dated_runs(now), _LOOKED_BACK):
        change = change_by(folder, at)
        if change is None or not change.begun:
            continue
        newest = newest or change
        if change.moved is not None:
            return Changes(newest, change.moved)
    return Changes(newest)


def change_by(folder: StoragePath, collected_at: datetime) -> Change | None:
    """Return what a run changed; None if it has not ended."""
    known = _changes.get(folder.uri)
    if known is not None:
        return known
    outcome = Outcome.known(folder)
    if outcome is None:
        return None
    planned = [*(move.reason for move in outcome.moves), *(split.reason for split in outcome.splits)]
    begun = [reason for reason in planned if not reason.has(Trait.NOT_BEGUN)]
    moved = MovedRun(folder=folder.name, collected_at=collected_at) if outcome.landed else None
    change = Change(folder, outcome.ended_at, bool(begun), moved)
    # The waves of a stopped run can be cleared; they then carry out the rest.
    return change if len(begun) < len(planned) else _changes.put(folder.uri, change)
