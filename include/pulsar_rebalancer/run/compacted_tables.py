"""The history of a cluster: one table per day and kind, compacted from the day's runs.

Files are `<root>/<cluster>/history/<kind>/date=YYYY-MM-DD.parquet`; each has the column `run`. The
kinds are a run's tables and `runs`: one row per run with its documents as JSON and its number of rows
in each table.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath, convert_damage_errors, convert_io_errors, make_private_folder

TABLES: dict[str, tuple[str, pa.Schema]] = {
    "cluster": ("input/cluster.parquet", tables.CLUSTER),
    "brokers": ("input/brokers.parquet", tables.BROKERS),
    "bundles": ("input/bundles.parquet", tables.BUNDLES),
    "decisions": ("plan/decisions.parquet", tables.DECISIONS),
    "moves": ("plan/moves.parquet", tables.MOVES),
    "splits": ("plan/splits.parquet", tables.SPLITS),
}
"""For each kind of table: the path below a run's folder, and the columns."""

DOCUMENTS = {
    "settings": "input/settings.json",
    "state": "input/state.json",
    "validation": "validation.json",
    "plan_state": "plan/state.json",
    "summary": "plan/summary.json",
    "outcome": "outcome.json",
    "page": "validation/index.html",
}
"""For each document column of `runs`: the path below a run's folder. `documents` has all other JSON files."""

RUNS = "runs"
TABLE_KINDS = (*TABLES, RUNS)
"""The order in which tables are published. `runs` is last, so every run in it is complete in the other tables."""

_RUN_COLUMNS: list[pa.Field[Any]] = [
    pa.field("run", pa.string()),  # name of the run's folder
    pa.field("collected_at", tables.TIME_TYPE),
    *(pa.field(name, pa.string()) for name in DOCUMENTS),  # null when the run has no such document
    pa.field("documents", pa.map_(pa.string(), pa.string())),  # path to text
    *(pa.field(f"{kind}_rows", pa.int64()) for kind in TABLES),  # null when the run has no such table
]
RUNS_SCHEMA = pa.schema(_RUN_COLUMNS, metadata={"version": "1"})

_MAX_ROWS = 131_072
_MAX_BYTES = 64 * 1024 * 1024
"""A row group is written once it has `_MAX_ROWS` rows, or takes `_MAX_BYTES` bytes of memory."""


def table_file(storage: ClusterStorage, table: str, day: date) -> StoragePath:
    return storage.base / "history" / table / f"date={day.isoformat()}.parquet"


def with_run_column(schema: pa.Schema) -> pa.Schema:
    return schema if "run" in schema.names else schema.insert(0, pa.field("run", pa.string()))


