"""Copies of the committed decision state, stored under the storage root.

A lost state store can be restored from them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.state.state_documents import DecisionState

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

KEPT = 2
"""Number of copies kept, each with the files that it refers to."""

NAME = re.compile(r"decision-([0-9]{1,18})\.json")
"""Pattern for the copies' file names, which contain the sequence number."""

_REFERRED_TO = re.compile(r"(?:means|costs)-.*\.parquet")


def committed_sequences(storage: ClusterStorage) -> list[int]:
    """Return the sequence numbers of the copies in ascending order."""
    return sorted(int(match[1]) for name in storage.state.names() if (match := NAME.fullmatch(name)))


def copy_of(storage: ClusterStorage, seq: int) -> StoragePath:
    """Return the path of the copy with this sequence number."""
    return storage.state / f"decision-{seq}.json"


def keep_copy(storage: ClusterStorage, state: DecisionState) -> None:
    """Write a copy of a state that is already in the store, and delete files that no remaining copy needs.

    Repeated calls have no further effect. Files of moving averages and costs are kept if a remaining copy needs them.
    If a copy is unreadable, for example because another release wrote it, all of them are kept; a reset resolves this.
    Copies with a higher sequence number are deleted, because the store was rolled back after they were written.
    """
    copy_of(storage, state.seq).write_json(state.model_dump(mode="json"))
    sequences = committed_sequences(storage)
    kept = [seq for seq in sequences if seq <= state.seq][-KEPT:]
    for seq in sorted(set(sequences) - set(kept)):
        copy_of(storage, seq).delete()
    try:
        needed = {name for seq in kept for name in DecisionState.parse(copy_of(storage, seq).read_json()).files}
    except (SnapshotError, StateError):
        return
    for name in storage.state.names():
        if _REFERRED_TO.fullmatch(name) and name not in needed:
            (storage.state / name).delete()
