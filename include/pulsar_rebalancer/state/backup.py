"""Copies of the committed decision state beside the runs: what is restored when the state store was lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.state.state_documents import DecisionState

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

KEPT = 2
"""How many copies are kept, and the means that they point to."""

NAME = re.compile(r"decision-(\d{1,18})\.json")
"""Names of copies, with the sequence number."""

_MEANS = re.compile(r"means-.*\.parquet")


def committed_sequences(storage: ClusterStorage) -> list[int]:
    """Return the sequence numbers of the copies, ascending."""
    return sorted(int(found[1]) for name in storage.state.names() if (found := NAME.fullmatch(name)))


def copy_of(storage: ClusterStorage, seq: int) -> StoragePath:
    """Return the file of one copy."""
    return storage.state / f"decision-{seq}.json"


def keep_copy(storage: ClusterStorage, state: DecisionState) -> None:
    """Write the copy of a state that the store already holds, and delete what no kept copy needs.

    Repeating it changes nothing. The means that a kept copy points to are kept as well, and all of them beside a copy
    that cannot be read: a reset is the way out of a state that another release wrote. Copies with a higher sequence
    number belong to a store that was rolled back since: they go.
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
