from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, context
from tests.airflow_runs import CLUSTER, make_run

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.manual_plans import Answer, Answers, Question
from pulsar_rebalancer.run.compacted_tables import complete_runs
from pulsar_rebalancer.state.state_documents import DecisionState, keep_copy
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import MaintainOperator
from pulsar_rebalancer_airflow.state_store import StateStore

LONG_AGO = timedelta(days=5)


def maintain(
    storage: ClusterStorage, state: MemoryState, *, run_type: str = "scheduled", dry_run: bool = True
) -> dict[str, Any]:
    entry = ClusterEntry(name=CLUSTER, given={}, settings=Settings())
    operator = MaintainOperator(task_id="maintain", entry=entry, root=storage.root)
    return operator.execute(context(CLUSTER, state, params={"dry_run": dry_run}, run_type=run_type))


def day(run: StoragePath) -> date:
    return date.fromisoformat(Path(run.uri).parent.name.removeprefix("date="))


def decided(storage: ClusterStorage, state: MemoryState, seq: int, run: StoragePath | None = None) -> None:
    """A state as record leaves it: in the store, a copy beside it, and the files that it points to."""
    means = f"means-{seq}-0a0a0a0a.parquet"
    document = DecisionState(seq=seq, plan_id=run.name if run else "", means=means)
    for name in document.files:
        (storage.state / name).write_bytes(b"")
    StateStore(state).put(document)
    keep_copy(storage, document)


def old(storage: ClusterStorage, *names: str) -> None:
    written = (datetime.now(UTC) - LONG_AGO).timestamp()
    for name in names:
        file = storage.state / name
        if not file.exists():
            file.write_bytes(b"{}")
        os.utime(file.uri, (written, written))


def test_a_scheduled_run_acts_whatever_the_form_says(storage: ClusterStorage, state: MemoryState) -> None:
    run = make_run(storage, age=LONG_AGO)

    report = maintain(storage, state)

    assert not run.exists()
    assert not report["dry_run"]
    assert complete_runs(storage, day(run)) == {run.name}


def test_a_manual_run_says_what_it_would_do(storage: ClusterStorage, state: MemoryState) -> None:
    run = make_run(storage, age=LONG_AGO)
    size = sum(path.stat().st_size for path in Path(run.uri).rglob("*") if path.is_file())

    report = maintain(storage, state, run_type="manual")

    assert run.exists()
    (step,) = report["steps"]
    assert (step["action"], step["runs"], step["files"], step["size"]) == ("compact", 1, 6, size)
    assert (report["dry_run"], report["files"], report["bytes"]) == (True, 6, size)


def test_what_a_person_may_still_have_carried_out_stays(storage: ClusterStorage, state: MemoryState) -> None:
    waiting, approved, other = (make_run(storage, age=LONG_AGO) for _ in range(3))
    StateStore(state).put(Question(plan_id=waiting.name))
    answer = Answer(question=Question(plan_id=approved.name), at=datetime.now(UTC), by="ada", reason="")
    StateStore(state).put(Answers(plans={approved.name: answer}))

    maintain(storage, state)

    assert [run.exists() for run in (waiting, approved, other)] == [True, True, False]


def test_what_the_state_and_its_copies_point_to_stays(storage: ClusterStorage, state: MemoryState) -> None:
    runs = [make_run(storage, age=LONG_AGO) for _ in range(3)]
    for seq, run in enumerate(runs, start=1):
        decided(storage, state, seq, run)
    tables = ("means", "costs")
    kept = [
        name for seq in (2, 3) for name in (f"decision-{seq}.json", *(f"{of}-{seq}-0a0a0a0a.parquet" for of in tables))
    ]
    # Left by a record that was stopped, and by a store that was rolled back.
    old(storage, *kept, "decision-1.json", *(f"{of}-1-0b0b0b0b.parquet" for of in tables), "decision-9.json")
    state.writes.clear()

    maintain(storage, state)

    assert [run.exists() for run in runs] == [False, True, True]
    assert storage.state.names() == sorted(kept)
    assert not state.writes


def test_a_lost_state_can_still_be_restored(storage: ClusterStorage, state: MemoryState) -> None:
    run, other = make_run(storage, age=LONG_AGO), make_run(storage, age=LONG_AGO)
    decided(storage, state, 7, run)
    old(storage, *storage.state.names(), "means-5-0a0a0a0a.parquet")
    before = storage.state.names()
    state.documents.clear()

    maintain(storage, state)

    assert storage.state.names() == before
    assert run.exists()
    assert not other.exists()


@pytest.mark.parametrize("unreadable", ["store", "copy"])
def test_nothing_is_deleted_while_the_state_cannot_be_read(
    storage: ClusterStorage, state: MemoryState, unreadable: str
) -> None:
    run = make_run(storage, age=LONG_AGO)
    decided(storage, state, 1)
    if unreadable == "store":
        state.documents["decision"] = {"version": 99}
    else:
        (storage.state / "decision-1.json").write_bytes(b"{")

    with pytest.raises(AirflowFailException, match=r"state_version|file_damaged"):
        maintain(storage, state)

    assert run.exists()
