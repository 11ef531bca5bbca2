from __future__ import annotations

import os
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs
import pytest
from tests.include.run_folders import NOW, YESTERDAY, stored_run

from pulsar_rebalancer import retention
from pulsar_rebalancer.history import KINDS, table_file, whole_runs
from pulsar_rebalancer.retention import Held, Report, keep_up
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.storage import ClusterStorage, Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING = Held(frozenset(), frozenset())
MIDNIGHT = datetime.combine(NOW.date(), time(0, tzinfo=UTC))
SECRET = "nobody deletes this"


@pytest.fixture
def storage(tmp_path: Path) -> ClusterStorage:
    return ClusterStorage(str(tmp_path / "root"), "east")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder outside the cluster's that looks like a run; it must be there, whole, at the end of the test."""
    folder = tmp_path / "elsewhere" / "20260101T100000.000000Z-0badcafe"
    folder.mkdir(parents=True)
    (folder / "outcome.json").write_text(SECRET)
    yield folder
    assert (folder / "outcome.json").read_text() == SECRET


def at(days_ago: int, hour: int = 12) -> datetime:
    return MIDNIGHT - timedelta(days=days_ago) + timedelta(hours=hour)


def upkeep(storage: ClusterStorage, held: Held = NOTHING, *, dry_run: bool = False, **settings: Any) -> Report:
    return keep_up(storage, Settings.model_validate(settings), held, NOW, dry_run=dry_run)


def all_files(storage: ClusterStorage) -> dict[str, bytes]:
    base = Path(storage.base.uri)
    return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}


def aged(file: Folder, days: float, content: bytes = b"{}") -> Folder:
    """A file, or a folder of parts, that was written so many days ago."""
    if not file.exists():
        file.write_bytes(content)
    written = (NOW - timedelta(days=days)).timestamp()
    for path in (*Path(file.uri).rglob("*"), Path(file.uri)):
        os.utime(path, (written, written))
    return file


# compaction


def test_days_that_are_over_become_tables_and_their_folders_go(storage: ClusterStorage) -> None:
    days = {at(n).date(): [stored_run(storage, at(n, hour)) for hour in (3, 4)] for n in (1, 2)}
    today = stored_run(storage, at(0, 1))

    report = upkeep(storage)

    assert storage.runs.names() == [f"date={NOW.date()}"]
    assert today.exists()
    for day, runs in days.items():
        assert whole_runs(storage, day) == {run.name for run in runs}
    assert [(step.action, step.what, step.runs) for step in report.steps] == [
        ("compact", str(day), 2) for day in sorted(days)
    ]
    assert not report.left


def test_a_second_time_there_is_nothing_to_do(storage: ClusterStorage) -> None:
    stored_run(storage, at(1))
    upkeep(storage)
    before = all_files(storage)

    assert not upkeep(storage).steps
    assert all_files(storage) == before


def test_a_dry_run_says_the_same_and_touches_nothing(storage: ClusterStorage) -> None:
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


def test_compact_after_days_leaves_younger_days_as_they_are(storage: ClusterStorage) -> None:
    stored_run(storage, at(3))
    young = stored_run(storage, at(2))

    upkeep(storage, compact_after_days=3)

    assert young.exists()
    assert [step.what for step in upkeep(storage, compact_after_days=3, dry_run=True).steps] == []
    assert whole_runs(storage, at(3).date())


# what is never touched


def test_a_run_under_way_over_midnight_is_left_and_joins_later(storage: ClusterStorage) -> None:
    late = stored_run(storage, MIDNIGHT - timedelta(seconds=10), ended=False)
    ended = stored_run(storage, at(1))

    report = upkeep(storage)

    assert late.exists()
    assert not ended.exists()
    assert "no outcome yet" in report.left[f"runs/date={YESTERDAY}/{late.name}"]
    keep_up(storage, Settings(), NOTHING, NOW + timedelta(days=1), dry_run=False)
    assert not late.exists()
    assert whole_runs(storage, YESTERDAY) == {late.name, ended.name}


def test_the_run_of_the_plan_in_the_state_is_never_touched(storage: ClusterStorage) -> None:
    held, other = stored_run(storage, at(30)), stored_run(storage, at(30))
    before = {path: data for path, data in all_files(storage).items() if held.name in path}

    upkeep(storage, Held(frozenset({held.name}), frozenset()))

    assert not other.exists()
    assert {path: data for path, data in all_files(storage).items() if held.name in path} == before


def test_links_are_not_followed(storage: ClusterStorage, elsewhere: Path) -> None:
    run = stored_run(storage, at(40))
    day = Path(run.uri).parent
    (day / elsewhere.name).symlink_to(elsewhere)
    (day.parent / "date=2026-01-01").symlink_to(elsewhere.parent)
    (Path(run.uri) / "unload" / "wave-01.json").symlink_to(elsewhere / "outcome.json")
    (Path(run.uri) / "extra").symlink_to(elsewhere)

    report = upkeep(storage, compact_after_days=0)

    assert {name.rpartition("/")[2] for name in report.left} == {
        elsewhere.name,
        "date=2026-01-01",
        "wave-01.json",
        "extra",
    }
    assert Path(run.uri, "extra").is_symlink()
    assert not (run / "outcome.json").exists()


