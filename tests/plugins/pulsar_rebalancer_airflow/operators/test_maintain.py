import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER, make_run

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.manual_plans import Answer, Answers, Question
from pulsar_rebalancer.run.compacted_tables import compacted_runs
from pulsar_rebalancer.run.plan import read_plan_state
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import ClusterStorage, CommitMark
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import MaintainOperator

LONG_AGO = timedelta(days=5)


def maintain(
    storage: ClusterStorage, state: MemoryState, *, run_type: str = "scheduled", dry_run: bool = True
) -> dict[str, Any]:
    entry = ClusterEntry(name=CLUSTER, given={}, settings=Settings())
    operator = MaintainOperator(task_id="maintain", entry=entry, root=storage.root)
    return operator.execute(context(CLUSTER, state, params={"dry_run": dry_run}, run_type=run_type))


def day(run: StoragePath) -> date:
    return date.fromisoformat(Path(run.uri).parent.name.removeprefix("date="))


def committed(storage: ClusterStorage, state: MemoryState, seq: int) -> StoragePath:
    """A run as record leaves it: its state in the store, its mark, and the files that the state points to."""
    run = make_run(storage, base_seq=seq - 1, means=f"means-{seq}-0a0a0a0a.parquet", age=LONG_AGO / seq)
    document = read_plan_state(run)
    old(storage, *document.file_names)
    store_of(state).put(document)
    CommitMark(seq=seq, at=datetime.now(UTC)).write(run)
    return run


def old(storage: ClusterStorage, *names: str) -> None:
    written = (datetime.now(UTC) - LONG_AGO).timestamp()
    for name in names:
        (storage.state / name).write_bytes(b"{}")
        os.utime((storage.state / name).uri, (written, written))


def test_a_scheduled_run_acts_whatever_the_form_says(storage, state):
    run = make_run(storage, age=LONG_AGO)

    report = maintain(storage, state)

    assert not run.exists()
    assert not report["dry_run"]
    assert compacted_runs(storage, day(run)) == {run.name}


def test_a_manual_run_says_what_it_would_do(storage, state):
    run = make_run(storage, age=LONG_AGO)
    size = sum(path.stat().st_size for path in Path(run.uri).rglob("*") if path.is_file())

    report = maintain(storage, state, run_type="manual")

    assert run.exists()
    (step,) = report["steps"]
    assert (step["action"], step["runs"], step["files"], step["size"]) == ("compact", 1, 7, size)
    assert (report["dry_run"], report["files"], report["bytes"]) == (True, 7, size)


def test_plans_that_may_still_be_carried_out_stay(storage, state):
    waiting, approved, other = (make_run(storage, age=LONG_AGO) for _ in range(3))
    store_of(state).put(Question(plan_id=waiting.name))
    answer = Answer(question=Question(plan_id=approved.name), at=datetime.now(UTC), by="ada", reason="")
    store_of(state).put(Answers(plans={approved.name: answer}))

    maintain(storage, state)

    assert [run.exists() for run in (waiting, approved, other)] == [True, True, False]


@pytest.mark.parametrize("state_was_reset", [False, True])
def test_files_of_the_state_and_of_the_last_committed_plan_stay(storage, state, state_was_reset):
    runs = [committed(storage, state, seq) for seq in (1, 2)]
    if state_was_reset:
        store_of(state).put(DecisionState(seq=3))
    state.writes.clear()

    maintain(storage, state)

    # A person may restore the last plan's state, and its mark shows that the store has held documents.
    assert [run.exists() for run in runs] == [False, True]
    assert storage.state.entry_names() == ["costs-2-0a0a0a0a.parquet", "means-2-0a0a0a0a.parquet"]
    assert not state.writes


@pytest.mark.parametrize("why", ["missing", "damaged", "plan"])
def test_retention_waits_while_the_state_is_lost(storage, state, why):
    runs = [committed(storage, state, seq) for seq in (1, 2)]
    if why == "missing":
        state.documents.clear()
    elif why == "damaged":
        state.documents["decision"] = {"version": 99}
    else:
        (runs[1] / "plan" / "state.json").write_bytes(b"{")
    before = storage.state.entry_names()

    with pytest.raises(AirflowFailException, match="file_damaged" if why == "plan" else "state_lost"):
        maintain(storage, state)

    assert all(run.exists() for run in runs)
    assert storage.state.entry_names() == before
