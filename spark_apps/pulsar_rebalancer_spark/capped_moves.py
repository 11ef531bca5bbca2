"""The moves table with caps on what is taken, and its waves: taken bundles are on the driver, the others are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.run.tables import MOVES, table
from pulsar_rebalancer.strategies import caps, rows
from pulsar_rebalancer_spark import tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer.strategies.sample import CandidateMove


def write(
    walked: DataFrame, moves: StoragePath, settings: Settings, groups: Mapping[str, str], *, by_range: bool
) -> None:
    """Write the moves table after the caps, each taken bundle with its wave (see `strategies.caps`).

    Args:
        walked: the moves table before caps, as `selection.select` gives it.
        moves: where it is to lie, as a folder of files.
        settings: the caps.
        groups: anti-affinity group by namespace.
        by_range: whether moves of the same hash range need waves.
    """
    draft = moves.beside("walked.parquet")
    tables.write(walked, draft)
    cap(draft, moves, settings, groups, by_range=by_range)
    draft.delete()


def cap(
    draft: StoragePath, moves: StoragePath, settings: Settings, groups: Mapping[str, str], *, by_range: bool
) -> None:
    """Write the moves table from the one before the caps, a folder of files as well; see `write`."""
    parts = [draft / name for name in draft.names() if name.endswith(".parquet") and not name.startswith(".")]
    taken: list[CandidateMove] = []
    for part in parts:
        found = part.read_table()
        taken += map(rows.move, found.filter(found["taken"]).to_pylist())
    after = {(move.pair, move.rank): move for move in caps.apply(taken, settings, groups, by_range=by_range)}
    for part in parts:
        # One part after the other: the driver never holds all candidates.
        (moves / part.name).write_table(_capped(part.read_table(), after))


def _capped(walked: pa.Table, after: Mapping[tuple[int, int], CandidateMove]) -> pa.Table:
    """Return a part of the moves table as the caps leave it."""
    mask = walked["taken"].combine_chunks()
    keys = walked.select(["pair", "rank"]).filter(mask).to_pylist()
    moves = [after[key["pair"], key["rank"]] for key in keys]
    replaced = table(
        [{"taken": move.taken, "reason": move.reason, "wave": move.wave} for move in moves],
        pa.schema([MOVES.field(name) for name in ("taken", "reason", "wave")]),
    )
    for name in replaced.column_names:
        column = pc.replace_with_mask(walked[name], mask, replaced[name].combine_chunks())
        walked = walked.set_column(MOVES.get_field_index(name), MOVES.field(name), column)
    return walked.cast(MOVES)
