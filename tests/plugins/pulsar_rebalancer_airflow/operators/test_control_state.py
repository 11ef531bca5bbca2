from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.state.backup import committed_sequences, keep_copy
from pulsar_rebalancer.state.state_documents import DecisionState, HitCount, MovesState, Unload
from pulsar_rebalancer_airflow.operators import ControlOperator
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.storage.layout import ClusterStorage

UNLOAD = Unload(at=datetime.now(UTC), plan_id="p5", source="a:1", destination="b:1", outcome="moved")
DECIDED = DecisionState(
    seq=5, plan_id="p5", strategy="AvgShedder", hits={"b:1": HitCount(1, 4)}, means="means-5-x.parquet"
)


@pytest.fixture
def filled(storage: ClusterStorage, state: MemoryState) -> StateStore:
    store = StateStore(state)
    (storage.state / DECIDED.means).write_bytes(b"")
    store.put(DECIDED)
    store.put(MovesState(unloads={"t/n/0x00000000_0xffffffff": UNLOAD}))
    keep_copy(storage, DECIDED)
    state.writes.clear()
    return store


def act(storage: ClusterStorage, state: MemoryState, action: str, reason: str = "", file: str | None = None) -> Any:
    entry = ClusterEntry(name=CLUSTER, given={}, settings=Settings())
    operator = ControlOperator(task_id="control", entry=entry, root=storage.root)
    params = {"action": action, "reason": reason, "file": file}
    return operator.execute(context(CLUSTER, state, params=params))


def test_show_changes_nothing(storage: ClusterStorage, state: MemoryState, filled: StateStore) -> None:
    shown = act(storage, state, "show")["state"]

    assert (shown["seq"], shown["plan_id"], shown["recently_unloaded"]) == (5, "p5", 1)
    assert shown["most_hits"] == {"b:1": {"high": 1, "low": 4}}
    assert not state.writes


def test_reset_is_the_way_out_of_a_state_of_a_newer_release(
    storage: ClusterStorage, state: MemoryState, filled: StateStore
) -> None:
    newer = DECIDED.model_dump(mode="json") | {"version": 99}
    state.set(DecisionState.KEY, newer)
    (storage.state / "decision-5.json").write_json(newer)

    with pytest.raises(AirflowFailException, match=r"version 99.*state_version.*reset the state"):
        act(storage, state, "show")
    act(storage, state, "reset", "back to the release before")

    assert filled.get(DecisionState) == DecisionState(seq=6)
    assert any(name.startswith("change-") for name in storage.state.names())
    # The newer release may be installed again: its copy and the means that it may point to are kept.
    assert {"decision-5.json", DECIDED.means} <= set(storage.state.names())


def test_reset_makes_plans_under_way_stale(storage: ClusterStorage, state: MemoryState, filled: StateStore) -> None:
    act(storage, state, "reset", "load was replayed")

    assert filled.get(DecisionState) == DecisionState(seq=6)
    assert set(filled.get(MovesState).unloads) == {"t/n/0x00000000_0xffffffff"}  # moved lately: still protected
    assert committed_sequences(storage) == [5, 6]
    (entry,) = [(storage.state / n).read_json() for n in storage.state.names() if n.startswith("change-")]
    assert (entry["action"], entry["by"], entry["reason"]) == ("reset", "ada", "load was replayed")
    assert (entry["seq_before"], entry["seq_after"]) == (5, 6)


@pytest.mark.parametrize("action", ["reset", "restore"])
def test_a_change_needs_a_reason(storage: ClusterStorage, state: MemoryState, filled: StateStore, action: str) -> None:
    with pytest.raises(AirflowFailException, match="reason"):
        act(storage, state, action, "   ")

    assert not state.writes


def test_restores_a_lost_state_from_the_newest_copy(
    storage: ClusterStorage, state: MemoryState, filled: StateStore
) -> None:
    state.documents.clear()

    act(storage, state, "restore", "database was lost")

    # The plan id is gone: what was carried out once must not be carried out again.
    assert filled.get(DecisionState) == DECIDED.model_copy(update={"seq": 6, "plan_id": ""})


def test_resets_a_lost_state(storage: ClusterStorage, state: MemoryState, filled: StateStore) -> None:
    state.documents.clear()

    act(storage, state, "reset", "database was lost")

    assert filled.decision_or_lost(storage) == DecisionState(seq=6)


def test_restores_an_export_with_the_unload_history(
    storage: ClusterStorage, state: MemoryState, filled: StateStore
) -> None:
    act(storage, state, "export")
    (name,) = [name for name in storage.state.names() if name.startswith("export-")]
    assert not state.writes
    state.documents.clear()

    act(storage, state, "restore", "moved to another Airflow", name)

    assert filled.get(DecisionState).hits == DECIDED.hits
    assert set(filled.get(MovesState).unloads) == {"t/n/0x00000000_0xffffffff"}


def test_means_that_are_gone_start_anew(storage: ClusterStorage, state: MemoryState, filled: StateStore) -> None:
    (storage.state / DECIDED.means).delete()

    act(storage, state, "restore", "test")

    assert filled.get(DecisionState).means == ""


@pytest.mark.parametrize(
    "name", ["../other/state/decision-1.json", "/etc/passwd", "decision-.json", "change-20260101T000000Z-1.json"]
)
def test_a_file_is_named_and_never_a_path(
    storage: ClusterStorage, state: MemoryState, filled: StateStore, name: str
) -> None:
    with pytest.raises(AirflowFailException, match="file"):
        act(storage, state, "restore", "test", name)

    assert not state.writes


def test_a_damaged_export_is_not_an_empty_state(
    storage: ClusterStorage, state: MemoryState, filled: StateStore
) -> None:
    (storage.state / "export-20260101T000000Z.json").write_json({"decision": None})

    with pytest.raises(AirflowFailException, match="file_damaged"):
        act(storage, state, "restore", "test", "export-20260101T000000Z.json")

    assert not state.writes


def test_nothing_to_restore(storage: ClusterStorage, state: MemoryState) -> None:
    with pytest.raises(AirflowFailException, match="file_missing"):
        act(storage, state, "restore", "test")


def test_an_unreadable_state_can_be_reset(storage: ClusterStorage, state: MemoryState, filled: StateStore) -> None:
    state.documents = {DecisionState.KEY: {"version": 99, "seq": 40}, MovesState.KEY: {"version": 99}}

    act(storage, state, "reset", "written by a newer release")

    assert filled.get(DecisionState) == DecisionState(seq=41)
    assert filled.get(MovesState) == MovesState()
