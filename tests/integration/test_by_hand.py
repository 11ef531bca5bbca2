"""Plans made by hand, through the real DAGs: shown first, carried out by their hash, and by nothing else.

One scene of several acts on one cluster, in this order.
"""

from collections.abc import Iterator

import pytest
from tests.integration.airflow_world import Outcome, World, world

from pulsar_rebalancer.run.outcome import Outcome as Written
from pulsar_rebalancer.run.plan import Summary, read_moves

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_session")]

CAP = 12


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    patient = {"interval_seconds": 5, "state_max_gap": 1000, "max_plan_age_seconds": 3600}
    # The strategy waits: whatever moves was asked for by hand.
    waiting = {"hit_count_low": 1000, "hit_count_high": 1000, "overloaded_threshold": 100}
    given = {"mode": "auto", "max_bundles_per_broker": CAP} | patient | waiting
    with world("hand", tmp_path_factory.mktemp("hand"), **given) as made:
        yield made


@pytest.fixture(scope="module")
def ends(hand: World) -> tuple[str, str]:
    scores = hand.served.cluster.true_scores()
    return max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)


def loaded(hand: World, broker: str) -> list[str]:
    """Bundles of a broker that have topics and were not moved lately."""
    stats = hand.served.cluster.load_report(broker)["lastStats"]
    return sorted(bundle for bundle in stats if stats[bundle]["topics"] and bundle not in hand.moves().unloads)


@pytest.fixture(scope="module")
def unloaded(hand: World, ends: tuple[str, str]) -> Outcome:
    """A run that carried out what was shown, after all that is no way to have it carried out."""
    (hot, cold), cluster = ends, hand.served.cluster
    bundle = min(cluster.owned_bundles(hot))

    shown = hand.run("by_hand", action="unload", bundles=[bundle], destination=cold)

    assert shown.states == dict.fromkeys(("form", "collect", "validate", "plan"), "success") | {"carry_out": "skipped"}
    told = shown.xcom("plan")
    assert told["moves"] == [{"bundle": bundle, "from": hot, "to": cold}]
    assert told["scores"][hot][0] > told["scores"][hot][1]
    assert cluster.owner(bundle) == hot

    changed = hand.run("by_hand", plan=told["plan"], destination=hot)
    assert (changed.states["carry_out"], changed.xcom("carry_out", "failure")) == ("failed", "other_plan")
    forged = hand.run("rebalance", plan=told["plan"])
    assert (forged.states["collect"], forged.xcom("collect", "failure")) == ("failed", "other_plan")
    assert hand.queued() == []

    assert hand.run("by_hand", plan=told["plan"]).states["carry_out"] == "success"
    (waiting,) = hand.queued()
    return hand.begin(waiting)


def test_shown_plan_is_carried_out(hand, ends, unloaded):
    assert (unloaded.state, unloaded.states["unload"]) == ("success", "success")
    (move,) = read_moves(unloaded.folder)
    assert (move.source, move.destination) == ends
    assert hand.served.cluster.owner(move.bundle) == move.destination
    assert Written.read(unloaded.folder).move_counts == {"moved": 1}
    by_hand = Summary.read(unloaded.folder).by_hand
    assert by_hand is not None
    assert by_hand.by == "tester"
    assert [unload.outcome for unload in hand.moves().unloads.values()] == ["moved"]


def test_a_drain_is_served_interval_by_interval_until_the_broker_is_released(hand, ends, unloaded):
    cluster = hand.served.cluster
    broker = max(cluster.active_brokers(), key=lambda name: (name not in ends, len(cluster.owned_bundles(name))))
    held = len(cluster.owned_bundles(broker))

    elsewhere = loaded(hand, ends[0])[0]
    brings = hand.run("by_hand", action="unload", bundles=[elsewhere], destination=broker)
    hand.run("by_hand", plan=brings.xcom("plan")["plan"])
    (waiting,) = hand.queued()
    early = hand.begin(waiting, last="gate")

    shown = hand.run("by_hand", action="drain", broker=broker, reason="new disks")
    movable = shown.xcom("plan")["bundles"]
    assert CAP < movable <= 2 * CAP
    assert hand.run("by_hand", plan=shown.xcom("plan")["plan"]).state == "success"
    assert hand.queued() == []
    # A run that was decided before the mark brings nothing there.
    assert Written.read(hand.go_on(early).folder).move_counts == {"draining": 1}
    assert cluster.owner(elsewhere) == ends[0]
    first, second = hand.run(), hand.run()

    assert [Summary.read(run.folder).drains[broker].moving for run in (first, second)] == [CAP, movable - CAP]
    assert Written.read(second.folder).verdict == "open"
    # What no broker reports, because no topic of it is loaded, cannot be moved.
    assert len(cluster.owned_bundles(broker)) == held - movable <= 2

    released = hand.run("by_hand", action="release", broker=broker, reason="the disks are in")
    assert released.states["carry_out"] == "success"
