"""Compact a day's run folders into one table per kind, and check the tables before anything is deleted.

After a crash at any point, all data can still be read. The tables are published one by one, `runs` last, and a run's
folder is deleted only after the complete run is in the history. The next attempt starts with the remaining folders.
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
    KINDS,
    RUNS,
    RUNS_SCHEMA,
    TABLES,
    Draft,
    footer_of,
    refuse_other,
    rows_by_run,
    table_file,
    with_run,
)
from pulsar_rebalancer.storage.documents import ClusterStorage, day_of, time_of
from pulsar_rebalancer.storage.path import Entry, Kind, StoragePath, entries, walk

_TABLE_FILES = frozenset(path for path, _ in TABLES.values())


class UnreadableRunError(Exception):
    """A run cannot be added to the history."""

    def __init__(self, run: str, why: str) -> None:
        super().__init__(why)
        self.run = run


def compact(storage: ClusterStorage, day: date, runs: Sequence[RunFolder], *, dry_run: bool = False) -> dict[str, str]:
    """Add a day's runs to the day's history.

    Rows of these runs from an interrupted attempt are replaced. Other rows and all run folders are kept.

    Args:
        dry_run: True to write nothing. Damaged data in a file with a valid footer is then not detected.

    Returns:
        The error message for each run that could not be read, by run name. All other runs are now in the history.

    Raises:
        SnapshotError: `file_damaged` if the day's tables cannot be read or differ from what was written, `file_version`
            if another release wrote the tables, or `storage_failed`. The tables are then unchanged.
    """
    unreadable = {}
    readable = []
    for run in runs:
        try:
            check(run)
            readable.append(run)
        except UnreadableRunError as error:
            unreadable[error.run] = str(error)
    while readable and not dry_run:
        try:
            _write(storage, day, readable)
            break
        except UnreadableRunError as error:  # the run's footers are valid, but its data is not
            unreadable[error.run] = str(error)
            readable = [run for run in readable if run.name != error.run]
    return unreadable


def check(run: RunFolder) -> None:
    """Check a run's files without reading the data in them.

    Raises:
        UnreadableRunError: a table's footer cannot be read, a table's columns have incompatible types, another release
            wrote a table, or the run has a file that the history cannot store.
    """
    if run.foreign:
        raise UnreadableRunError(run.name, f"it has files that are not the rebalancer's: {', '.join(run.foreign[:3])}")
    for path in run.files:
        table = path.partition(".parquet/")[0].removesuffix(".parquet") + ".parquet"
        if ".parquet" in path and not path.rpartition("/")[2].startswith(".") and table not in _TABLE_FILES:
            raise UnreadableRunError(run.name, f"the history has no kind for its table {table}")
    for kind, (_, today) in TABLES.items():
        _columns(with_run(today), kind, [run])


def _write(storage: ClusterStorage, day: date, runs: Sequence[RunFolder]) -> None:
    names = {run.name for run in runs}
    rows: dict[str, dict[str, int | None]] = {run.name: {} for run in runs}
    with ExitStack() as stack:
        drafts = []
        for kind in KINDS:
            target = table_file(storage, kind, day)
            columns = _stored_columns(target, RUNS_SCHEMA if kind == RUNS else TABLES[kind][1])
            draft = stack.enter_context(Draft(target, columns if kind == RUNS else _columns(columns, kind, runs)))
            drafts.append(draft)
            expected = _keep_others(draft, target, names)
            for run in runs:
                if kind == RUNS:
                    draft.add(_run_row(run, rows[run.name]))
                    expected[run.name] = 1
                else:
                    rows[run.name][kind] = count = _add(draft, kind, run)
                    expected[run.name] = count or 0
            draft.finish()
            _compare(draft, expected)
        for draft in drafts:
            draft.publish()


def _stored_columns(target: StoragePath, today: pa.Schema) -> pa.Schema:
    """Return the columns for a day's table, with types that fit both the table's current rows and the new rows."""
    try:
        return _widened(with_run(today), today, target) if target.exists() else with_run(today)
    except pa.ArrowException as error:
        raise SnapshotError(Reason.FILE_DAMAGED, f"{target.uri} has incompatible column types: {error}") from None


def _widened(columns: pa.Schema, today: pa.Schema, file: StoragePath) -> pa.Schema:
    """Return the columns, with types widened to fit the rows in a file."""
    stored = footer_of(file)[0]
    refuse_other(stored, today, file.uri)
    return pa.unify_schemas([columns, stored], promote_options="permissive")


def _columns(columns: pa.Schema, kind: str, runs: Sequence[RunFolder]) -> pa.Schema:
    """Return the columns, with types widened to fit the rows of all runs."""
    for run in runs:
        for part in _parts(run, TABLES[kind][0]):
            try:
                columns = _widened(columns, TABLES[kind][1], part)
            except (SnapshotError, pa.ArrowException) as error:
                raise _unreadable(run, error) from None
    return columns.with_metadata(TABLES[kind][1].metadata)


def _keep_others(draft: Draft, target: StoragePath, names: set[str]) -> dict[str, int]:
    """Copy the rows of other runs, and return how many rows each of these runs has."""
    if not target.exists():
        return {}
    new = pa.array(sorted(names), pa.string())
    for table in target.read_batches():
        draft.add(table.filter(pc.invert(pc.is_in(table["run"], value_set=new))))
    return {run: count for run, count in rows_by_run(target).items() if run not in names}


def _add(draft: Draft, kind: str, run: RunFolder) -> int | None:
    """Add a run's rows; return the row count from the files' footers, or None if the run has no such table."""
    parts = _parts(run, TABLES[kind][0])
    try:
        for part in parts:
            for table in part.read_batches():
                draft.add(table, run.name)
        return sum(footer_of(part)[1] for part in parts) if parts else None
    except (SnapshotError, pa.ArrowException) as error:
        raise _unreadable(run, error) from None


def _unreadable(run: RunFolder, error: Exception) -> Exception:
    """Return the error to raise for a run that could not be added; a storage failure is returned unchanged."""
    passing = isinstance(error, SnapshotError) and error.reason is Reason.STORAGE_FAILED
    return error if passing else UnreadableRunError(run.name, str(error))


def _parts(run: RunFolder, path: str) -> list[StoragePath]:
    """Return the files of a table: a single file, or the parts in a folder that Spark wrote."""
    if path in run.files:
        return [run.folder / path]
    parts = [name for name in run.files if name.startswith(f"{path}/") and name.endswith(".parquet")]
    return [run.folder / name for name in sorted(parts) if not name.rpartition("/")[2].startswith((".", "_"))]


def _run_row(run: RunFolder, rows: Mapping[str, int | None]) -> pa.Table:
    try:
        texts = {
            path: (run.folder / path).read_bytes().decode()
            for path in sorted(run.files)
            if path in DOCUMENTS.values() or (path.endswith(".json") and ".parquet/" not in path)
        }
    except (SnapshotError, UnicodeDecodeError) as error:
        raise _unreadable(run, error) from None
    columns = {name: texts.pop(path, None) for name, path in DOCUMENTS.items()}
    counts = {f"{kind}_rows": rows[kind] for kind in TABLES}
    row = {"run": run.name, "collected_at": run.at, **columns, "documents": sorted(texts.items()), **counts}
    return pa.Table.from_pylist([row], schema=RUNS_SCHEMA)


def _compare(draft: Draft, expected: Mapping[str, int]) -> None:
    """Read the completed draft, and check each run's row count.

    Raises:
        SnapshotError: `file_damaged` if a run's row count differs from the expected count.
    """
    written = rows_by_run(draft.file)
    wrong = sorted(run for run in expected.keys() | written.keys() if expected.get(run, 0) != written[run])
    if wrong:
        run = wrong[0]
        raise SnapshotError(
            Reason.FILE_DAMAGED,
            f"{draft.file.uri} holds {written[run]} rows of run {run} instead of {expected.get(run, 0)}; "
            "the day's tables and runs are unchanged",
        )


_OUR_FILE = re.compile(
    r"(?:[a-z_]+/)?[a-z0-9_-]+\.(?:json|parquet|html)"
    r"|(?:[a-z_]+/)?\.[a-z0-9_-]+\.(?:json|parquet|html)\.[0-9a-f]{8}"  # a draft left by a killed task
    r"|[a-z_]+/[a-z0-9_-]+\.parquet/.+"  # a part of a table that Spark wrote
)
_OUR_FOLDER = re.compile(r"[a-z_]+(?:/[a-z0-9_-]+\.parquet(?:/.+)?)?")


@dataclass(frozen=True)
class RunFolder:
    """A run's folder and its entries.

    Attributes:
        folder: the folder, whose name is the run's id.
        at: the time of the sample, from the folder's name.
        ours: entries that the rebalancer wrote.
        foreign: paths of all other entries, including links; these are never deleted.
    """

    folder: StoragePath
    at: datetime
    ours: tuple[Entry, ...]
    foreign: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folder's name, which is the run's id."""
        return self.folder.name

    @property
    def files(self) -> dict[str, int]:
        """The sizes of the rebalancer's files, in bytes, by path relative to the folder."""
        return {entry.path: entry.size for entry in self.ours if entry.kind is Kind.FILE}

    @property
    def ended(self) -> bool:
        """True if the *report* task has written the run's outcome."""
        return any(entry.path == "outcome.json" for entry in self.ours)


