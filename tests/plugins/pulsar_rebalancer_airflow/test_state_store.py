from __future__ import annotations

from datetime import UTC, datetime
from unittest import mock

import pytest
from tests.airflow_context import MemoryState

from pulsar_rebalancer.errors import RebalancerError, SnapshotError, StateError
from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.state_documents import (
    DecisionState,
    HitCount,
    MovesState,
    committed_sequences,
    copy_of,
    keep_copy,
)
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.state_store import StateStore


def test_documents_come_back_as_they_were(state: MemoryState) -> None:
    store = StateStore(state)
    written = DecisionState(seq=3, plan_id="p", hits={"b:1": HitCount(1, 2)})

    store.put(written)

    assert store.get(DecisionState) == written
    assert store.get(MovesState) == MovesState()
    assert state.writes == ["decision"]


def test_an_empty_store_beside_committed_states_is_lost(state: MemoryState, storage: ClusterStorage) -> None:
    keep_copy(storage, DecisionState(seq=7, plan_id="p"))

    with pytest.raises(StateError) as lost:
        StateStore(state).decision_or_lost(storage)

    assert lost.value.reason == "state_lost"
    assert "pulsar_control__east" in lost.value.message


def test_two_copies_are_kept_and_the_means_they_point_to(storage: ClusterStorage) -> None:
    for seq in range(1, 5):
        (storage.state / f"means-{seq}-0000000{seq}.parquet").write_bytes(b"")
        keep_copy(storage, DecisionState(seq=seq, plan_id=f"p{seq}", means=f"means-{seq}-0000000{seq}.parquet"))
    (storage.state / "export-20260101T000000Z.json").write_bytes(b"{}")

    keep_copy(storage, DecisionState(seq=4, plan_id="p4", means="means-4-00000004.parquet"))

    assert storage.state.names() == [
        "decision-3.json",
        "decision-4.json",
        "export-20260101T000000Z.json",
        "means-3-00000003.parquet",
        "means-4-00000004.parquet",
    ]


def test_files_that_several_states_share_are_kept(storage: ClusterStorage) -> None:
    shared = [f"{of}-1-0000000a.parquet" for of in ("costs", "means")]
    for name in (*shared, "costs-0-0000000a.parquet"):
        (storage.state / name).write_bytes(b"")
    for seq in range(1, 6):
        keep_copy(storage, DecisionState(seq=seq, plan_id=f"p{seq}", means=shared[1]))

    assert storage.state.names() == sorted(["decision-4.json", "decision-5.json", *shared])


def test_copies_of_a_rolled_back_store_go(storage: ClusterStorage) -> None:
    for seq in (8, 9, 5):
        keep_copy(storage, DecisionState(seq=seq, plan_id=f"p{seq}"))

    assert committed_sequences(storage) == [5]
    assert copy_of(storage, 5).read_json()["plan_id"] == "p5"


DRAINS = Drains(brokers={"a:1": Drain(at=datetime(2026, 11, 22, tzinfo=UTC), by="ada", reason="new disks")})


@pytest.mark.parametrize("lost", ["store", "copy", "neither"])
def test_the_loss_of_one_document_ends_no_drain(state: MemoryState, storage: ClusterStorage, lost: str) -> None:
    store = StateStore(state)
    store.put_drains(storage, DRAINS)
    if lost == "store":
        state.documents.clear()
    elif lost == "copy":
        storage.drains.delete()

    assert store.drains(storage) == DRAINS


def test_a_release_ends_a_drain_in_both_documents(state: MemoryState, storage: ClusterStorage) -> None:
    store = StateStore(state)
    store.put_drains(storage, DRAINS)
    store.put_drains(storage, Drains())

    assert store.drains(storage) == Drains()


@pytest.mark.parametrize("damaged", ["store", "copy"])
def test_drains_that_cannot_be_read_stop_everything(state: MemoryState, storage: ClusterStorage, damaged: str) -> None:
    store = StateStore(state)
    store.put_drains(storage, DRAINS)
    if damaged == "store":
        state.documents["drains"] = {"version": 99}
    else:
        storage.drains.write_bytes(b"{")

    with pytest.raises(RebalancerError):
        store.drains(storage)
    # What can be read is shown, together with the error.
    known, error = store.known_drained(storage)
    assert known.brokers == DRAINS.brokers
    assert error is not None
    assert error.reason is Reason.DRAINS_UNREADABLE


def test_drains_are_shown_while_the_roll_or_the_storage_cannot_be_read(
    state: MemoryState, storage: ClusterStorage
) -> None:
    store, now = StateStore(state), datetime.now(UTC)
    store.put_drains(storage, DRAINS)
    store.put_roll(storage, Roll(id="f", by="bob", order=("b:1",), turn_at=now, phase=Phase.DRAINING))
    known, error = store.known_drained(storage)
    assert (set(known.brokers), error) == ({*DRAINS.brokers, "b:1"}, None)

    state.documents["roll"] = {"version": 99}
    known, error = store.known_drained(storage)
    assert known.brokers == DRAINS.brokers
    assert error is not None
    assert error.reason is Reason.STATE_VERSION

    with mock.patch.object(StoragePath, "read_json", side_effect=SnapshotError(Reason.STORAGE_FAILED, "busy")):
        known, error = store.known_drained(storage)
    assert known.brokers == DRAINS.brokers
    assert error is not None
    assert error.reason is Reason.STORAGE_FAILED
