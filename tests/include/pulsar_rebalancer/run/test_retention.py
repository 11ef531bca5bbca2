from pathlib import Path

import pyarrow.fs as pafs
import pytest
from tests.include.pulsar_rebalancer.run.upkeep_scene import SECRET, aged, all_files, at, upkeep
from tests.include.pulsar_rebalancer.run_folders import NOW, YESTERDAY, stored_run

from pulsar_rebalancer.run.compacted_tables import TABLE_KINDS, compacted_runs, table_file
from pulsar_rebalancer.run.retention import NeededData
from pulsar_rebalancer.storage.path import StoragePath

# compaction


def test_days_that_are_over_become_tables_and_their_folders_go(storage):
    days = {at(n).date(): [stored_run(storage, at(n, hour)) for hour in (3, 4)] for n in (1, 2)}
    today = stored_run(storage, at(0, 1))

    report = upkeep(storage)

    assert storage.runs.entry_names() == [f"date={NOW.date()}"]
    assert today.exists()
    for day, runs in days.items():
        assert compacted_runs(storage, day) == {run.name for run in runs}
    assert [(step.action, step.what, step.runs) for step in report.steps] == [
        ("compact", str(day), 2) for day in sorted(days)
    ]
    assert not report.why_left


def test_a_dry_run_says_the_same_and_touches_nothing(storage):
    for days_ago in (1, 1, 20):
        stored_run(storage, at(days_ago))
    (stored_run(storage, at(20, 13)) / "input" / "bundles.parquet").write_bytes(b"damaged")
    aged(table_file(storage, "bundles", at(100).date()), 99)
    aged(storage.state / "means-1-0a0a0a0a.parquet", 3)
    before = all_files(storage)

    planned = upkeep(storage, dry_run=True)
    assert all_files(storage) == before
    done = upkeep(storage)

    assert planned.steps == done.steps
    assert planned.dry_run
    assert [step.action for step in done.steps] == [
        "compact",
        "remove runs",
        "compact",
        "remove history",
        "remove state files",
    ]
    gone = before.keys() - all_files(storage).keys()
    assert sum(step.files for step in done.steps) == len(gone)
    assert sum(step.size for step in done.steps) == sum(len(before[path]) for path in gone)


# retention


def test_without_compaction_runs_go_by_age(storage):
    old = stored_run(storage, at(15, 23))
    kept = stored_run(storage, at(14, 0))

    report = upkeep(storage, history_days=1)

    assert not old.exists()
    assert kept.exists()
    assert storage.runs.entry_names() == [f"date={at(14).date()}"]
    assert [(step.action, step.runs) for step in report.steps] == [("remove runs", 1)]


def test_history_goes_by_its_own_age(storage):
    for days_ago in (90, 91):
        for kind in TABLE_KINDS:
            aged(table_file(storage, kind, at(days_ago).date()), days_ago)
    draft = aged(storage.base / "history" / "bundles" / ".date=2026-03-10.parquet.0a0a0a0a", 2)
    fresh = aged(storage.base / "history" / "bundles" / ".date=2026-03-19.parquet.0b0b0b0b", 0.1)

    report = upkeep(storage)

    for kind in TABLE_KINDS:
        assert table_file(storage, kind, at(90).date()).exists()
        assert not table_file(storage, kind, at(91).date()).exists()
    assert not draft.exists()
    assert fresh.exists()
    assert not report.why_left


# state files


