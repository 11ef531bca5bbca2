from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.run.upkeep_scene import MIDNIGHT, NOTHING, SECRET, aged, all_files, at, upkeep
from tests.include.pulsar_rebalancer.run_folders import NOW, YESTERDAY, stored_run

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run import retention
from pulsar_rebalancer.run.compacted_tables import compacted_runs
from pulsar_rebalancer.run.retention import NeededData, maintain_storage
from pulsar_rebalancer.storage import path
from pulsar_rebalancer.storage.path import StoragePath


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder outside the cluster's that looks like a run; it must be there, whole, at the end of the test."""
    folder = tmp_path / "elsewhere" / "20260101T100000.000000Z-0badcafe"
    folder.mkdir(parents=True)
    (folder / "outcome.json").write_text(SECRET)
    yield folder
    assert (folder / "outcome.json").read_text() == SECRET


def test_a_run_under_way_over_midnight_is_left_and_joins_later(storage):
    late = stored_run(storage, MIDNIGHT - timedelta(seconds=10), ended=False)
    ended = stored_run(storage, at(1))

    report = upkeep(storage)

    assert late.exists()
    assert not ended.exists()
    assert "no outcome yet" in report.why_left[f"runs/date={YESTERDAY}/{late.name}"]
    maintain_storage(storage, Settings(), NOTHING, NOW + timedelta(days=1), dry_run=False)
    assert not late.exists()
    assert compacted_runs(storage, YESTERDAY) == {late.name, ended.name}


def test_the_run_of_the_plan_in_the_state_is_never_touched(storage):
    held, other = stored_run(storage, at(30)), stored_run(storage, at(30))
    before = {path: data for path, data in all_files(storage).items() if held.name in path}

    upkeep(storage, NeededData(frozenset({held.name}), frozenset()))

    assert not other.exists()
    assert {path: data for path, data in all_files(storage).items() if held.name in path} == before


def test_links_are_not_followed(storage, elsewhere):
    run = stored_run(storage, at(40))
    day = Path(run.uri).parent
    (day / elsewhere.name).symlink_to(elsewhere)
    (day.parent / "date=2026-01-01").symlink_to(elsewhere.parent)
    (Path(run.uri) / "unload" / "wave-01.json").symlink_to(elsewhere / "outcome.json")
    (Path(run.uri) / "extra").symlink_to(elsewhere)

    report = upkeep(storage, history_days=1)

    assert {name.rpartition("/")[2] for name in report.why_left} == {
        elsewhere.name,
        "date=2026-01-01",
        "wave-01.json",
        "extra",
    }
    assert Path(run.uri, "extra").is_symlink()
    assert not (run / "outcome.json").exists()


def test_retention_follows_no_link(storage, elsewhere, monkeypatch):
    run = stored_run(storage, at(40))
    real = path.delete_entries

    def swap(base: StoragePath, folder: StoragePath, content: Any, *, is_whole: bool) -> None:
        if Path(run.uri).is_dir() and not Path(run.uri).is_symlink():
            Path(run.uri).rename(Path(run.uri).with_name("moved"))
            Path(run.uri).symlink_to(elsewhere)
        real(base, folder, content, is_whole=is_whole)

    monkeypatch.setattr(retention, "delete_entries", swap)

    with pytest.raises(SnapshotError, match="outside"):
        upkeep(storage, history_days=1)


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
    "state/means-1-0a0a0a0a.parquet.bak",
    "state/means-1.parquet",
    "state/.hidden",
)


def test_foreign_files_stay(storage):
    for file in FOREIGN:
        aged(StoragePath(f"{storage.base.uri}/{file}"), 100, SECRET.encode())
    stored_run(storage, at(40))

    report = upkeep(storage, history_days=1)

    assert all_files(storage) == dict.fromkeys(FOREIGN, SECRET.encode())
    assert report.why_left["runs/README"] == "not written by the rebalancer"
