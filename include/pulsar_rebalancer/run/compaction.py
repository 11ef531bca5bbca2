"""Compact a day's run folders into one table per kind, and check the tables before anything is deleted.

After a crash at any point, all data can still be read: `runs` is published last, and a run's folder is
deleted only after the complete run is in the history. The next attempt continues with what remains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.compacted_tables import (
    DOCUMENTS,
    RUNS,
    RUNS_SCHEMA,
    TABLE_KINDS,
    TABLES,
    TableDraft,
    read_footer,
    refuse_other_version,
    row_count_by_run,
    table_file,
    with_run_column,
)
from pulsar_rebalancer.storage.documents import ClusterStorage, day_of, time_of
from pulsar_rebalancer.storage.path import Entry, EntryKind, StoragePath, entries, walk

_TABLE_FILES = frozenset(path for path, _ in TABLES.values())


class UnreadableRunError(Exception):
    def __init__(self, run: str, cause: str) -> None:
        super().__init__(cause)
        self.run = run


def compact(storage: ClusterStorage, day: date, runs: Sequence[RunFolder], *, dry_run: bool = False) -> dict[str, str]:
    """Add a day's runs to its history; return the error message for each run that could not be read, by name.

    Rows of these runs from an interrupted attempt are replaced. Other rows and all run folders are kept.

    Args:
        dry_run: True to write nothing; damage in a file with a valid footer is then not detected.

    Raises:
        SnapshotError: `file_damaged` or `storage_failed`; the tables are then unchanged.
    """
    unreadable = {}
    readable = []
    for run in runs:
        try:
            check_compactable(run)
            readable.append(run)
        except UnreadableRunError as error:
            unreadable[error.run] = str(error)
    while readable and not dry_run:
        try:
            _write_tables(storage, day, readable)
            break
        except UnreadableRunError as error:  # the run's footers are valid, but its data is not
            unreadable[error.run] = str(error)
            readable = [run for run in readable if run.name != error.run]
    return unreadable


def check_compactable(run: RunFolder) -> None:
    if run.foreign_names:
        raise UnreadableRunError(run.name, f"the run's folder has unknown files: {', '.join(run.foreign_names[:3])}")
    for path in run.size_by_file:
        table = path.partition(".parquet/")[0].removesuffix(".parquet") + ".parquet"
        if ".parquet" in path and not path.rpartition("/")[2].startswith(".") and table not in _TABLE_FILES:
            raise UnreadableRunError(run.name, f"this release does not know the run's table {table}")
    for kind, (_, today) in TABLES.items():
        _merge_run_columns(with_run_column(today), kind, [run])


def _write_tables(storage: ClusterStorage, day: date, runs: Sequence[RunFolder]) -> None:
    names = {run.name for run in runs}
    rows: dict[str, dict[str, int | None]] = {run.name: {} for run in runs}
    with ExitStack() as stack:
        drafts = []
        for kind in TABLE_KINDS:
            target = table_file(storage, kind, day)
            columns = _stored_columns(target, RUNS_SCHEMA if kind == RUNS else TABLES[kind][1])
            schema = columns if kind == RUNS else _merge_run_columns(columns, kind, runs)
            draft = stack.enter_context(TableDraft(target, schema))
            drafts.append(draft)
            expected = _copy_other_runs(draft, target, names)
            for run in runs:
                if kind == RUNS:
                    draft.add_rows(_run_row(run, rows[run.name]))
                    expected[run.name] = 1
                else:
                    rows[run.name][kind] = count = _add_rows(draft, kind, run)
                    expected[run.name] = count or 0
            draft.close_file()
            _check_row_counts(draft, expected)
        for draft in drafts:
            draft.publish()


def _stored_columns(target: StoragePath, current_schema: pa.Schema) -> pa.Schema:
    columns = with_run_column(current_schema)
    try:
        return _merge_file_columns(columns, current_schema, target) if target.exists() else columns
    except pa.ArrowException as error:
        raise SnapshotError(Reason.FILE_DAMAGED, f"{target.uri} has incompatible column types: {error}") from None


def _merge_file_columns(columns: pa.Schema, current_schema: pa.Schema, file: StoragePath) -> pa.Schema:
    stored = read_footer(file)[0]
    refuse_other_version(stored, current_schema, file.uri)
    return pa.unify_schemas([columns, stored], promote_options="permissive")


def _merge_run_columns(columns: pa.Schema, kind: str, runs: Sequence[RunFolder]) -> pa.Schema:
    for run in runs:
        for part in _table_files(run, TABLES[kind][0]):
            try:
                columns = _merge_file_columns(columns, TABLES[kind][1], part)
            except (SnapshotError, pa.ArrowException) as error:
                raise _unreadable_error(run, error) from None
    return columns.with_metadata(TABLES[kind][1].metadata)


def _copy_other_runs(draft: TableDraft, target: StoragePath, replaced_runs: set[str]) -> dict[str, int]:
    if not target.exists():
        return {}
    new = pa.array(sorted(replaced_runs), pa.string())
    for table in target.read_batches():
        draft.add_rows(table.filter(pc.invert(pc.is_in(table["run"], value_set=new))))
    return {run: count for run, count in row_count_by_run(target).items() if run not in replaced_runs}


def _add_rows(draft: TableDraft, kind: str, run: RunFolder) -> int | None:
    parts = _table_files(run, TABLES[kind][0])
    try:
        for part in parts:
            for table in part.read_batches():
                draft.add_rows(table, run.name)
        return sum(read_footer(part)[1] for part in parts) if parts else None
    except (SnapshotError, pa.ArrowException) as error:
        raise _unreadable_error(run, error) from None


def _unreadable_error(run: RunFolder, error: Exception) -> Exception:
    passing = isinstance(error, SnapshotError) and error.reason is Reason.STORAGE_FAILED
    return error if passing else UnreadableRunError(run.name, str(error))


def _table_files(run: RunFolder, path: str) -> list[StoragePath]:
    if path in run.size_by_file:
        return [run.folder / path]
    parts = [name for name in run.size_by_file if name.startswith(f"{path}/") and name.endswith(".parquet")]
    return [run.folder / name for name in sorted(parts) if not name.rpartition("/")[2].startswith((".", "_"))]


def _run_row(run: RunFolder, row_counts: Mapping[str, int | None]) -> pa.Table:
    try:
        texts = {
            path: (run.folder / path).read_bytes().decode()
            for path in sorted(run.size_by_file)
            if path in DOCUMENTS.values() or (path.endswith(".json") and ".parquet/" not in path)
        }
    except (SnapshotError, UnicodeDecodeError) as error:
        raise _unreadable_error(run, error) from None
    columns = {name: texts.pop(path, None) for name, path in DOCUMENTS.items()}
    counts = {f"{kind}_rows": row_counts[kind] for kind in TABLES}
    row = {"run": run.name, "collected_at": run.sampled_at, **columns, "documents": sorted(texts.items()), **counts}
    return pa.Table.from_pylist([row], schema=RUNS_SCHEMA)


def _check_row_counts(draft: TableDraft, expected_rows: Mapping[str, int]) -> None:
    written = row_count_by_run(draft.file)
    wrong = sorted(run for run in expected_rows.keys() | written.keys() if expected_rows.get(run, 0) != written[run])
    if wrong:
        run = wrong[0]
        raise SnapshotError(
            Reason.FILE_DAMAGED,
            f"{draft.file.uri} has {written[run]} rows of run {run} instead of {expected_rows.get(run, 0)}; "
            "tables and runs of this day were not changed",
        )


_OUR_FILE = re.compile(
    r"(?:[a-z_]+/)?[a-z0-9_-]+\.(?:json|parquet|html)"
    r"|(?:[a-z_]+/)?\.[a-z0-9_-]+\.(?:json|parquet|html)\.[0-9a-f]{8}"  # a draft left by a killed task
    r"|[a-z_]+/[a-z0-9_-]+\.parquet/.+"  # a part of a table that Spark wrote
)
_OUR_FOLDER = re.compile(r"[a-z_]+(?:/[a-z0-9_-]+\.parquet(?:/.+)?)?")


@dataclass(frozen=True)
class RunFolder:
    """A run's folder; `foreign_names` are entries that the rebalancer did not write and never deletes."""

    folder: StoragePath
    sampled_at: datetime
    own_entries: tuple[Entry, ...]
    foreign_names: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def size_by_file(self) -> dict[str, int]:
        return {entry.path: entry.size for entry in self.own_entries if entry.kind is EntryKind.FILE}

    @property
    def has_ended(self) -> bool:
        return any(entry.path == "outcome.json" for entry in self.own_entries)


