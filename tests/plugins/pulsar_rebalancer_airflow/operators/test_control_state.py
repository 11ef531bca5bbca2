import json
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER, make_run, move_row
from tests.plugins.pulsar_rebalancer_airflow.operators.control_scene import control

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.manual_plans import Drain, Drains, ShownPlan, ShownPlans
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.state import DecisionState, HitCount, MovesState, StateDocument, Unload
from pulsar_rebalancer.storage.documents import ClusterStorage, CommitMark
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import GateOperator, RecordOperator
from pulsar_rebalancer_airflow.operators.gate import current_verdict
from pulsar_rebalancer_airflow.state_store import ALL_DOCUMENTS, StateStore

UNLOAD = Unload(at=datetime(2026, 1, 2, tzinfo=UTC), plan_id="p5", source="a:1", destination="b:1", outcome="moved")
BUNDLE, MEANS = "t/n/0x00000000_0xffffffff", "means-5-0a0a0a0a.parquet"
SETTINGS = Settings.model_validate({"mode": "auto", "connection": "pulsar_test"})


def committed(storage: ClusterStorage, state: MemoryState, seq: int, **given: Any) -> StoragePath:
    run = make_run(storage, [move_row(1, "a:1", "b:1")], base_seq=seq - 1, **given)
    RecordOperator(task_id="record", cluster=CLUSTER, run=run.uri).execute(context(CLUSTER, state))
    return run


def gate(state: MemoryState, run: StoragePath) -> str:
    given: Any = context(CLUSTER, state)
    GateOperator(task_id="gate", cluster=CLUSTER, settings=SETTINGS, run=run.uri).execute(given)
    return str(given["ti"].pushed["reason"])


@pytest.fixture
def last(storage: ClusterStorage, state: MemoryState) -> StoragePath:
    """The last committed run, with the number 5."""
    store_of(state).put(DecisionState(seq=4))
    (storage.state / MEANS).write_table(tables.table([], tables.MEANS))
    return committed(storage, state, 5, hits={"b:1": (1, 4)}, means=MEANS)


@pytest.fixture
def filled(state: MemoryState, last: StoragePath) -> StateStore:
    store = store_of(state)
    store.put(MovesState(unloads={BUNDLE: UNLOAD}))
    state.writes.clear()
    return store


def changes(storage: ClusterStorage) -> list[Any]:
    return [(storage.state / name).read_json() for name in storage.state.entry_names() if name.startswith("change-")]


def act(storage: ClusterStorage, state: MemoryState, action: str, reason: str = "", file: str | None = None) -> Any:
    return control(storage, state, SETTINGS, {"action": action, "reason": reason, "subject": file})


def test_show_changes_nothing(storage, state, filled, last):
    answer = act(storage, state, "show")
    shown = answer["state"]

    assert (shown["seq"], shown["plan_id"], shown["recently_unloaded"]) == (5, last.name, 1)
    assert shown["most_hits"] == {"b:1": {"high": 1, "low": 4}}
    assert "lost" not in answer
    assert not state.writes


def test_reset_makes_plans_under_way_stale(storage, state, filled):
    under_way = make_run(storage, base_seq=5)

    act(storage, state, "reset", "load was replayed")

    assert filled.get(DecisionState) == DecisionState(seq=6)
    assert set(filled.get(MovesState).unloads) == {BUNDLE}  # moved lately: still protected
    (entry,) = changes(storage)
    assert (entry["action"], entry["by"], entry["reason"]) == ("reset", "ada", "load was replayed")
    assert (entry["seq_before"], entry["seq_after"], entry["done"]) == (5, 6, True)
    with pytest.raises(AirflowFailException, match="stale_plan"):
        RecordOperator(task_id="record", cluster=CLUSTER, run=under_way.uri).execute(context(CLUSTER, state))


