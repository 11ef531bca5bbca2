"""The tables of runs, from run folders or compacted tables, as columns for a recording."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.replay.columns import FIGURES
from pulsar_rebalancer.run.checked_tables import coded_batches, read_day, read_run
from pulsar_rebalancer.run.tables import AVERAGES, LARGEST, RESOURCES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pulsar_rebalancer.replay.columns import Floats, Ints
    from pulsar_rebalancer.replay.writing import Writer
    from pulsar_rebalancer.storage.path import StoragePath

_BROKER_COLUMNS = (
    "broker",
    "error",
    "report_age_seconds",
    *(f"{name}_{part}" for name in RESOURCES for part in ("usage", "limit")),
    *FIGURES,
    *AVERAGES,
    "version",
    "started_at",
)
_BUNDLE_COLUMNS = ("broker", "bundle", *FIGURES)


@dataclass
class Held:
    """Some or all of a run's bundles. `bundles` and `owner` are numbers in `Names`; `carried` has a row per figure."""

    bundles: Ints
    owner: Ints
    carried: Floats

    @classmethod
    def of(cls, writer: Writer, table: pa.Table) -> Held:
        """Return the bundles from the rows of a bundles table."""
        bundles, owner = writer.bundles.numbers(table["bundle"]), writer.brokers.numbers(table["broker"])
        return cls(bundles, owner, carried(table))

    @classmethod
    def joined(cls, pieces: list[Held]) -> Held:
        """Join the pieces of one run."""
        return cls(
            np.concatenate([piece.bundles for piece in pieces]),
            np.concatenate([piece.owner for piece in pieces]),
            np.concatenate([piece.carried for piece in pieces], axis=1),
        )


def brokers_of(run: StoragePath) -> pa.Table:
    """Return a run's brokers from its folder.

    Raises:
        SnapshotError: as in `read_run`.
    """
    return read_run(run, "brokers", _BROKER_COLUMNS)


def brokers_of_day(file: StoragePath, runs: Collection[str]) -> pa.Table:
    """Return the brokers of some of a day's runs.

    Raises:
        SnapshotError: as in `read_run`.
    """
    return read_day(file, "brokers", _BROKER_COLUMNS, runs)


def bundles_of(run: StoragePath, writer: Writer) -> Held:
    """Return a run's bundles from its folder.

    Raises:
        SnapshotError: as in `read_run`.
    """
    return Held.of(writer, read_run(run, "bundles", _BUNDLE_COLUMNS))


def pieces_of(file: StoragePath, writer: Writer) -> Iterator[tuple[str, Held]]:
    """Yield the bundles of a day's runs in file order; a run's bundles can come in several pieces.

    Raises:
        SnapshotError: as in `read_run`.
    """
    for table in coded_batches(file, "bundles", ("run", *_BUNDLE_COLUMNS), coded=["run", "broker", "bundle"]):
        runs: Any = table["run"].combine_chunks()
        codes = runs.indices.to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        held = Held.of(writer, table)
        for start, end in pairwise(bounds):
            part = slice(start, end)
            yield runs[start].as_py(), Held(held.bundles[part], held.owner[part], held.carried[:, part])


def floats(column: pa.ChunkedArray[Any], missing: float) -> Floats:
    """Return a column of numbers, with `missing` for nulls."""
    filled: Any = pc.fill_null(column.cast(pa.float64()), pa.scalar(missing))
    return np.asarray(filled.to_numpy())


def started(brokers: pa.Table) -> Floats:
    """Return the start times of the brokers' processes, in seconds since 1970; NaN where unknown."""
    return floats(brokers["started_at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), np.nan) / 1e6


def carried(table: pa.Table) -> Floats:
    """Return the load of brokers or bundles, with a row for each of `FIGURES`.

    A figure that is missing, negative, NaN or implausibly large becomes 0.
    """
    return np.array([_figures(table[name]) for name in FIGURES])


def _figures(column: pa.ChunkedArray[Any]) -> Floats:
    figures = np.nan_to_num(floats(column, 0.0), posinf=0.0, neginf=0.0)
    return np.where((figures < 0) | (figures > LARGEST["msg_throughput_out"]), 0.0, figures)
