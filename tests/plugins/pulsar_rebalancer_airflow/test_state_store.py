from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from tests.airflow_context import MemoryState, store_of

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import DecisionState, HitCount, MovesState
from pulsar_rebalancer.storage.documents import ClusterStorage, CommitMark
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.state_store import ALL_DOCUMENTS, StoredState

NOW = datetime(2026, 11, 22, tzinfo=UTC)
DRAIN = Drain(at=NOW, by="ada", reason="new disks")


def test_documents_come_back_as_they_were(state, storage):
    store = store_of(state)
    written = DecisionState(seq=3, plan_id="p", hits={"b:1": HitCount(1, 2)})

    store.put(written)

    assert store.get(DecisionState) == written
    assert store.get(MovesState) == MovesState()
    assert state.writes == ["decision"]


def committed(storage: ClusterStorage) -> None:
    CommitMark(seq=7, at=NOW).write(storage.new_run_folder(NOW))


def test_missing_documents_are_initial_ones_until_a_run_is_committed(storage):
    store = store_of(MemoryState(documents={}))
    (storage.new_run_folder(NOW) / "outcome.json").write_json({})

    assert (store.get(DecisionState), store.lost_documents(), store.orders().lost_text) == (DecisionState(), {}, "")

    committed(storage)

    assert store.lost_documents() == {model.KEY: "missing" for model in ALL_DOCUMENTS}
    with pytest.raises(StateError, match=r"decision: missing \[state_lost\]"):
        store.get(DecisionState)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ({"version": 99}, "the document has version 99; this release reads version 1"),
        ({"version": 1, "brokers": 7}, "the document cannot be read: brokers: Input should be a valid dictionary"),
        ({"version": 1, "other": 1}, "the document has field other, unknown to this release"),
    ],
)
def test_a_document_that_cannot_be_read_is_lost_and_the_others_are_shown(state, storage, damage, why):
    store = store_of(state)
    store.put(Roll(id="f", by="bob", order=("b:1",), turn_at=NOW, phase=Phase.DRAINING))
    state.documents["drains"] = damage

    orders = store.orders()

    assert store.lost_documents() == {"drains": why}
    assert (orders.lost_text, list(orders.get(Drains).brokers)) == (f"drains: {why}", ["b:1"])


def test_documents_are_read_once(state, storage):
    read: list[str] = []

    def raw(key: str) -> Any:
        read.append(key)
        return state.get(key)

    StoredState(raw, storage).orders()

    assert sorted(read) == sorted(model.KEY for model in ALL_DOCUMENTS)


def test_a_storage_that_fails_is_no_loss(storage):
    failing = mock.patch.object(StoragePath, "entry_names", side_effect=SnapshotError(Reason.STORAGE_FAILED, "busy"))

    with failing, pytest.raises(SnapshotError):
        store_of(MemoryState(documents={})).lost_documents()


def test_the_broker_of_a_rolling_restart_is_drained_until_a_person_releases_it(state, storage):
    store = store_of(state)
    store.put(Drains(brokers={"a:1": DRAIN}))
    store.put(Roll(id="f", by="bob", order=("b:1",), turn_at=NOW, phase=Phase.DRAINING))
    assert set(store.orders().get(Drains).brokers) == {"a:1", "b:1"}

    store.put(Drains(released={"b:1": NOW}))
    assert store.orders().get(Drains).brokers == {}