def test_state_files_that_nothing_points_to_go(storage):
    state = storage.state
    kept = {"means-4-0a0a0a0a.parquet", "means-5-0a0a0a0a.parquet"}
    for name in kept - {"means-5-0a0a0a0a.parquet"}:
        aged(state / name, 50)
    (state / "means-5-0a0a0a0a.parquet" / "part-0.parquet").write_bytes(b"as Spark writes it")
    aged(state / "means-5-0a0a0a0a.parquet", 50)
    (state / "means-3-0a0a0a0a.parquet" / "part-0.parquet").write_bytes(b"old")
    (state / "means-3-0a0a0a0a.parquet" / "_SUCCESS").write_bytes(b"")
    aged(state / "means-3-0a0a0a0a.parquet", 2)
    under_way = aged(state / "means-6-0b0b0b0b.parquet", 0.01)
    for name in ("costs-2-0c0c0c0c.parquet", ".bundle-client-gaps.json.0a0a0a0a"):
        aged(state / name, 2)
    old_export = aged(state / f"export-{at(20):%Y%m%dT%H%M%SZ}.json", 20)
    export = aged(state / f"export-{at(3):%Y%m%dT%H%M%SZ}.json", 3)
    change = aged(state / "change-20200101T000000Z-3.json", 2000)
    load_data = aged(state / "load-data.json", 2000)
    client_gap = aged(state / "bundle-client-gaps.json", 2000)

    report = upkeep(storage, NeededData(frozenset(), frozenset(kept)))

    assert set(state.entry_names()) == kept | {each.name for each in (under_way, export, change, load_data, client_gap)}
    assert not old_export.exists()
    assert {step.what: step.files for step in report.steps} == {"means": 3, "drafts": 1, "exports": 1}
    assert not report.why_left


# stopped, and hindered


@pytest.mark.parametrize("files_before_crash", [0, 1, 7, 20])
def test_a_crash_while_deleting_leaves_all_readable_and_is_finished_later(storage, monkeypatch, files_before_crash):
    runs = {stored_run(storage, at(1, hour)).name for hour in range(3)}
    real, left = Path.unlink, iter(range(files_before_crash))

    def crash(path: Path, missing_ok: bool = False) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            upkeep(storage)
    assert compacted_runs(storage, YESTERDAY) == runs  # written, checked and readable before the first file went

    upkeep(storage)

    assert storage.runs.entry_names() == []
    assert compacted_runs(storage, YESTERDAY) == runs
    assert table_file(storage, "bundles", YESTERDAY).read_table().num_rows == 9


def test_a_damaged_history_is_a_problem_of_its_day_alone(storage):
    stays, goes = stored_run(storage, at(20)), stored_run(storage, at(2))
    table_file(storage, "runs", at(20).date()).write_bytes(b"damaged")

    report = upkeep(storage)

    assert stays.exists()
    assert not goes.exists()
    (problem,) = report.problems
    assert str(at(20).date()) in problem


def test_object_stores_are_kept_up_in_the_same_way(storage, monkeypatch):
    """Through Arrow's general interface, as for `s3://`: listing, moving and deleting are the store's own."""
    old = {stored_run(storage, at(20, hour)).name for hour in (1, 2)}
    foreign = stored_run(storage, at(21))
    (foreign / "Notes.txt").write_bytes(SECRET.encode())
    aged(storage.state / "means-1-0a0a0a0a.parquet", 3)
    aged(table_file(storage, "runs", at(100).date()), 3)
    general = pafs.SubTreeFileSystem("/", pafs.LocalFileSystem())
    monkeypatch.setattr(StoragePath, "filesystem_and_path", lambda folder: (general, folder.uri.lstrip("/")))
    for kind in TABLE_KINDS:
        (storage.base / "history" / kind).filesystem_and_path()[0].create_dir(
            str(Path(storage.base.uri, "history", kind))
        )

    planned = upkeep(storage, dry_run=True)
    report = upkeep(storage)

    assert planned.steps == report.steps
    assert [step.action for step in report.steps] == ["remove runs", "compact", "remove history", "remove state files"]
    assert compacted_runs(storage, at(20).date()) == old
    left = {path for path in all_files(storage) if not path.startswith("history/")}
    assert left == {f"runs/date={at(21).date()}/{foreign.name}/Notes.txt"}


# replays


def test_replays_go_with_the_days_of_retention(storage):
    old, young = (storage.new_replay_folder(at(days)) for days in (15, 13))
    for folder in (old, young):
        (folder / "report.html").write_bytes(b"<h1>")
        (folder / "samples" / "0").write_bytes(b"left by a killed task")
    (storage.replays / "notes.txt").write_bytes(b"")

    assert [step.action for step in upkeep(storage, dry_run=True).steps] == ["remove replays"]
    report = upkeep(storage)

    assert [(step.action, step.what, step.files) for step in report.steps] == [("remove replays", old.name, 2)]
    assert storage.replays.entry_names() == [young.name, "notes.txt"]
    assert "replays/notes.txt" in report.why_left