class TableDraft:
    """A context manager for a table that is being written; it is published at `target` only once complete.

    Writing needs memory for only one row group, whatever the size of the table.
    """

    def __init__(self, target: StoragePath, schema: pa.Schema) -> None:
        self._target = target
        self._schema = schema
        self.file = target.sibling(f".{target.name}.{secrets.token_hex(4)}")
        with convert_io_errors(self.file.uri, "written"):
            self._sink = _open_private_file(self.file)
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")
        self._waiting: list[pa.Table] = []
        self._published = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; delete an unpublished one even if closing fails, for example because the disk is full."""
        if self._published:
            return
        try:
            with suppress(OSError):
                self._writer.close()
            with suppress(OSError):
                self._sink.close()
        finally:
            self.file.delete()

    def add_rows(self, table: pa.Table, run_name: str | None = None) -> None:
        """Append rows; missing columns become null, and `run_name` is None if the table has that column.

        Raises ArrowInvalid if a value does not fit its column, or SnapshotError `storage_failed`.
        """
        columns = [self._typed_column(table, field, run_name) for field in self._schema]
        self._waiting.append(pa.Table.from_arrays(columns, schema=self._schema))
        if sum(t.num_rows for t in self._waiting) >= _MAX_ROWS or sum(t.nbytes for t in self._waiting) >= _MAX_BYTES:
            self._write_row_group()

    @staticmethod
    def _typed_column(table: pa.Table, field: pa.Field[Any], run_name: str | None) -> Any:
        if run_name is not None and field.name == "run":
            return pa.repeat(run_name, table.num_rows)
        if field.name not in table.column_names:
            return pa.nulls(table.num_rows, field.type)
        return table[field.name].cast(field.type)

    def _write_row_group(self) -> None:
        if self._waiting:
            with convert_io_errors(self.file.uri, "written"):
                self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting = []

    def close_file(self) -> None:
        self._write_row_group()
        with convert_io_errors(self.file.uri, "written"):
            self._writer.close()
            if not isinstance(self._sink, pa.NativeFile):
                self._sink.flush()
                os.fsync(self._sink.fileno())
            self._sink.close()

    def publish(self) -> None:
        file_system, path = self.file.filesystem_and_path()
        with convert_io_errors(self._target.uri, "written"):
            file_system.move(path, self._target.filesystem_and_path()[1])
        self._published = True


def _open_private_file(file: StoragePath) -> IO[bytes] | pa.NativeFile:
    file_system, path = file.filesystem_and_path()
    if not isinstance(file_system, pafs.LocalFileSystem):
        return file_system.open_output_stream(path)
    make_private_folder(Path(path).parent)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def open_parquet(file: StoragePath, dictionaries: list[str] | None = None) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, with the columns `dictionaries` as dictionaries.

    Raises SnapshotError `file_missing`, `file_damaged` or `storage_failed`.
    """
    file_system, path = file.filesystem_and_path()
    with (
        convert_io_errors(file.uri, "read"),
        convert_damage_errors(file.uri),
        pq.ParquetFile(path, filesystem=file_system, read_dictionary=dictionaries) as source,
    ):
        yield source


def read_footer(file: StoragePath) -> tuple[pa.Schema, int]:
    with open_parquet(file) as source:
        return source.schema_arrow, source.metadata.num_rows


def may_have_nulls(file: StoragePath, column: str) -> bool:
    """Return whether a column might have nulls, by the file's footer. Raises as `open_parquet` does."""
    with open_parquet(file) as source:
        footer, place = source.metadata, source.schema_arrow.get_field_index(column)
        groups = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
    return any(statistics is None or statistics.null_count != 0 for statistics in groups)


def refuse_other_version(stored_schema: pa.Schema, current_schema: pa.Schema, label: str) -> None:
    """Raise SnapshotError `file_damaged` for another version, whose columns might mean something else.

    Tables from Spark have no version.
    """
    version, reads = tables.version_of(stored_schema), tables.version_of(current_schema)
    if version not in ("", reads):
        raise SnapshotError(Reason.FILE_DAMAGED, f"{label} has version {version}; this release reads version {reads}")


def row_count_by_run(file: StoragePath) -> Counter[str]:
    counts: Counter[str] = Counter()
    if file.exists():
        for table in file.read_batches(["run"]):
            counted = table.group_by("run").aggregate([("run", "count")])
            counts.update(dict(zip(*counted.select(["run", "run_count"]).to_pydict().values(), strict=True)))
    return counts


def compacted_runs(storage: ClusterStorage, day: date) -> set[str]:
    """Return the day's runs that are complete in the history.

    Raises SnapshotError `file_damaged` if another release wrote the table.
    """
    listed = table_file(storage, RUNS, day)
    if not listed.exists():
        return set()
    refuse_other_version(read_footer(listed)[0], RUNS_SCHEMA, listed.uri)
    columns = ["run", *(f"{kind}_rows" for kind in TABLES)]
    expected = {row["run"]: row for table in listed.read_batches(columns) for row in table.to_pylist()}
    held = {kind: row_count_by_run(table_file(storage, kind, day)) for kind in TABLES}
    return {run for run, row in expected.items() if all(held[k][run] == (row[f"{k}_rows"] or 0) for k in TABLES)}