@pytest.mark.parametrize("name", ["runs", "history", "state"])
def test_a_folder_that_is_a_link_is_left_alone(storage: ClusterStorage, tmp_path: Path, name: str) -> None:
    stored_run(storage, at(40))
    aged(table_file(storage, "runs", at(400).date()), 300)
    aged(storage.state / "decision-1.json", 30)
    moved = tmp_path / "moved"
    Path(storage.base.uri, name).rename(moved)
    Path(storage.base.uri, name).symlink_to(moved)
    before = {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()}

    upkeep(storage, compact_after_days=0)

    assert {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()} == before


def test_nothing_is_deleted_behind_a_folder_that_became_a_link_meanwhile(
    storage: ClusterStorage, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored_run(storage, at(40))
    real = retention.remove

    def swap(base: Folder, folder: Folder, content: Any, *, whole: bool) -> None:
        if Path(run.uri).is_dir() and not Path(run.uri).is_symlink():
            Path(run.uri).rename(Path(run.uri).with_name("moved"))
            Path(run.uri).symlink_to(elsewhere)
        real(base, folder, content, whole=whole)

    monkeypatch.setattr(retention, "remove", swap)

    with pytest.raises(retention.SnapshotError, match="outside"):
        upkeep(storage, compact_after_days=0)


FOREIGN = (
    "runs/README",
    "runs/date=2026-02-30/outcome.json",
    "runs/date=2026-01-01/notes/outcome.json",
    "runs/date=2026-01-01/20260102T100000.000000Z-0badcafe/outcome.json",
    "runs/date=2026-01-01/20261301T100000.000000Z-0badcafe/outcome.json",
    "runs/date=2026-01-01/20260101T100000.000000Z-0badcafe.old",
    "history/bundles/date=2020-01-01.csv",
    "history/bundles/date=2020-13-01.parquet",
    "history/other/date=2020-01-01.parquet",
    "state/decision-1.json.bak",
    "state/means-1.parquet",
    "state/.hidden",
)


def test_what_the_rebalancer_did_not_write_stays(storage: ClusterStorage) -> None:
    for path in FOREIGN:
        aged(Folder(f"{storage.base.uri}/{path}"), 100, SECRET.encode())
    stored_run(storage, at(40))

    report = upkeep(storage, compact_after_days=0)

    assert all_files(storage) == dict.fromkeys(FOREIGN, SECRET.encode())
    assert report.left["runs/README"] == "not the rebalancer's"


# retention


def test_without_compaction_runs_go_by_age(storage: ClusterStorage) -> None:
    old = stored_run(storage, at(15, 23))
    kept = stored_run(storage, at(14, 0))

    report = upkeep(storage, compact_after_days=0)

    assert not old.exists()
    assert kept.exists()
    assert storage.runs.names() == [f"date={at(14).date()}"]
    assert [(step.action, step.runs) for step in report.steps] == [("remove runs", 1)]


def test_zero_days_keep_for_ever(storage: ClusterStorage) -> None:
    stored_run(storage, at(3000))
    aged(table_file(storage, "runs", at(3000).date()), 3000)
    aged(storage.state / "export-20200101T000000Z.json", 2000)
    before = all_files(storage)

    assert not upkeep(storage, compact_after_days=0, retention_days=0, history_days=0).steps
    assert all_files(storage) == before


def test_days_missed_while_upkeep_stood_still_are_compacted_and_not_just_removed(storage: ClusterStorage) -> None:
    run = stored_run(storage, at(30))

    upkeep(storage)

    assert whole_runs(storage, at(30).date()) == {run.name}


def test_a_run_that_cannot_be_compacted_goes_when_it_is_old(storage: ClusterStorage) -> None:
    for days_ago in (3, 20):
        (stored_run(storage, at(days_ago)) / "input" / "brokers.parquet").write_bytes(b"damaged")

    report = upkeep(storage)

    assert storage.runs.names() == [f"date={at(3).date()}"]
    (why,) = (why for name, why in report.left.items() if f"date={at(3).date()}" in name)
    assert "cannot be read" in why
    assert not report.problems


def test_history_goes_by_its_own_age(storage: ClusterStorage) -> None:
    for days_ago in (90, 91):
        for kind in KINDS:
            aged(table_file(storage, kind, at(days_ago).date()), days_ago)
    draft = aged(storage.base / "history" / "bundles" / ".date=2026-03-10.parquet.0a0a0a0a", 2)
    fresh = aged(storage.base / "history" / "bundles" / ".date=2026-03-19.parquet.0b0b0b0b", 0.1)

    report = upkeep(storage)

    for kind in KINDS:
        assert table_file(storage, kind, at(90).date()).exists()
        assert not table_file(storage, kind, at(91).date()).exists()
    assert not draft.exists()
    assert fresh.exists()
    assert not report.left


# state files


def test_state_files_that_nothing_points_to_go(storage: ClusterStorage) -> None:
    state = storage.state
    kept = {"decision-4.json", "decision-5.json", "means-4-0a0a0a0a.parquet", "means-5-0a0a0a0a.parquet"}
    for name in kept - {"means-5-0a0a0a0a.parquet"}:
        aged(state / name, 50)
    (state / "means-5-0a0a0a0a.parquet" / "part-0.parquet").write_bytes(b"as Spark writes it")
    aged(state / "means-5-0a0a0a0a.parquet", 50)
    (state / "means-3-0a0a0a0a.parquet" / "part-0.parquet").write_bytes(b"old")
    (state / "means-3-0a0a0a0a.parquet" / "_SUCCESS").write_bytes(b"")
    aged(state / "means-3-0a0a0a0a.parquet", 2)
    under_way = aged(state / "means-6-0b0b0b0b.parquet", 0.01)
    for name in ("decision-3.json", "means-2-0c0c0c0c.parquet", ".decision-3.json.0a0a0a0a"):
        aged(state / name, 2)
    old_export = aged(state / f"export-{at(20):%Y%m%dT%H%M%SZ}.json", 20)
    export = aged(state / f"export-{at(3):%Y%m%dT%H%M%SZ}.json", 3)
    change = aged(state / "change-20200101T000000Z-3.json", 2000)
    load_data = aged(state / "load-data.json", 2000)

    report = upkeep(storage, Held(frozenset(), frozenset(kept)))

    assert set(state.names()) == kept | {under_way.name, export.name, change.name, load_data.name}
    assert not old_export.exists()
    assert {step.what: step.files for step in report.steps} == {"copies": 1, "means": 3, "drafts": 1, "exports": 1}
    assert not report.left


def test_nothing_that_could_restore_a_lost_state_goes(storage: ClusterStorage) -> None:
    for name in ("decision-3.json", "decision-4.json", "decision-5.json", "means-3-0a0a0a0a.parquet"):
        aged(storage.state / name, 400)
    before = all_files(storage)

    assert not upkeep(storage, Held(frozenset(), None)).steps
    assert all_files(storage) == before


# stopped, and hindered


@pytest.mark.parametrize("files_before_crash", [0, 1, 7, 20])
def test_a_crash_while_deleting_leaves_all_readable_and_is_finished_later(
    storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch, files_before_crash: int
) -> None:
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
    assert whole_runs(storage, YESTERDAY) == runs  # written, checked and readable before the first file went

    upkeep(storage)

    assert storage.runs.names() == []
    assert whole_runs(storage, YESTERDAY) == runs
    assert table_file(storage, "bundles", YESTERDAY).read_table().num_rows == 9


def test_files_that_vanish_meanwhile_are_no_error(storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [stored_run(storage, at(20, hour)) for hour in (1, 2)]
    real = retention.remove

    def race(base: Folder, folder: Folder, content: Any, *, whole: bool) -> None:
        (runs[0] / "input" / "bundles.parquet").delete()
        runs[1].delete()
        real(base, folder, content, whole=whole)

    monkeypatch.setattr(retention, "remove", race)
    upkeep(storage, compact_after_days=0)

    assert storage.runs.names() == []


def test_a_damaged_history_is_a_problem_of_its_day_alone(storage: ClusterStorage) -> None:
    stays, goes = stored_run(storage, at(20)), stored_run(storage, at(2))
    table_file(storage, "runs", at(20).date()).write_bytes(b"damaged")

    report = upkeep(storage)

    assert stays.exists()
    assert not goes.exists()
    (problem,) = report.problems
    assert str(at(20).date()) in problem


def test_a_cluster_without_files(storage: ClusterStorage) -> None:
    assert upkeep(storage) == Report(dry_run=False)
    assert not storage.base.exists()


def test_object_stores_are_kept_up_in_the_same_way(storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Arrow's general interface, as for `s3://`: listing, moving and deleting are the store's own."""
    old = {stored_run(storage, at(20, hour)).name for hour in (1, 2)}
    foreign = stored_run(storage, at(21))
    (foreign / "Notes.txt").write_bytes(SECRET.encode())
    aged(storage.state / "decision-1.json", 3)
    aged(table_file(storage, "runs", at(100).date()), 3)
    general = pafs.SubTreeFileSystem("/", pafs.LocalFileSystem())
    monkeypatch.setattr(Folder, "open", lambda folder: (general, folder.uri.lstrip("/")))
    for kind in KINDS:
        (storage.base / "history" / kind).open()[0].create_dir(str(Path(storage.base.uri, "history", kind)))

    planned = upkeep(storage, dry_run=True)
    report = upkeep(storage)

    assert planned.steps == report.steps
    assert [step.action for step in report.steps] == ["remove runs", "compact", "remove history", "remove state files"]
    assert whole_runs(storage, at(20).date()) == old
    left = {path for path in all_files(storage) if not path.startswith("history/")}
    assert left == {f"runs/date={at(21).date()}/{foreign.name}/Notes.txt"}