def test_a_change_that_is_killed_halfway_is_noted(storage, state, filled, monkeypatch):
    monkeypatch.setattr(StateStore, "put", Mock(side_effect=ConnectionError("the store is away")))

    with pytest.raises(ConnectionError):
        act(storage, state, "reset", "load was replayed")

    (entry,) = changes(storage)
    assert (entry["by"], entry["seq_after"], entry["done"]) == ("ada", 6, False)


# a loss, and the way out of it

DAMAGED: dict[str, dict[str, Any] | None] = {
    "missing": None,
    "newer": {"version": 99, "plans": {"a": 1}},
    "damaged": {"version": 1, "incidents": 7, "seq": float("nan")},
}


def lose(state: MemoryState, key: str, damage: str) -> None:
    del state.documents[key]
    if DAMAGED[damage] is not None:
        state.documents[key] = DAMAGED[damage]


@pytest.mark.parametrize(("damage", "action"), [("missing", "restore"), ("newer", "reset"), ("damaged", "reset")])
@pytest.mark.parametrize("model", ALL_DOCUMENTS, ids=lambda model: model.KEY)
def test_the_loss_of_any_document_closes_the_gate_until_a_person_acts(storage, state, last, model, damage, action):
    assert gate(state, last) == "open"
    lose(state, model.KEY, damage)

    assert gate(state, last) == "state_lost"
    verdict = current_verdict(context(CLUSTER, state), CLUSTER, last, SETTINGS, datetime.now(UTC))
    assert verdict.detail.startswith(f"{model.KEY}: ")
    shown = act(storage, state, "show")
    assert shown["in_force"].startswith("Nothing is moved: mode auto; the state and perhaps orders are lost")
    assert shown["lost"].keys() == {model.KEY}

    answer = act(storage, state, action, "the database was lost")

    assert answer["lost"].keys() == {model.KEY}
    assert answer["in_force"] == "Moves are carried out: mode auto"
    (entry,) = changes(storage)
    assert entry["lost"] == answer["lost"]
    assert (json.loads(entry["was"][model.KEY]) or {}).keys() == (DAMAGED[damage] or {}).keys()
    assert gate(state, committed(storage, state, 7)) == "open"
    assert "lost" not in act(storage, state, action, "nothing is lost now")


def test_every_document_of_the_store_can_be_restored():
    def below(model: type[StateDocument]) -> set[type[StateDocument]]:
        return {model}.union(*map(below, model.__subclasses__()))

    assert set(ALL_DOCUMENTS) == below(StateDocument) - {StateDocument}


@pytest.mark.parametrize("action", ["stop", "skip", "close_breaker", "resume", "pause"])
def test_only_a_pause_may_be_ordered_before_a_reset_and_outlives_it(storage, state, last, action):
    state.documents.clear()
    params = {"action": action, "reason": "the database was lost", "until": None}

    if action != "pause":
        with pytest.raises(AirflowFailException, match=r"control: missing \[state_lost\]"):
            control(storage, state, SETTINGS, params)
        assert not state.documents
        return
    answer = control(storage, state, SETTINGS, params | {"until": "2100-01-01T00:00:00Z"})
    assert answer["lost"] == {"control": "missing"}
    act(storage, state, "reset", "the database was lost")

    assert gate(state, committed(storage, state, 7)) == "paused"


def test_restores_an_export_with_the_unload_history(storage, state, filled):
    act(storage, state, "export")
    (name,) = [name for name in storage.state.entry_names() if name.startswith("export-")]
    assert not state.writes
    state.documents.clear()

    act(storage, state, "restore", "moved to another Airflow", name)

    assert filled.get(DecisionState).hits == {"b:1": HitCount(1, 4)}
    assert set(filled.get(MovesState).unloads) == {BUNDLE}


def test_means_that_are_gone_start_anew(storage, state, filled):
    (storage.state / MEANS).delete()

    act(storage, state, "restore", "test")

    assert filled.get(DecisionState).means == ""


