"""A wave that is carried out, or refused before its first unload."""

from __future__ import annotations

import itertools
import json
import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from tests.airflow_runs import make_run
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import closed_port

from pulsar_rebalancer.carry_out import move_history
from pulsar_rebalancer.orders.control_document import Control, Order, SkipBrokerOrder
from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude, read_waves
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.state.state_documents import MovesState
from pulsar_rebalancer_airflow.operators.unload import UnfinishedError
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

HOLD = Validation(findings=(Finding(reason=Reason.BUILTIN_SHEDDING_ON),))
PAUSE = {"until": "2999-01-01T00:00:00Z", "reason": "stop"}


def test_moves_its_wave_alone_and_verifies(scene: UnloadScene) -> None:
    moves = scene.moves(6)
    later = moves.pop() | {"wave": 1}
    run = scene.run([*moves, later])

    assert scene.unload(run) == {"moved": 5}

    assert scene.all_on(moves, "destination")
    assert scene.all_on([later], "source")
    unloads = scene.state.documents[MovesState.KEY]["unloads"]
    assert {bundle: unload["outcome"] for bundle, unload in unloads.items()} == {m["bundle"]: "moved" for m in moves}
    assert {outcome.attempts for outcome in read_waves(run).values()} == {1}


def test_plans_are_stored_before_the_first_unload(scene: UnloadScene) -> None:
    moves = scene.moves(3)
    seen: list[dict[str, str]] = []
    unloads = scene.state.documents
    scene.before_unloads(
        lambda _: seen.append({b: u["outcome"] for b, u in unloads[MovesState.KEY]["unloads"].items()})
    )

    scene.unload(scene.run(moves))

    assert seen[0] == {move["bundle"]: "" for move in moves}


def test_what_others_write_meanwhile_stays(scene: UnloadScene) -> None:
    restored = {"at": "2026-11-21T10:00:00Z", "plan_id": "earlier", "source": "a:1", "destination": "b:1"}
    other = "acme/shop/0x00000000_0x10000000"
    scene.before_unloads(lambda _: scene.state.documents[MovesState.KEY]["unloads"].update({other: restored}))

    scene.unload(scene.run(scene.moves(1)))

    assert scene.state.documents[MovesState.KEY]["unloads"][other]["plan_id"] == "earlier"
    assert len(scene.state.documents[MovesState.KEY]["unloads"]) == 2


@pytest.mark.parametrize(
    ("given", "present", "reason"),
    [
        # Which waves there are is an XCom of the gate: it opens no gate that is closed.
        ({"validation": HOLD}, {}, "on_hold"),
        ({}, {"max_bundles_per_run": 1}, "over_cap"),
        ({"max_bundles_per_broker": 1}, {}, "over_cap"),
        ({}, {"connection": "pulsar_other"}, "connection_changed"),
        ({"age": timedelta(hours=2)}, {}, "plan_too_old"),
    ],
)
def test_a_wave_asks_the_gates_rules_again(
    scene: UnloadScene, given: dict[str, Any], present: dict[str, Any], reason: str
) -> None:
    moves = scene.moves(4)

    with pytest.raises(AirflowFailException, match=reason):
        scene.unload(scene.run(moves, **given), **present)

    assert scene.all_on(moves, "source")
    assert scene.state.writes == []


@pytest.mark.parametrize(("present", "reason"), [({"mode": "observe"}, "observe"), ({"pause": PAUSE}, "paused")])
def test_what_people_want_before_a_wave_skips_it(scene: UnloadScene, present: dict[str, Any], reason: str) -> None:
    moves = scene.moves(4)
    run = scene.run(moves)

    with pytest.raises(AirflowSkipException, match=reason):
        scene.unload(run, **present)

    assert scene.all_on(moves, "source")
    assert scene.state.writes == []
    assert conclude(run, Reason.OPEN, datetime.now(UTC)).counts == {reason: 4}


def test_another_plan_in_the_store_stops_it(scene: UnloadScene) -> None:
    moves = scene.moves(2)
    scene.run(moves)

    with pytest.raises(AirflowFailException, match="not_recorded"):
        scene.unload(make_run(scene.storage, moves))

    assert not scene.state.writes
    assert scene.all_on(moves, "source")


