from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState
from tests.plugins.pulsar_rebalancer_airflow.operators.control_scene import control

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.control_document import Control
from pulsar_rebalancer.orders.manual_plans import Drain, Drains, ShownPlan, ShownPlans
from pulsar_rebalancer.state.state_documents import (
    DecisionState,
    HitCount,
    MovesState,
    StateDocument,
    Unload,
    committed_sequences,
    keep_copy,
)
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.state_store import DOCUMENTS, StateStore

UNLOAD = Unload(at=datetime(2026, 1, 2, tzinfo=UTC), plan_id="p5", source="a:1", destination="b:1", outcome="moved")
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
    return control(storage, state, Settings(), {"action": action, "reason": reason, "file": file})


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
    assert (entry["seq_before"], entry["seq_after"], entry["done"]) == (5, 6, True)


def test_a_change_that_is_killed_halfway_is_noted(
    storage: ClusterStorage, state: MemoryState, filled: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateStore, "put", Mock(side_effect=ConnectionError("the store is away")))

    with pytest.raises(ConnectionError):
        act(storage, state, "reset", "load was replayed")

    (entry,) = [(storage.state / n).read_json() for n in storage.state.names() if n.startswith("change-")]
    assert (entry["by"], entry["seq_after"], entry["done"]) == ("ada", 6, False)


def test_restores_a_lost_state_from_the_newest_copy(
    storage: ClusterStorage, state: MemoryState, filled: StateStore
) -> None:
    state.documents.clear()

    act(storage, state, "restore", "database was lost")

    # The plan id is gone: what was carried out once must not be carried out again.
    assert filled.get(DecisionState) == DECIDED.model_copy(update={"seq": 6, "plan_id": ""})


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


UNREADABLE: dict[str, dict[str, Any]] = {
    "newer": {"version": 99, "plans": {"a": 1}},
    "damaged": {"version": 1, "incidents": 7, "seq": float("nan")},
}


@pytest.mark.parametrize("damage", UNREADABLE)
@pytest.mark.parametrize("model", DOCUMENTS, ids=lambda model: model.KEY)
def test_every_document_that_cannot_be_read_is_restored_and_said(
    storage: ClusterStorage, state: MemoryState, filled: StateStore, model: type[StateDocument], damage: str
) -> None:
    state.documents[model.KEY] = UNREADABLE[damage]
    action = "resume" if model is Control else "reset"

    answer = act(storage, state, action, "written by a newer release")

    assert model.parse(state.documents[model.KEY]).version == 1
    assert f"{model.KEY!r}" in answer["lost"][model.KEY]
    (entry,) = [(storage.state / n).read_json() for n in storage.state.names() if n.startswith("change-")]
    assert entry["lost"] == answer["lost"]
    assert json.loads(entry["was"][model.KEY]).keys() == UNREADABLE[damage].keys()
    assert "lost" not in act(storage, state, "reset", "nothing is lost now")


def test_every_document_of_the_store_can_be_restored() -> None:
    def below(model: type[StateDocument]) -> set[type[StateDocument]]:
        return {model}.union(*map(below, model.__subclasses__()))

    assert set(DOCUMENTS) == below(StateDocument) - {StateDocument}


def test_a_reset_leaves_readable_documents_and_orders_as_they_are(
    storage: ClusterStorage, state: MemoryState, filled: StateStore
) -> None:
    drain = Drain(at=datetime.now(UTC), by="ada", reason="new disks")
    filled.put_drains(storage, Drains(brokers={"a:1": drain}))
    shown = ShownPlan(plan_id="p5", action=None, at=datetime.now(UTC), by="ada")
    filled.put(ShownPlans(plans={"h": shown}))
    state.documents |= {"control": {"version": 99}, "drains": {"version": 99}, "question": {"version": 99}}
    (storage.state / "drains.json").write_json(Drains(brokers={"a:1": drain}).model_dump(mode="json"))

    answer = act(storage, state, "reset", "written by a newer release")

    assert set(answer["lost"]) == {"drains", "question"}
    assert "cannot be read" in answer["in_force"]  # only a person who resumes or pauses gives orders up
    assert filled.drains(storage).brokers == {"a:1": drain}
    assert filled.get(ShownPlans).plans == {"h": shown}


def test_a_plan_that_may_have_been_carried_out_is_not_carried_out_again(
    storage: ClusterStorage, state: MemoryState, filled: StateStore
) -> None:
    filled.put(ShownPlans(plans={"h": ShownPlan(plan_id="p5", action=None, at=datetime.now(UTC), by="ada")}))
    state.documents["handed_over"] = {"version": 99}

    act(storage, state, "reset", "written by a newer release")

    assert filled.get(ShownPlans).plans == {}
