from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER, make_run, move_row

from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.state.state_documents import committed_sequences
from pulsar_rebalancer_airflow.operators import RecordOperator

if TYPE_CHECKING:
    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.storage.documents import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath


def record(storage: ClusterStorage, run: StoragePath, state: MemoryState) -> list[int]:
    operator = RecordOperator(task_id="record", cluster=CLUSTER, run=run.uri)
    return operator.execute(context(CLUSTER, state))


def test_commits_in_one_write_and_keeps_a_copy(storage: ClusterStorage, state: MemoryState) -> None:
    run = make_run(storage, hits={"b:1": (0, 3)})

    assert record(storage, run, state) == []

    assert state.writes == ["decision"]
    assert state.documents["decision"]["plan_id"] == run.name
    assert state.documents["decision"]["hits"] == {"b:1": [0, 3]}
    assert (storage.state / "decision-1.json").read_json() == state.documents["decision"]


def test_a_retry_changes_nothing(storage: ClusterStorage, state: MemoryState) -> None:
    run = make_run(storage, hits={"b:1": (0, 3)})
    record(storage, run, state)

    assert record(storage, run, state) == []

    assert state.writes == ["decision"]


def test_a_retry_after_a_kill_writes_the_copy(storage: ClusterStorage, state: MemoryState) -> None:
    run = make_run(storage)
    record(storage, run, state)
    (storage.state / "decision-1.json").delete()

    record(storage, run, state)

    assert committed_sequences(storage) == [1]


def test_a_stale_plan_is_refused_without_a_retry(storage: ClusterStorage, state: MemoryState) -> None:
    first, second = make_run(storage), make_run(storage)
    record(storage, first, state)
    before = dict(state.documents)

    with pytest.raises(AirflowFailException, match="stale_plan"):
        record(storage, second, state)

    assert state.documents == before


def test_the_run_before_the_last_is_stale_as_well(storage: ClusterStorage, state: MemoryState) -> None:
    first = make_run(storage)
    record(storage, first, state)
    record(storage, make_run(storage, base_seq=1), state)

    with pytest.raises(AirflowFailException, match="stale_plan"):
        record(storage, first, state)


def test_a_blocked_run_is_not_recorded_whatever_its_mark_says(storage: ClusterStorage, state: MemoryState) -> None:
    block = Finding(reason="too_many_quarantined")
    run = make_run(storage, [move_row(1, "a:1", "b:1")], validation=Validation(findings=(block,)))

    with pytest.raises(AirflowFailException, match=r"too_many_quarantined \[blocked\]"):
        record(storage, run, state)

    assert state.writes == []


def test_an_altered_plan_is_not_recorded(storage: ClusterStorage, state: MemoryState) -> None:
    run = make_run(storage, [move_row(1, "a:1", "b:1")])
    document = (run / "plan" / "state.json").read_json()
    (run / "plan" / "state.json").write_json(document | {"hits": {"b:1": [9, 9]}})

    with pytest.raises(AirflowFailException, match="plan_changed"):
        record(storage, run, state)

    assert not state.writes


def test_a_run_without_a_summary_has_no_plan(storage: ClusterStorage, state: MemoryState) -> None:
    run = make_run(storage)
    (run / "plan" / "summary.json").delete()

    with pytest.raises(AirflowFailException, match="file_missing"):
        record(storage, run, state)