@dataclass(frozen=True)
class Day:
    """The runs on one day (UTC).

    Attributes:
        foreign: names of entries other than this day's run folders.
    """

    date: date
    folder: StoragePath
    runs: tuple[RunFolder, ...]
    foreign: tuple[str, ...]


def days_before(storage: ClusterStorage, limit: date) -> Iterator[Day]:
    """Yield the days before `limit` that have a folder, oldest first. Each folder is listed when its day is yielded."""
    for entry in entries(storage.runs):
        day = day_of(entry.path)
        if entry.kind is Kind.FOLDER and day is not None and day < limit:
            yield _day(storage.runs / entry.path, day)


def names_of_others(storage: ClusterStorage) -> list[str]:
    """Return the names of all entries in a cluster's `runs` folder that are not a day's folder."""
    return [e.path for e in entries(storage.runs) if e.kind is not Kind.FOLDER or day_of(e.path) is None]


def _day(folder: StoragePath, day: date) -> Day:
    runs, foreign = [], []
    for entry in entries(folder):
        at = time_of(entry.path)
        if entry.kind is Kind.FOLDER and at is not None and at.date() == day:
            runs.append(_run(folder / entry.path, at))
        else:
            foreign.append(entry.path)
    return Day(day, folder, tuple(runs), tuple(foreign))


def _run(folder: StoragePath, at: datetime) -> RunFolder:
    content = walk(folder)
    ours = tuple(entry for entry in content if _is_ours(entry))
    return RunFolder(folder, at, ours, tuple(entry.path for entry in content if not _is_ours(entry)))


def _is_ours(entry: Entry) -> bool:
    if entry.kind is Kind.OTHER:
        return False
    pattern = _OUR_FILE if entry.kind is Kind.FILE else _OUR_FOLDER
    return pattern.fullmatch(entry.path) is not None
