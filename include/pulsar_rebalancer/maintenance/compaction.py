"""From a day's run folders to one table per kind: whole or not at all, and checked before anything is deleted.

A crash at any point leaves everything readable: tables take their place one by one, `runs` last, and a run's folder
goes only when the history holds it whole. What was left half done is done again from the folders that are still there.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

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
    batches,
    footer_of,
    refuse_other,
    rows_by_run,
    table_file,
    with_run,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from pulsar_rebalancer.maintenance.inventory import RunFolder
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

_TABLE_FILES = frozenset(path for path, _ in TABLES.values())


class UnreadableRunError(Exception):
    """A run cannot be taken into the history.

    Attributes:
        run: its name.
    """

    def __init__(self, run: str, why: str) -> None:
        super().__init__(why)
        self.run = run


def compact(storage: ClusterStorage, day: date, runs: Sequence[RunFolder], *, dry_run: bool = False) -> dict[str, str]:
    """Add runs to the history of their day.

    Rows that the history has of these runs already, from an attempt that did not end, are replaced; those of other
    runs stay. No run's folder is touched.

    Args:
        storage: of the cluster.
        day: the runs' day.
        runs: the runs.
        dry_run: write nothing; data that is damaged behind a sound footer goes unseen.

    Returns:
        Why, by name, for every run that could not be read; the others are in the history.

    Raises:
        SnapshotError: `file_damaged`, the day's tables cannot be read or do not hold what was written to them,
            `file_version`, another release wrote them, or `storage_failed`; they are as they were.
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
        except UnreadableRunError as error:  # its footers were sound, its data is not
            unreadable[error.run] = str(error)
            readable = [run for run in readable if run.name != error.run]
    return unreadable


def check(run: RunFolder) -> None:
    """Look at a run's files without reading their data.

    Raises:
        UnreadableRunError: a table's footer cannot be read, its columns are not today's kinds of values, another
            release wrote it, or the run holds what has no place in the history.
    """
    if run.foreign:
        raise UnreadableRunError(run.name, f"it holds what is not the rebalancer's: {', '.join(run.foreign[:3])}")
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
    """Columns of a day's table, in types that hold what is there and what comes."""
    columns = with_run(today)
    if target.exists():
        found = footer_of(target)[0]
        refuse_other(found, today, target.uri)
        try:
            columns = pa.unify_schemas([columns, found], promote_options="permissive")
        except pa.ArrowException as error:
            raise SnapshotError(Reason.FILE_DAMAGED, f"{target.uri} has other kinds of values: {error}") from None
    return columns


def _columns(columns: pa.Schema, kind: str, runs: Sequence[RunFolder]) -> pa.Schema:
    """Columns in types that hold the rows of all runs."""
    for run in runs:
        for part in _parts(run, TABLES[kind][0]):
            try:
                found = footer_of(part)[0]
                refuse_other(found, TABLES[kind][1], part.uri)
                columns = pa.unify_schemas([columns, found], promote_options="permissive")
            except (SnapshotError, pa.ArrowException) as error:
                raise _unreadable(run, error) from None
    return columns.with_metadata(TABLES[kind][1].metadata)


def _keep_others(draft: Draft, target: StoragePath, names: set[str]) -> dict[str, int]:
    """Copy the rows of other runs; how many by run."""
    if not target.exists():
        return {}
    new = pa.array(sorted(names), pa.string())
    for table in batches(target):
        draft.add(table.filter(pc.invert(pc.is_in(table["run"], value_set=new))))
    return {run: count for run, count in rows_by_run(target).items() if run not in names}


def _add(draft: Draft, kind: str, run: RunFolder) -> int | None:
    """Add a run's rows; how many its files say they hold, None when the run has no such table."""
    parts = _parts(run, TABLES[kind][0])
    try:
        for part in parts:
            for table in batches(part):
                draft.add(table, run.name)
        return sum(footer_of(part)[1] for part in parts) if parts else None
    except (SnapshotError, pa.ArrowException) as error:
        raise _unreadable(run, error) from None


def _unreadable(run: RunFolder, error: Exception) -> Exception:
    """Return what is to be raised for a run that could not be taken: a full disk is not the run's fault."""
    passing = isinstance(error, SnapshotError) and error.reason is Reason.STORAGE_FAILED
    return error if passing else UnreadableRunError(run.name, str(error))


def _parts(run: RunFolder, path: str) -> list[StoragePath]:
    """Return the files of a table: one, or the parts of a folder as Spark writes it."""
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
    """Read the finished draft back.

    Raises:
        SnapshotError: `file_damaged` when it does not hold the rows that were to be written.
    """
    found = rows_by_run(draft.file)
    wrong = sorted(run for run in expected.keys() | found.keys() if expected.get(run, 0) != found[run])
    if wrong:
        run = wrong[0]
        raise SnapshotError(
            Reason.FILE_DAMAGED,
            f"{draft.file.uri} holds {found[run]} rows of run {run} instead of {expected.get(run, 0)}; "
            "the day's tables and runs are as they were",
        )
