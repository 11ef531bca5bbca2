import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, context
from tests.airflow_runs import CLUSTER, make_run, move_row

from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.storage.documents import ClusterStorage, CommitMark
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import RecordOperator


def record(storage: ClusterStorage, run: StoragePath, state: MemoryState) -> list[int]:
    operator = RecordOperator(task_id="record", cluster=CLUSTER, run=run.uri)
    return operator.execute(context(CLUSTER, state))


def test_commits_in_one_write_and_marks_the_run(storage, state):
    run = make_run(storage, hits={"b:1": (0, 3)})

    assert record(storage, run, state) == []

    assert state.writes == ["decision"]
    assert state.documents["decision"]["plan_id"] == run.name
    assert state.documents["decision"]["hits"] == {"b:1": [0, 3]}
    assert CommitMark.read(run).seq == 1


def test_a_stale_plan_is_refused_without_a_retry(storage, state):
    first, second = make_run(storage), make_run(storage)
    record(storage, first, state)
    before = dict(state.documents)

    with pytest.raises(AirflowFailException, match="stale_plan"):
        record(storage, second, state)

    assert state.documents == before


def test_a_blocked_run_is_not_recorded_whatever_its_mark_says(storage, state):
    block = Finding(reason="too_many_quarantined")
    run = make_run(storage, [move_row(1, "a:1", "b:1")], validation=Validation(findings=(block,)))

    with pytest.raises(AirflowFailException, match=r"too_many_quarantined \[blocked\]"):
        record(storage, run, state)

    assert state.writes == []


def test_a_retry_after_a_kill_writes_the_mark_and_any_other_keeps_it(storage, state):
    run = make_run(storage)
    record(storage, run, state)
    (run / CommitMark.FILE).delete()

    record(storage, run, state)
    written = CommitMark.read(run)
    record(storage, run, state)

    assert CommitMark.read(run) == written


def test_the_files_of_the_state_and_of_the_one_before_are_kept(storage, state):
    files = {seq: [f"{of}-{seq}-0000000{seq}.parquet" for of in ("costs", "means")] for seq in (1, 2, 3)}
    for seq, (costs, means) in files.items():
        for name in (costs, means, "export-20260101T000000Z.json"):
            (storage.state / name).write_bytes(b"")
        record(storage, make_run(storage, base_seq=seq - 1, means=means), state)

    assert storage.state.entry_names() == sorted([*files[2], "export-20260101T000000Z.json", *files[3]])


def test_no_plan_is_recorded_over_a_lost_state(storage, state):
    record(storage, make_run(storage), state)
    del state.documents["decision"]

    with pytest.raises(AirflowFailException, match=r"decision: missing \[state_lost\]"):
        record(storage, make_run(storage), state)

    assert "decision" not in state.documents