@dataclass(frozen=True)
class DayFolder:
    date: date
    folder: StoragePath
    runs: tuple[RunFolder, ...]
    foreign_names: tuple[str, ...]


def days_before(storage: ClusterStorage, limit: date) -> Iterator[DayFolder]:
    """Yield the days before `limit` that have a folder, oldest first. Each folder is listed when its day is yielded."""
    for entry in entries(storage.runs):
        day = day_of(entry.path)
        if entry.kind is EntryKind.FOLDER and day is not None and day < limit:
            yield _day_folder(storage.runs / entry.path, day)


def foreign_names_in_runs(storage: ClusterStorage) -> list[str]:
    return [e.path for e in entries(storage.runs) if e.kind is not EntryKind.FOLDER or day_of(e.path) is None]


def _day_folder(folder: StoragePath, day: date) -> DayFolder:
    runs, foreign = [], []
    for entry in entries(folder):
        at = time_of(entry.path)
        if entry.kind is EntryKind.FOLDER and at is not None and at.date() == day:
            runs.append(_run_folder(folder / entry.path, at))
        else:
            foreign.append(entry.path)
    return DayFolder(day, folder, tuple(runs), tuple(foreign))


def _run_folder(folder: StoragePath, time: datetime) -> RunFolder:
    content = walk(folder)
    ours = tuple(entry for entry in content if _is_own_entry(entry))
    return RunFolder(folder, time, ours, tuple(entry.path for entry in content if not _is_own_entry(entry)))


def _is_own_entry(entry: Entry) -> bool:
    if entry.kind is EntryKind.OTHER:
        return False
    pattern = _OUR_FILE if entry.kind is EntryKind.FILE else _OUR_FOLDER
    return pattern.fullmatch(entry.path) is not None