def test_a_read_only_connection_stops_it(scene: UnloadScene) -> None:
    document = json.loads(os.environ["AIRFLOW_CONN_PULSAR_TEST"])
    scene.monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", json.dumps(document | {"extra": {"read_only": True}}))

    with pytest.raises(AirflowFailException, match="read_only"):
        scene.unload(scene.run(scene.moves(1)))

    assert not scene.state.writes


def test_refused_credentials_are_not_tried_again(scene: UnloadScene) -> None:
    scene.cluster.faults.add("unauthorized", path="")

    with pytest.raises(AirflowFailException, match="unauthorized"):
        scene.unload(scene.run(scene.moves(1)))


def test_a_wave_is_not_begun_while_pulsar_sheds_itself(scene: UnloadScene) -> None:
    moves = scene.moves(2)
    url = f"{scene.served.urls[0]}/admin/v2/brokers/configuration/loadBalancerSheddingEnabled/true"
    assert httpx.post(url, headers=scene.served.headers).is_success

    with pytest.raises(AirflowFailException, match="builtin_shedding_on"):
        scene.unload(scene.run(moves))

    assert scene.all_on(moves, "source")
    assert scene.state.documents[MovesState.KEY]["unloads"] == {}


def test_a_wave_that_was_not_begun_in_time_is_left_and_says_so(scene: UnloadScene) -> None:
    """Three minutes until the gate, five more until the last wave: the loads that the plan was made from are gone."""
    moves = scene.moves(2)
    run = scene.run(moves, age=timedelta(seconds=180 + 300 + 5))

    with pytest.raises(AirflowFailException, match=r"wave 0 was not begun.*plan_too_old"):
        scene.unload(run)

    assert scene.all_on(moves, "source")
    assert conclude(run, Reason.OPEN, datetime.now(UTC)).counts == {"plan_too_old": 2}


def test_a_broker_that_is_marked_while_a_wave_is_under_way_gets_no_further_bundle(scene: UnloadScene) -> None:
    scene.monkeypatch.setattr("pulsar_rebalancer_airflow.operators.holds._SECONDS_BETWEEN_LOOKS", 0.0)
    moves, store = scene.moves(2), StateStore(scene.state)
    drain = Drain(at=datetime.now(UTC), by="ada", reason="new disks")
    marks = Drains(brokers={move["destination"]: drain for move in moves})
    scene.before_unloads(lambda _: store.put_drains(scene.storage, marks))

    run = scene.run(moves, unload_concurrency=1)

    assert scene.unload(run) == {"moved": 1, "draining": 1}

    assert scene.all_on(moves[:1], "destination")
    assert scene.all_on(moves[1:], "source")
    assert read_waves(run)[moves[1]["bundle"]].owner == moves[1]["source"]


def test_no_bundle_is_brought_to_a_broker_that_is_drained_by_now(scene: UnloadScene) -> None:
    here, away = scene.moves(99)[0], scene.moves(99)[-1]
    assert here["destination"] != away["destination"]
    run, store = scene.run([here, away]), StateStore(scene.state)
    drain = Drain(at=datetime.now(UTC), by="ada", reason="new disks")
    store.put_drains(scene.storage, Drains(brokers={here["destination"]: drain}))

    assert scene.unload(run) == {"draining": 1, "moved": 1}

    assert (scene.all_on([here], "source"), scene.all_on([away], "destination")) == (True, True)
    assert here["bundle"] not in scene.state.documents[MovesState.KEY]["unloads"]


