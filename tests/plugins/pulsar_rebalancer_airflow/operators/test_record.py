from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, context
from tests.airflow_runs import CLUSTER, make_run, move_row

from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import RecordOperator


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


def test_a_stale_plan_is_refused_without_a_retry(storage: ClusterStorage, state: MemoryState) -> None:
    first, second = make_run(storage), make_run(storage)
    record(storage, first, state)
    before = dict(state.documents)

    with pytest.raises(AirflowFailException, match="stale_plan"):
        record(storage, second, state)

    assert state.documents == before


def test_a_blocked_run_is_not_recorded_whatever_its_mark_says(storage: ClusterStorage, state: MemoryState) -> None:
    block = Finding(reason="too_many_quarantined")
    run = make_run(storage, [move_row(1, "a:1", "b:1")], validation=Validation(findings=(block,)))

    with pytest.raises(AirflowFailException, match=r"too_many_quarantined \[blocked\]"):
        record(storage, run, state)

    assert state.writes == []
