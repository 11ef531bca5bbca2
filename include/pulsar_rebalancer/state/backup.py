"""Copies of the committed decision state, stored next to the runs. They can restore a lost state store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.state.state_documents import DecisionState

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

KEPT = 2
"""Number of copies kept, each with the file of moving averages (the means) that it refers to."""

NAME = re.compile(r"decision-([0-9]{1,18})\.json")
"""File names of copies; they contain the sequence number."""

_MEANS = re.compile(r"means-.*\.parquet")


def committed_sequences(storage: ClusterStorage) -> list[int]:
    """Return the sequence numbers of the copies, ascending."""
    return sorted(int(match[1]) for name in storage.state.names() if (match := NAME.fullmatch(name)))


def copy_of(storage: ClusterStorage, seq: int) -> StoragePath:
    """Return the file that holds the copy with this sequence number."""
    return storage.state / f"decision-{seq}.json"


def keep_copy(storage: ClusterStorage, state: DecisionState) -> None:
    """Write a copy of a state that the store already holds, and delete files that no kept copy needs.

    Repeating this changes nothing. The means that any kept copy needs stay. If a copy cannot be read, all means stay:
    the copy may come from another release, which a reset resolves. Copies with a higher sequence number are deleted,
    because the store has been rolled back since they were written.
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
