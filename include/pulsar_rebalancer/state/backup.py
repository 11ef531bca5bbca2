"""Copies of the committed decision state, stored next to the runs, to restore a lost state store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.state.state_documents import DecisionState

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

KEPT = 2
"""Number of copies kept, with the means that they refer to."""

NAME = re.compile(r"decision-([0-9]{1,18})\.json")
"""File names of copies, with the sequence number."""

_MEANS = re.compile(r"means-.*\.parquet")


def committed_sequences(storage: ClusterStorage) -> list[int]:
    """Return the sequence numbers of the copies, ascending."""
    return sorted(int(match[1]) for name in storage.state.names() if (match := NAME.fullmatch(name)))


def copy_of(storage: ClusterStorage, seq: int) -> StoragePath:
    """Return the file of a copy."""
    return storage.state / f"decision-{seq}.json"


def keep_copy(storage: ClusterStorage, state: DecisionState) -> None:
    """Write the copy of a state that the store already holds, and delete files that no kept copy needs.

    Repeating it changes nothing. The means of every kept copy stay; if a copy cannot be read, all means stay, because
    it may come from another release, and a reset resolves that. Copies with a higher sequence number are deleted: the
    store has been rolled back since.
    """
    copy_of(storage, state.seq).write_json(state.model_dump(mode="json"))
    sequences = committed_sequences(storage)
    kept = [seq for seq in sequences if seq <= state.seq][-KEPT:]
    for seq in sorted(set(sequences) - set(kept)):
        copy_of(storage, seq).delete()
    try:
        needed = {DecisionState.parse(copy_of(storage, seq).read_json()).means for seq in kept}
    except (SnapshotError, StateError):
        return
    for name in storage.state.names():
        if _MEANS.fullmatch(name) and name not in needed:
            (storage.state / name).delete()
