"""Upgrade: what the previous release left behind is read, or refused with a word; what a newer one wrote is refused."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.include.pulsar_rebalancer import previous_release as previous

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.maintenance.inventory import days_before
from pulsar_rebalancer.maintenance.retention import maintain
from pulsar_rebalancer.maintenance.state_files import Needed
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.compacted_tables import RUNS, TABLES, complete_runs, footer_of, rows_by_run, table_file
from pulsar_rebalancer.run.plan import Summary, read_moves, read_state, verify
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.show import check_age
from pulsar_rebalancer.state.counting import Counting, decide_counting
from pulsar_rebalancer.state.state_documents import VERSION, DecisionState, HitCount, MovesState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

NEXT_DAY = datetime(2026, 11, 22, 3, tzinfo=UTC)
KEEP = Settings(compact_after_days=1, retention_days=14, history_days=90)


@pytest.fixture
def storage(tmp_path: Path) -> ClusterStorage:
    return previous.unpack(tmp_path)


@pytest.fixture
def run(storage: ClusterStorage) -> StoragePath:
    return previous.run_of(storage)


def test_hits_are_carried_on() -> None:
    document = previous.stored("counted")["decision"]
    state = DecisionState.parse(document)

    assert (document["version"], state.version) == (1, VERSION)
    assert state.hits == {f"{previous.HOST}:{port}": HitCount(high=1, low=1) for port in (18081, 18082)}
    assert (state.seq, state.means, state.kept) == (1, "means-1-d60d8ce9.parquet", {})
    now = datetime.fromisoformat(document["counted_at"]) + timedelta(seconds=60)
    assert decide_counting(state, Settings(), now) == Counting(True, Reason.COUNTED)


def test_bundles_stay_in_their_grace_period() -> None:
    moves = MovesState.parse(previous.stored("moved")["moves"])
    assert moves.version == VERSION
    assert set(moves.recent(NEXT_DAY.replace(day=21, hour=17, minute=30), 30)) == set(previous.BUNDLES)


def test_copies_and_exports_can_be_restored(storage: ClusterStorage) -> None:
    copies = {name: (storage.state / name).read_json() for name in storage.state.names() if name.endswith(".json")}
    assert [DecisionState.parse(copies.pop(f"decision-{seq}.json")).seq for seq in (1, 2)] == [1, 2]
    (export,) = copies.values()
    assert DecisionState.parse(export["decision"]).seq == 2
    assert set(MovesState.parse(export["moves"]).unloads) == set(previous.BUNDLES)


def test_its_plan_is_whole(run: StoragePath) -> None:
    """A plan that was recorded before the upgrade can be carried out after it, while it is young enough."""
    summary = Summary.read(run)
    assert summary.plan_id == previous.RUN
    assert (
        [move.bundle for move in verify(run, summary).moves]
        == sorted(previous.BUNDLES)
        == sorted(move.bundle for move in read_moves(run))
    )
    assert read_state(run).seq == summary.base_seq + 1
    assert RunRequest.read(run).params.force == "the previous release moves"
    assert Validation.read(run).findings == ()


def test_its_sample_is_not_decided(run: StoragePath) -> None:
    """A run that was collected before the upgrade and not decided is collected anew."""
    for name in tables.INPUT:
        with pytest.raises(SnapshotError, match=r"version 1, this release reads version 2 \[file_version\]"):
            tables.read(run, name)
    assert Reason("file_version").action == "Clear the run's collect task."


def test_its_outcome_is_seen_from_outside(storage: ClusterStorage) -> None:
    age = check_age.ages(storage, datetime(2026, 11, 21, 18, tzinfo=UTC)).outcome
    assert age is not None
    assert 0 < age < 3600


def test_its_runs_are_compacted_and_removed(storage: ClusterStorage) -> None:
    held = Needed(frozenset(), frozenset({"decision-1.json", "decision-2.json", "means-1-d60d8ce9.parquet"}))
    (day,) = days_before(storage, NEXT_DAY.date())
    assert [(found.name, found.foreign, found.ended) for found in day.runs] == [(previous.RUN, (), True)]

    report = maintain(storage, KEEP, held, NEXT_DAY, dry_run=False)

    assert (report.problems, report.left) == ([], {})
    assert [step[:3] for step in report.steps] == [("compact", str(previous.DAY), 1)]
    assert complete_runs(storage, previous.DAY) == {previous.RUN}
    counts = {kind: rows_by_run(table_file(storage, kind, previous.DAY))[previous.RUN] for kind in (*TABLES, RUNS)}
    assert counts == {"cluster": 1, "brokers": 3, "bundles": 15, "decisions": 2, "moves": 8, "splits": 0, "runs": 1}
    decisions = table_file(storage, "decisions", previous.DAY).read_table()
    assert tables.version_of(decisions.schema) == "2"
    assert decisions["explanation"].null_count == decisions.num_rows
    assert not day.folder.exists()

    later = maintain(storage, KEEP, held, NEXT_DAY + timedelta(days=100), dry_run=False)
    assert {step.action for step in later.steps} == {"remove history", "remove state files"}


def rewrite(file: StoragePath, **changes: Any) -> None:
    file.write_json(file.read_json() | changes)


DOCUMENTS: dict[str, tuple[str, Callable[[StoragePath], Any]]] = {
    "request": ("input/settings.json", RunRequest.read),
    "validation": ("validation.json", Validation.read),
    "summary": ("plan/summary.json", Summary.read),
}
DAMAGED = {"request": {"cluster": 7}, "validation": {"findings": 7}, "summary": {"brokers": "many"}}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_documents_of_another_release_are_refused(run: StoragePath, kind: str) -> None:
    path, read = DOCUMENTS[kind]
    whole = (run / path).read_json()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"version": 2}, "file_version"),
        ({"version": None}, "file_version"),
        ({"of_the_next_release": 1}, "file_version"),
        (DAMAGED[kind], "file_damaged"),
    ]
    for changes, reason in refused:
        (run / path).write_json(whole | changes)
        with pytest.raises(SnapshotError, match=rf"{path}.*\[{reason}\]"):
            read(run)


def test_policies_of_another_release_are_refused(run: StoragePath) -> None:
    with pytest.raises(SnapshotError, match="file_missing"):  # the previous release wrote none
        Policies.read(run)
    Policies().write(run)
    rewrite(run / "input" / "policies.json", version=2, of_the_next_release=1)
    with pytest.raises(SnapshotError, match="has version 2, this release reads 1"):
        Policies.read(run)


@pytest.mark.parametrize("name", ["decision", "moves"])
def test_a_newer_state_is_refused(name: str) -> None:
    document = previous.stored("moved")[name] | {"version": VERSION + 1}
    with pytest.raises(StateError, match=rf"version {VERSION + 1}, this release reads 1 to 4 \[state_version\]"):
        (DecisionState if name == "decision" else MovesState).parse(document)
    assert Reason("state_version").action == "Upgrade, or reset the state."


def test_a_plan_with_a_newer_state_is_refused(run: StoragePath) -> None:
    rewrite(run / "plan" / "state.json", version=VERSION + 1)
    with pytest.raises(StateError, match="state_version"):
        read_state(run)


def newer(file: StoragePath) -> None:
    found = file.read_table()
    file.write_table(found.replace_schema_metadata({"version": "99"}))


def test_tables_of_a_newer_release_with_todays_columns_are_refused(run: StoragePath) -> None:
    (run / "input" / "brokers.parquet").write_table(tables.table([], tables.BROKERS))
    assert tables.read(run, "brokers").num_rows == 0
    newer(run / "input" / "brokers.parquet")
    with pytest.raises(SnapshotError, match=r"version 99, this release reads version 2 \[file_version\]"):
        tables.read(run, "brokers")


def test_a_run_of_a_newer_release_is_left_alone(storage: ClusterStorage, run: StoragePath) -> None:
    newer(run / "plan" / "decisions.parquet")

    report = maintain(storage, KEEP, Needed(frozenset(), None), NEXT_DAY, dry_run=False)

    assert "version 99, this release reads up to 2" in report.left[f"runs/date={previous.DAY}/{previous.RUN}"]
    assert run.exists()
    assert report.steps == []


@pytest.mark.parametrize("kind", [RUNS, "decisions"])
def test_a_history_of_a_newer_release_is_left_alone(storage: ClusterStorage, tmp_path: Path, kind: str) -> None:
    maintain(storage, KEEP, Needed(frozenset(), None), NEXT_DAY, dry_run=False)
    newer(table_file(storage, kind, previous.DAY))
    again = previous.run_of(previous.unpack(tmp_path / "again"))
    shutil.copytree(again.uri, previous.run_of(storage).uri.replace("9fd1cb61", "00000001"))

    report = maintain(storage, KEEP, Needed(frozenset(), None), NEXT_DAY, dry_run=False)

    (problem,) = report.problems
    assert "version 99" in problem
    assert "file_version" in problem
    assert report.steps == []
    assert footer_of(table_file(storage, kind, previous.DAY))[0].metadata[b"version"] == b"99"
