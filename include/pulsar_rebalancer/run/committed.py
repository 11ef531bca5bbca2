"""`committed.json`: the mark of a run whose plan's state is in the state store. Only the *record* task writes it."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import AwareDatetime

from pulsar_rebalancer.storage.documents import ClusterStorage, VersionedDocument
from pulsar_rebalancer.storage.path import StoragePath


class Committed(VersionedDocument):
    """The mark in a run's folder.

    It shows that the state store has held documents, and from which plan a lost state can be restored.

    Attributes:
        seq: sequence number of the state.
        at: when the state was stored.
    """

    FILE: ClassVar[str] = "committed.json"

    seq: int
    at: AwareDatetime


def last_committed(storage: ClusterStorage, until: datetime) -> StoragePath | None:
    """Return the folder of the latest committed run up to a given time; None if there is none.

    Raises:
        SnapshotError: `storage_failed`.
    """
    return next((run for run in storage.latest_runs(until) if (run / Committed.FILE).exists()), None)
