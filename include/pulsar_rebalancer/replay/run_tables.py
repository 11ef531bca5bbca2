"""The tables of runs, in folders or compacted, as columns of a recording."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.columns import FIGURES
from pulsar_rebalancer.run.compacted_tables import batches, footer_of, nulls_in, refuse_other
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, LARGEST, RESOURCES
from pulsar_rebalancer.storage.path import damage_of, failures_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pulsar_rebalancer.replay.columns import Floats, Ints
    from pulsar_rebalancer.replay.writing import Writer
    from pulsar_rebalancer.storage.path import StoragePath

AVERAGES = ("load_average", "throughput_average")

_BROKER_COLUMNS = (
    "broker",
    "error",
    "report_age_seconds",
    *(f"{name}_{part}" for name in RESOURCES for part in ("usage", "limit")),
    *FIGURES,
    *AVERAGES,
    "version",
)
_BUNDLE_COLUMNS = ("broker", "bundle", *FIGURES)
_TEXTS = {"broker", "bundle", "error", "run", "version"}
_NAMES = {"broker", "bundle", "run"}
_STARTED = "started_at"


@dataclass
class Held:
    """Bundles of one run, or a part of them: numbers of bundles and brokers, a row for each of `FIGURES`."""

    bundles: Ints
    owner: Ints
    carried: Floats

    @classmethod
    def of(cls, writer: Writer, table: pa.Table) -> Held:
        """Return the rows of a table of bundles."""
        bundles, owner = writer.bundles.numbers(table["bundle"]), writer.brokers.numbers(table["broker"])
        return cls(bundles, owner, carried(table))

    @classmethod
    def joined(cls, pieces: list[Held]) -> Held:
        """Return the parts of one run together."""
        return cls(
            np.concatenate([piece.bundles for piece in pieces]),
            np.concatenate([piece.owner for piece in pieces]),
            np.concatenate([piece.carried for piece in pieces], axis=1),
        )


def brokers_of(file: StoragePath) -> pa.Table:
    """Return the brokers of a run from its folder.

    Raises:
        SnapshotError: as `check`.
    """
    columns = broker_columns(file)
    check(file, columns, BROKERS)
    return file.read_table(columns)


def broker_columns(file: StoragePath) -> list[str]:
    """Return the columns of a table of brokers that a recording is made of; that of their starts may be missing.

    Raises:
        SnapshotError: `file_missing` or `file_damaged`.
    """
    known = _STARTED in footer_of(file)[0].names
    return [*_BROKER_COLUMNS, _STARTED] if known else list(_BROKER_COLUMNS)


def bundles_of(file: StoragePath, writer: Writer) -> Held:
    """Return the bundles of a run from its folder.

    Raises:
        SnapshotError: as `check`.
    """
    check(file, _BUNDLE_COLUMNS, BUNDLES)
    return Held.of(writer, file.read_table(list(_BUNDLE_COLUMNS)))


def pieces_of(file: StoragePath, writer: Writer) -> Iterator[tuple[str, Held]]:
    """Yield the bundles of a day's runs in the order of the file; those of a run may come in several pieces.

    Raises:
        SnapshotError: as `check`.
    """
    check(file, ("run", *_BUNDLE_COLUMNS), BUNDLES)
    file_system, path = file.open()
    coded = ["run", "broker", "bundle"]
    with (
        failures_of(file.uri, "read"),
        damage_of(file.uri),
        pq.ParquetFile(path, filesystem=file_system, read_dictionary=coded) as source,
    ):
        for batch in source.iter_batches(columns=["run", *_BUNDLE_COLUMNS]):
            table = pa.Table.from_batches([batch])
            runs: Any = batch["run"]
            codes = runs.indices.to_numpy()
            bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
            held = Held.of(writer, table)
            for start, end in pairwise(bounds):
                part = slice(start, end)
                yield runs[start].as_py(), Held(held.bundles[part], held.owner[part], held.carried[:, part])


def check(file: StoragePath, columns: Iterable[str], today: pa.Schema) -> None:
    """Refuse a table of another version, and one whose columns are missing, hold something else or lack a name.

    Raises:
        SnapshotError: `file_missing`, `file_version` or `file_damaged`, with file, column and row.
    """
    found = footer_of(file)[0]
    refuse_other(found, today, file.uri)
    for name in columns:
        if name not in found.names:
            raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri} has no column {name}")
        kind = found.field(name).type
        if not (pa.types.is_null(kind) or _kind_of(name)(kind)):
            where = _first_text(file, name) if pa.types.is_string(kind) else ""
            raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri}: column {name} holds {kind}{where}")
    _refuse_nameless(file, [name for name in columns if name in _NAMES])


def _kind_of(column: str) -> Callable[[pa.DataType], bool]:
    if column in _TEXTS:
        return pa.types.is_string
    return pa.types.is_timestamp if column == _STARTED else _is_number


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _refuse_nameless(file: StoragePath, columns: Iterable[str]) -> None:
    for name in columns:
        before = 0
        for table in batches(file, [name]) if nulls_in(file, name) else ():
            missing = np.flatnonzero(table[name].is_null().to_numpy())
            if len(missing):
                row = before + int(missing[0]) + 1
                raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri}: column {name}, row {row}: there is no name")
            before += table.num_rows


def _first_text(file: StoragePath, column: str) -> str:
    """Return the first row of a column of texts, from 1 on, that is no number."""
    before = 0
    for table in batches(file, [column]):
        texts: list[Any] = table[column].to_pylist()
        for row, text in enumerate(texts, before + 1):
            try:
                float(text or 0)
            except ValueError:
                return f", row {row}: {text[:80]!r}"
        before += table.num_rows
    return ""


def floats(column: pa.ChunkedArray[Any], missing: float) -> Floats:
    """Return a column of numbers, `missing` where there is none."""
    filled: Any = pc.fill_null(column.cast(pa.float64()), pa.scalar(missing))
    return np.asarray(filled.to_numpy())


def started(brokers: pa.Table) -> Floats:
    """Return when the processes of brokers started, seconds since 1970, NaN where that is not known."""
    if _STARTED not in brokers.column_names:
        return np.full(brokers.num_rows, np.nan)
    return floats(brokers[_STARTED].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), np.nan) / 1e6


def carried(table: pa.Table) -> Floats:
    """Return what brokers or bundles carry, a row for each of `FIGURES`.

    A figure that is missing, negative, absurd or no number is 0.
    """
    return np.array([_figures(table[name]) for name in FIGURES])


def _figures(column: pa.ChunkedArray[Any]) -> Floats:
    found = np.nan_to_num(floats(column, 0.0), posinf=0.0, neginf=0.0)
    return np.where((found < 0) | (found > LARGEST["msg_throughput_out"]), 0.0, found)