@pytest.mark.parametrize(
    "name", ["../other/state/export-20260101T000000Z.json", "/etc/passwd", "change-20260101T000000Z-1.json"]
)
def test_a_file_is_named_and_never_a_path(storage, state, filled, name):
    with pytest.raises(AirflowFailException, match="subject"):
        act(storage, state, "restore", "test", name)

    assert not state.writes


def test_a_damaged_export_is_not_an_empty_state(storage, state, filled):
    (storage.state / "export-20260101T000000Z.json").write_json({"decision": None})

    with pytest.raises(AirflowFailException, match="file_damaged"):
        act(storage, state, "restore", "test", "export-20260101T000000Z.json")

    assert not state.writes


def test_a_reset_leaves_readable_documents_and_orders_as_they_are(storage, state, filled):
    drain = Drain(at=datetime.now(UTC), by="ada", reason="new disks")
    filled.put(Drains(brokers={"a:1": drain}))
    shown = ShownPlan(plan_id="p5", action=None, at=datetime.now(UTC), by="ada")
    filled.put(ShownPlans(plans={"h": shown}))
    state.documents |= {"control": {"version": 99}, "question": {"version": 99}}

    answer = act(storage, state, "reset", "written by a newer release")

    assert set(answer["lost"]) == {"control", "question"}
    assert filled.get(Drains).brokers == {"a:1": drain}
    assert filled.get(ShownPlans).plans == {"h": shown}


def test_a_plan_that_may_have_been_carried_out_is_not_carried_out_again(storage, state, filled):
    filled.put(ShownPlans(plans={"h": ShownPlan(plan_id="p5", action=None, at=datetime.now(UTC), by="ada")}))
    state.documents["handed_over"] = {"version": 99}

    act(storage, state, "reset", "written by a newer release")

    assert filled.get(ShownPlans).plans == {}


@pytest.mark.parametrize(
    "known_by", ["a document of a newer release", "the mark of a run", "an earlier reset", "a later run"]
)
def test_the_number_continues_after_a_loss_so_that_no_old_plan_is_accepted(storage, state, filled, known_by):
    number = {"a document of a newer release": 40, "the mark of a run": 5}.get(known_by, 6)
    if known_by == "an earlier reset":
        act(storage, state, "reset", "load was replayed")
    elif known_by == "a later run":
        (committed(storage, state, 6) / CommitMark.FILE).delete()  # its task was killed before it left the mark
    under_way = make_run(storage, base_seq=number)
    if known_by == "a later run":
        StateBefore(decision=filled.get(DecisionState)).write(under_way)
    state.documents.clear()
    if known_by == "a document of a newer release":
        state.documents[DecisionState.KEY] = {"version": 99, "seq": 40}

    act(storage, state, "reset", "the database was lost")

    assert filled.get(DecisionState) == DecisionState(seq=number + 1)
    assert filled.get(MovesState) == MovesState()
    with pytest.raises(AirflowFailException, match="stale_plan"):
        RecordOperator(task_id="record", cluster=CLUSTER, run=under_way.uri).execute(context(CLUSTER, state))


def test_restores_the_last_committed_plan_and_no_later_one(storage, state, filled, last):
    decided = filled.get(DecisionState)
    make_run(storage, base_seq=5, hits={"b:1": (2, 5)})  # not recorded
    state.documents.clear()

    act(storage, state, "restore", "the database was lost")

    # The plan id is gone: what was carried out once must not be carried out again.
    expected = decided.model_copy(update={"seq": 6, "plan_id": "", "plan_hash": ""})
    assert filled.get(DecisionState) == expected
    assert changes(storage)[0]["file"] == last.name


def test_hits_that_may_have_led_to_moves_are_not_restored(storage, state, filled, last):
    file = last / "plan" / "state.json"
    file.write_json(file.read_json() | {"restarts": {"b:1": [30.5, "2026-01-02T00:00:00Z"]}})

    act(storage, state, "restore", "test")

    assert (filled.get(DecisionState).hits, filled.get(DecisionState).restarts) == ({}, {})
