"""The moves table with caps on what is taken, and its waves: taken bundles are on the driver, the others are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.strategies import caps, rows
from pulsar_rebalancer_spark import tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath

TAKEN, LEFT = "goes=true", "goes=false"
"""Folders of the draft."""


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
    # Both files of a task at once: else Spark would sort the rows by what they are told apart by.
    walked.sparkSession.conf.set("spark.sql.maxConcurrentOutputFileWriters", 2)
    tables.write(walked.withColumn("goes", F.col("taken")), draft, by="goes")
    cap(draft, moves, settings, groups, by_range=by_range)
    draft.delete()


def cap(
    draft: StoragePath, moves: StoragePath, settings: Settings, groups: Mapping[str, str], *, by_range: bool
) -> None:
    """Write the moves table from the one before the caps, in which taken bundles lie by themselves; see `write`."""
    taken = [row for part in _parts(draft / TAKEN) for row in part.read_table().to_pylist()]
    after = caps.apply(map(rows.move, taken), settings, groups, by_range=by_range)
    (moves / "taken.parquet").write_table(rows.move_table(taken[0]["cluster"] if taken else "", after))
    for part in _parts(draft / LEFT):
        # The driver never reads them.
        part.move_to(moves / part.name)


def _parts(folder: StoragePath) -> list[StoragePath]:
    return [folder / name for name in folder.names() if name[0] not in "._"]