def compacted_documents(runs_table: StoragePath, run_name: str, columns: Sequence[str]) -> dict[str, str | None]:
    """Return a compacted run's documents from its day's table `runs`; empty if that has no row for it.

    Raises SnapshotError `file_missing`, `file_damaged` or `storage_failed`.
    """
    for table in runs_table.read_batches(["run", *columns]):
        for row in table.filter(pc.field("run") == run_name).to_pylist():
            return row
    return {}


_NAME_COLUMNS = {"broker", "bundle", "run"}


def read_run_table(run: StoragePath, table: str, columns: Sequence[str]) -> pa.Table:
    """Check a table (`compacted_tables.TABLES`) in a run's folder, and return some of its columns.

    Raises SnapshotError `file_missing`, `file_damaged`; it names file, column and row.
    """
    path, today = TABLES[table]
    _check_columns(run / path, columns, today)
    return (run / path).read_table(list(columns))


def read_day_table(file: StoragePath, table: str, columns: Sequence[str], run_names: Collection[str]) -> pa.Table:
    """Check a table of a day, and return `run` and other columns of some runs. Raises as `read_run_table` does."""
    wanted, names = ["run", *columns], pa.array(sorted(run_names), pa.string())
    _check_columns(file, wanted, TABLES[table][1])
    return pa.concat_tables(part.filter(pc.is_in(part["run"], names)) for part in file.read_batches(wanted))


def encoded_batches(file: StoragePath, table: str, columns: Sequence[str], dict_names: list[str]) -> Iterator[pa.Table]:
    """Yield a table's columns in batches of rows. Raises the same errors as `read_run_table`.

    The columns `dict_names` are Arrow dictionaries, which need less memory if values repeat.
    """
    _check_columns(file, columns, TABLES[table][1])
    with open_parquet(file, dict_names) as source:
        for batch in source.iter_batches(columns=list(columns)):
            yield pa.Table.from_batches([batch])


def _check_columns(file: StoragePath, columns: Iterable[str], current_schema: pa.Schema) -> None:
    schema = read_footer(file)[0]
    refuse_other_version(schema, current_schema, file.uri)
    for name in columns:
        if name not in schema.names:
            raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri} has no column {name}")
        kind, wanted = schema.field(name).type, pa.string() if name == "run" else current_schema.field(name).type
        if not (pa.types.is_null(kind) or _can_cast(kind, wanted)):
            where = _first_non_number(file, name) if pa.types.is_string(kind) else ""
            raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri}: column {name} holds {kind}, not {wanted}{where}")
    _refuse_null_names(file, [name for name in columns if name in _NAME_COLUMNS])


def _can_cast(stored_type: pa.DataType, current_type: pa.DataType) -> bool:
    if pa.types.is_string(current_type):
        return pa.types.is_string(stored_type)
    if pa.types.is_timestamp(current_type):
        return pa.types.is_timestamp(stored_type)
    return pa.types.is_integer(stored_type) or pa.types.is_floating(stored_type)


def _refuse_null_names(file: StoragePath, columns: Iterable[str]) -> None:
    for name in columns:
        before = 0
        for table in file.read_batches([name]) if may_have_nulls(file, name) else ():
            missing = np.flatnonzero(table[name].is_null().to_numpy())
            if len(missing):
                row = before + int(missing[0]) + 1
                raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri}: column {name}, row {row}: the name is missing")
            before += table.num_rows


def _first_non_number(file: StoragePath, column: str) -> str:
    before = 0
    for table in file.read_batches([column]):
        texts: list[Any] = table[column].to_pylist()
        for row, text in enumerate(texts, before + 1):
            try:
                float(text or 0)
            except ValueError:
                return f" (row {row}: {text[:80]!r})"
        before += table.num_rows
    return ""
