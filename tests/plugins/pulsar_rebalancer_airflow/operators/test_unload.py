from datetime import UTC, datetime, timedelta

import httpx
import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import store_of

from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.orders.order import Control, GivenOrder
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude_run, read_move_outcomes
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.state import MovesState

HOLD = Validation(findings=(Finding(reason=Reason.BUILTIN_SHEDDING_ON),))


def test_moves_its_wave_alone_and_verifies(scene):
    scene.cluster.ownership.reconnect_delay = 3.0  # clients look bundles up after the task
    moves = scene.moves(6)
    later = moves.pop() | {"wave": 1}
    run = scene.run([*moves, later])

    assert scene.unload(run) == {"moved": 5}

    assert scene.all_on(moves, "destination")
    assert scene.all_on([later], "source")
    unloads = scene.state.documents[MovesState.KEY]["unloads"]
    assert {bundle: unload["outcome"] for bundle, unload in unloads.items()} == {m["bundle"]: "moved" for m in moves}
    assert {outcome.attempts for outcome in read_move_outcomes(run).values()} == {1}


def test_plans_are_stored_before_the_first_unload(scene):
    moves = scene.moves(3)
    seen: list[dict[str, str]] = []
    unloads = scene.state.documents
    scene.before_unloads(
        lambda _: seen.append({b: u["outcome"] for b, u in unloads[MovesState.KEY]["unloads"].items()})
    )

    scene.unload(scene.run(moves))

    assert seen[0] == {move["bundle"]: "" for move in moves}


@pytest.mark.parametrize(
    ("given", "present", "reason"),
    [
        # Which waves there are is an XCom of the gate: it opens no gate that is closed.
        ({"validation": HOLD}, {}, "on_hold"),
        ({}, {"max_bundles_per_run": 1}, "settings_changed"),
        ({"max_bundles_per_broker": 1}, {}, "settings_changed"),
        ({}, {"connection": "pulsar_other"}, "settings_changed"),
        ({"age": timedelta(hours=2)}, {}, "plan_too_old"),
    ],
)
def test_a_wave_asks_the_gates_rules_again(scene, given, present, reason):
    moves = scene.moves(4)

    with pytest.raises(AirflowFailException, match=reason):
        scene.unload(scene.run(moves, **given), **present)

    assert scene.all_on(moves, "source")
    assert scene.state.writes == []


def test_a_wave_is_not_begun_while_pulsar_sheds_itself(scene):
    moves = scene.moves(2)
    url = f"{scene.served.urls[0]}/admin/v2/brokers/configuration/loadBalancerSheddingEnabled/true"
    assert httpx.post(url, headers=scene.served.headers).is_success

    with pytest.raises(AirflowFailException, match="builtin_shedding_on"):
        scene.unload(scene.run(moves))

    assert scene.all_on(moves, "source")
    assert scene.state.documents[MovesState.KEY]["unloads"] == {}


def test_a_wave_that_was_not_begun_in_time_is_left_and_says_so(scene):
    """Three minutes until the gate, five more until the last wave: the loads that the plan was made from are gone."""
    moves = scene.moves(2)
    run = scene.run(moves, age=timedelta(seconds=180 + 300 + 5))

    with pytest.raises(AirflowFailException, match=r"wave 0 did not begin.*plan_too_old"):
        scene.unload(run)

    assert scene.all_on(moves, "source")
    assert conclude_run(run, Reason.OPEN, datetime.now(UTC)).move_counts == {"plan_too_old": 2}


def test_a_broker_that_is_marked_while_a_wave_is_under_way_gets_no_further_bundle(scene):
    scene.monkeypatch.setattr("pulsar_rebalancer_airflow.operators.gate._SECONDS_BETWEEN_LOOKS", 0.0)
    moves, store = scene.moves(2), store_of(scene.state)
    drain = Drain(at=datetime.now(UTC), by="ada", reason="new disks")
    marks = Drains(brokers={move["destination"]: drain for move in moves})
    scene.before_unloads(lambda _: store.put(marks))

    run = scene.run(moves, unload_concurrency=1)

    assert scene.unload(run) == {"moved": 1, "draining": 1}

    assert scene.all_on(moves[:1], "destination")
    assert scene.all_on(moves[1:], "source")
    assert read_move_outcomes(run)[moves[1]["bundle"]].owner == moves[1]["source"]


@pytest.mark.parametrize("end", ["released", "roll over", "roll stopped", "broker skipped", "other phase"])
def test_a_drain_that_ends_while_a_wave_is_under_way_moves_no_further_bundle(scene, end):
    scene.monkeypatch.setattr("pulsar_rebalancer_airflow.operators.gate._SECONDS_BETWEEN_LOOKS", 0.0)
    first = scene.moves(1)[0]
    moves = [move for move in scene.moves(99) if move["source"] == first["source"]][:3]
    store, now, source = store_of(scene.state), datetime.now(UTC), first["source"]
    roll = Roll(id="f", order=(source,), at=now, turn_at=now, since=now, phase=Phase.DRAINING)
    order = {"at": now, "by": "eve", "reason": "enough"}
    released = end == "released"
    drains = Drains(brokers={source: Drain(at=now, by="ada", reason="new disks")}) if released else Drains()

    def ended(_: str) -> None:
        if end == "released":
            store.put(drains.without_broker(source, now))
        elif end == "roll stopped":
            store.put(Control().with_order(GivenOrder(action="stop_roll", **order)))
        elif end == "broker skipped":
            store.put(Control().with_order(GivenOrder(action="skip_broker", **order, subject=source)))
        else:
            changed = (
                {"ended": Reason.ROLL_STOPPED, "ended_at": now} if end == "roll over" else {"phase": Phase.RETURNING}
            )
            store.put(roll.model_copy(update=changed))

    store.put(drains)
    if not released:
        store.put(roll)
    scene.before_unloads(ended)
    before = StateBefore(drains=store.orders().get(Drains), roll=None if released else roll)
    run = scene.run(moves, before=before, unload_concurrency=1)

    assert scene.unload(run) == {"moved": 1, "not_drained" if released else "roll_stopped": 2}
    assert scene.all_on(moves[1:], "source")
