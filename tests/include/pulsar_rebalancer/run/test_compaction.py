import json
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.full_disk import full_disk
from tests.include.pulsar_rebalancer.run_folders import NOW, YESTERDAY, rows, stored_run

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import compacted_tables
from pulsar_rebalancer.run.compacted_tables import TABLE_KINDS, TableDraft, compacted_runs, table_file
from pulsar_rebalancer.run.compaction import RunFolder, compact, days_before
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

AT = datetime.combine(YESTERDAY, time(10, tzinfo=NOW.tzinfo))


def on_disk(storage: ClusterStorage) -> list[RunFolder]:
    (day,) = days_before(storage, NOW.date())
    return list(day.runs)


def made(storage: ClusterStorage, count: int, first: int = 1) -> list[StoragePath]:
    return [stored_run(storage, AT + timedelta(minutes=of), number=of) for of in range(first, first + count)]


def table(storage: ClusterStorage, kind: str) -> list[dict[str, Any]]:
    return table_file(storage, kind, YESTERDAY).read_table().to_pylist()


def drafts(storage: ClusterStorage) -> list[Path]:
    return [path for path in Path(storage.base.uri).rglob(".*") if "moves.parquet" not in path.parts]


def test_every_row_and_every_document_of_a_day_is_kept(storage):
    first, second = made(storage, 2)

    assert compact(storage, YESTERDAY, on_disk(storage)) == {}

    bundles = [row for row in table(storage, "bundles") if row["run"] == second.name]
    kept = [{name: row[name] for name in ("cluster", "broker", "bundle", "msg_rate_in")} for row in bundles]
    assert kept == rows(2, 3)
    assert [len(table(storage, kind)) for kind in TABLE_KINDS] == [2, 4, 6, 2, 4, 2, 2]
    entry = next(row for row in table(storage, "runs") if row["run"] == first.name)
    assert entry["collected_at"] == AT + timedelta(minutes=1)
    for column, path in compacted_tables.DOCUMENTS.items():
        assert entry[column] == (first / path).read_bytes().decode()
    assert [(path, json.loads(text)[0]["reason"]) for path, text in entry["documents"]] == [
        ("unload/wave-00.json", "moved")
    ]
    assert compacted_runs(storage, YESTERDAY) == {first.name, second.name}
    assert first.exists()
    assert not drafts(storage)


def test_on_a_full_disk_nothing_is_lost_and_no_draft_is_left(storage):
    made(storage, 1)
    compact(storage, YESTERDAY, on_disk(storage))
    before = {kind: table(storage, kind) for kind in TABLE_KINDS}
    made(storage, 2, first=5)

    with full_disk(room=100), pytest.raises(SnapshotError, match="cannot be written") as failed:
        compact(storage, YESTERDAY, on_disk(storage))

    assert failed.value.reason is Reason.STORAGE_FAILED
    assert {kind: table(storage, kind) for kind in TABLE_KINDS} == before
    assert not drafts(storage)


@pytest.mark.parametrize("published", range(7))
def test_a_crash_between_two_tables_is_mended_by_the_next_attempt(storage, monkeypatch, published):
    early = made(storage, 1)
    compact(storage, YESTERDAY, on_disk(storage))
    made(storage, 2, first=5)
    real, left = TableDraft.publish, iter(range(published))

    def crash(draft: TableDraft) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(draft)

    with monkeypatch.context() as patched:
        patched.setattr(TableDraft, "publish", crash)
        with pytest.raises(KeyboardInterrupt):
            compact(storage, YESTERDAY, on_disk(storage))
    # What was there before is whole, and every table can be read.
    assert {run.name for run in early} == compacted_runs(storage, YESTERDAY)
    assert all(table(storage, kind) for kind in TABLE_KINDS)
    assert not drafts(storage)

    compact(storage, YESTERDAY, on_disk(storage))

    assert compacted_runs(storage, YESTERDAY) == {run.name for run in on_disk(storage)}
    assert [len(table(storage, kind)) for kind in TABLE_KINDS] == [3, 6, 9, 3, 6, 3, 3]


def test_rows_that_are_missing_are_found_before_the_table_takes_its_place(storage, monkeypatch):
    made(storage, 2)
    monkeypatch.setattr(TableDraft, "_write_row_group", lambda draft: draft._waiting.clear())

    with pytest.raises(SnapshotError, match="instead of"):
        compact(storage, YESTERDAY, on_disk(storage))

    assert all(not table_file(storage, kind, YESTERDAY).exists() for kind in TABLE_KINDS)
    assert not drafts(storage)
    assert len(on_disk(storage)) == 2


def test_rows_lost_from_a_table_make_its_runs_count_as_not_compacted(storage):
    made(storage, 2)
    compact(storage, YESTERDAY, on_disk(storage))
    file = table_file(storage, "bundles", YESTERDAY)
    file.write_table(file.read_table().slice(1))

    assert len(compacted_runs(storage, YESTERDAY)) == 1

    compact(storage, YESTERDAY, on_disk(storage))
    assert len(compacted_runs(storage, YESTERDAY)) == 2
    assert len(table(storage, "bundles")) == 6


def cut_short(run: StoragePath) -> str:
    file = Path((run / "input" / "bundles.parquet").uri)
    file.write_bytes(file.read_bytes()[:-20])
    return "cannot be read"


def bad_pages(run: StoragePath) -> str:
    """The footer is sound, the data is not."""
    file = Path((run / "input" / "bundles.parquet").uri)
    data = bytearray(file.read_bytes())
    data[4:200] = b"\xff" * 196
    file.write_bytes(bytes(data))
    return "cannot be read"


def other_values(run: StoragePath) -> str:
    (run / "input" / "brokers.parquet").write_table(pa.table({"broker": [[1, 2]]}))
    return "list"


def unknown_table(run: StoragePath) -> str:
    (run / "plan" / "forecast.parquet").write_table(pa.table({"broker": ["b:1"]}))
    return "does not know the run's table plan/forecast.parquet"


def foreign_file(run: StoragePath) -> str:
    (run / "Notes.txt").write_bytes(b"mine")
    return "Notes.txt"


@pytest.mark.parametrize("damage", [cut_short, bad_pages, other_values, unknown_table, foreign_file])
def test_a_run_that_cannot_be_taken_does_not_stop_the_others(storage, damage):
    sound, other = made(storage, 2)
    named = damage(other)

    unreadable = compact(storage, YESTERDAY, on_disk(storage))

    assert list(unreadable) == [other.name]
    assert named in unreadable[other.name]
    assert compacted_runs(storage, YESTERDAY) == {sound.name}
    assert len(table(storage, "bundles")) == 3


def test_memory_is_bounded_by_a_row_group(storage, monkeypatch):
    monkeypatch.setattr(compacted_tables, "_MAX_ROWS", 1000)
    for number in range(5):
        stored_run(storage, AT + timedelta(minutes=number), number=number, bundles=700)
    waiting: list[int] = []
    real = TableDraft.add_rows

    def note(draft: TableDraft, rows: pa.Table, run: str | None = None) -> None:
        real(draft, rows, run)
        waiting.append(sum(part.num_rows for part in draft._waiting))

    monkeypatch.setattr(TableDraft, "add_rows", note)
    compact(storage, YESTERDAY, on_disk(storage))

    assert max(waiting) < 1000
    file = pq.ParquetFile(table_file(storage, "bundles", YESTERDAY).uri)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [1400, 1400, 700]
