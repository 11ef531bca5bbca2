"""Read tables from run folders or from compacted files, and reject invalid tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.compacted_tables import TABLES, footer_of, nulls_in, opened, refuse_other

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pulsar_rebalancer.storage.path import StoragePath

_NAMES = {"broker", "bundle", "run"}


def read_run(run: StoragePath, kind: str, columns: Sequence[str]) -> pa.Table:
    """Check a table of a run, and return some of its columns.

    Args:
        run: the run's folder.
        kind: the table's kind (`compacted_tables.TABLES`).

    Raises:
        SnapshotError: `file_missing`, `file_version` or `file_damaged`; the message names the file, column and row.
    """
    path, today = TABLES[kind]
    _check(run / path, columns, today)
    return (run / path).read_table(list(columns))


def read_day(file: StoragePath, kind: str, columns: Sequence[str], runs: Collection[str]) -> pa.Table:
    """Check a table of a day, and return the column `run` and some others of these runs. Errors: as in `read_run`."""
    wanted, names = ["run", *columns], pa.array(sorted(runs), pa.string())
    _check(file, wanted, TABLES[kind][1])
    return pa.concat_tables(part.filter(pc.is_in(part["run"], names)) for part in file.read_batches(wanted))


def coded_batches(file: StoragePath, kind: str, columns: Sequence[str], coded: list[str]) -> Iterator[pa.Table]:
    """Yield a table's columns in batches of rows. The other arguments and the errors are as in `read_run`.

    Args:
        coded: columns to read as Arrow dictionaries, which need less memory if values repeat.
    """
    _check(file, columns, TABLES[kind][1])
    with opened(file, coded) as source:
        for batch in source.iter_batches(columns=list(columns)):
            yield pa.Table.from_batches([batch])


def _check(file: StoragePath, columns: Iterable[str], today: pa.Schema) -> None:
    """Reject a table with another version, a missing column, a column of the wrong type, or a row without a name."""
    schema = footer_of(file)[0]
    refuse_other(schema, today, file.uri)
    for name in columns:
        if name not in schema.names:
            raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri} has no column {name}")
        kind = schema.field(name).type
        if not (pa.types.is_null(kind) or _fits(kind, pa.string() if name == "run" else today.field(name).type)):
            where = _first_text(file, name) if pa.types.is_string(kind) else ""
            raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri}: column {name} holds {kind}{where}")
    _refuse_nameless(file, [name for name in columns if name in _NAMES])


def _fits(kind: pa.DataType, today: pa.DataType) -> bool:
    if pa.types.is_string(today):
        return pa.types.is_string(kind)
    if pa.types.is_timestamp(today):
        return pa.types.is_timestamp(kind)
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _refuse_nameless(file: StoragePath, columns: Iterable[str]) -> None:
    for name in columns:
        before = 0
        for table in file.read_batches([name]) if nulls_in(file, name) else ():
            missing = np.flatnonzero(table[name].is_null().to_numpy())
            if len(missing):
                row = before + int(missing[0]) + 1
                raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri}: column {name}, row {row}: there is no name")
            before += table.num_rows


def _first_text(file: StoragePath, column: str) -> str:
    """Return text with the first non-numeric value and its row number, counted from 1; empty if there is none.

    The column should be numeric, but the file stores it as text.
    """
    before = 0
    for table in file.read_batches([column]):
        texts: list[Any] = table[column].to_pylist()
        for row, text in enumerate(texts, before + 1):
            try:
                float(text or 0)
            except ValueError:
                return f", row {row}: {text[:80]!r}"
        before += table.num_rows
    return ""