@pytest.mark.parametrize("end", ["released", "roll over", "roll stopped", "broker skipped", "other phase"])
def test_a_drain_that_ends_while_a_wave_is_under_way_moves_no_further_bundle(scene: UnloadScene, end: str) -> None:
    scene.monkeypatch.setattr("pulsar_rebalancer_airflow.operators.holds._SECONDS_BETWEEN_LOOKS", 0.0)
    first = scene.moves(1)[0]
    moves = [move for move in scene.moves(99) if move["source"] == first["source"]][:3]
    store, now, source = StateStore(scene.state), datetime.now(UTC), first["source"]
    roll = Roll(id="f", order=(source,), at=now, turn_at=now, since=now, phase=Phase.DRAINING)
    order = {"at": now, "by": "eve", "reason": "enough"}
    released = end == "released"
    drains = Drains(brokers={source: Drain(at=now, by="ada", reason="new disks")}) if released else Drains()

    def ended(_: str) -> None:
        if end == "released":
            store.put_drains(scene.storage, drains.without(source, now))
        elif end == "roll stopped":
            store.put_control(scene.storage, Control(stop_roll=Order(**order)))
        elif end == "broker skipped":
            store.put_control(scene.storage, Control(skip_broker=SkipBrokerOrder(**order, broker=source)))
        else:
            changed = (
                {"ended": Reason.ROLL_STOPPED, "ended_at": now} if end == "roll over" else {"phase": Phase.RETURNING}
            )
            store.put_roll(scene.storage, roll.model_copy(update=changed))

    store.put_drains(scene.storage, drains)
    if not released:
        store.put_roll(scene.storage, roll)
    scene.before_unloads(ended)
    before = StateBefore(drains=store.drained(scene.storage), roll=None if released else roll)
    run = scene.run(moves, before=before, unload_concurrency=1)

    assert scene.unload(run) == {"moved": 1, "not_drained" if released else "roll_stopped": 2}
    assert scene.all_on(moves[1:], "source")


def test_the_time_for_waves_is_a_setting_of_the_plan(scene: UnloadScene) -> None:
    run = scene.run(scene.moves(1), age=timedelta(minutes=40), max_wave_delay_seconds=3600)

    assert scene.unload(run) == {"moved": 1}


def test_a_destination_that_the_leader_keeps_is_recorded_until_another_unload_takes_its_place(
    scene: UnloadScene,
) -> None:
    # Not the broker that is asked first, but the owner fails: behind the leader.
    move = next(m for m in scene.moves(99) if not scene.served.urls[0].endswith(m["source"]))
    cluster, bundle, leader = scene.cluster, move["bundle"], scene.third(move)
    cluster.change_leader(leader)
    cluster.faults.add("error_500", move["source"], path="/unload")
    run = scene.run([move], unload_retries=0, unload_timeout_seconds=1)

    with pytest.raises(UnfinishedError, match=r"^Wave 0: .*server_error"):
        scene.unload(run)

    kept = scene.state.documents[MovesState.KEY]["kept"]
    assert {name: (found["destination"], found["owner"]) for name, found in kept.items()} == {
        bundle: (move["destination"], move["source"])
    }
    assert read_waves(run)[bundle].destination_kept
    cluster.faults.clear()

    assert scene.unload(scene.run([move | {"destination": leader}], base_seq=1)) == {"moved": 1}
    assert scene.state.documents[MovesState.KEY]["kept"] == {}


def test_what_moved_on_is_an_outcome_and_no_failure(scene: UnloadScene) -> None:
    moved_on, move = scene.moves(2)
    run = scene.run([moved_on | {"source": scene.third(moved_on)}, move])

    assert scene.unload(run) == {"owner_changed": 1, "moved": 1}


@pytest.mark.parametrize(("seconds", "writes"), [(1, 5), (0, 1)])
def test_details_are_on_disk_while_the_wave_goes_on(scene: UnloadScene, seconds: int, writes: int) -> None:
    """History and details are written at most once a second, and always at the end."""
    moves = scene.moves(5)
    run = scene.run(moves, unload_concurrency=1)
    clock = itertools.count(100, seconds)
    scene.monkeypatch.setattr(move_history, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    scene.unload(run)

    # Planned, with each outcome if the clock leaps or with the first one if it stands, and at the end.
    assert scene.state.writes.count(MovesState.KEY) == 1 + writes + 1


def test_brokers_of_the_plan_are_asked_when_the_only_host_of_the_connection_is_down(scene: UnloadScene) -> None:
    moves = scene.moves(3)
    document = json.loads(os.environ["AIRFLOW_CONN_PULSAR_TEST"])
    scene.monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", json.dumps(document | {"host": closed_port()}))

    assert scene.unload(scene.run(moves)) == {"moved": 3}

    assert scene.all_on(moves, "destination")
