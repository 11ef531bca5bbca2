"""Plans made by hand, through the real DAGs: shown first, carried out by their hash, and by nothing else.

One scene of several acts on one cluster, in this order.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.integration.airflow_world import Outcome, World, world

from pulsar_rebalancer.run.outcome import Outcome as Written
from pulsar_rebalancer.run.plan import Summary, read_moves
from pulsar_rebalancer.show.page.recent_runs import newest, read_run
from pulsar_rebalancer.show.page.status import of_run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_session")]

CAP = 12


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    patient = {"interval_seconds": 5, "state_max_gap": 1000, "max_plan_age_seconds": 3600}
    # The strategy waits: whatever moves was asked for by hand.
    waiting = {"hit_count_low": 1000, "hit_count_high": 1000, "overloaded_threshold": 100}
    given = {"mode": "auto", "max_shown_plan_age_seconds": 3600, "max_bundles_per_broker": CAP} | patient | waiting
    with world("hand", tmp_path_factory.mktemp("hand"), **given) as made:
        yield made


@pytest.fixture(scope="module")
def ends(hand: World) -> tuple[str, str]:
    """The hottest and the coldest broker."""
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
    bundle, other = sorted(cluster.owned_bundles(hot))[:2]

    shown = hand.run("by_hand", action="unload", bundles=[bundle], destination=cold)
    another = hand.run("by_hand", action="unload", bundles=[other], destination=cold)

    assert shown.states == dict.fromkeys(("form", "collect", "validate", "plan"), "success") | {"carry_out": "skipped"}
    told = shown.xcom("plan")
    assert told["moves"] == [{"bundle": bundle, "from": hot, "to": cold}]
    assert told["scores"][hot][0] > told["scores"][hot][1]
    assert cluster.owner(bundle) == hot

    wrong = hand.run("by_hand", plan="0" * 64)
    assert (wrong.states["carry_out"], wrong.xcom("carry_out", "failure")) == ("failed", "other_plan")
    changed = hand.run("by_hand", plan=told["plan"], destination=hot)
    assert (changed.states["carry_out"], changed.xcom("carry_out", "failure")) == ("failed", "other_plan")
    forged = hand.run("rebalance", plan=told["plan"])
    assert (forged.states["collect"], forged.xcom("collect", "failure")) == ("failed", "other_plan")
    assert hand.queued() == []

    assert hand.run("by_hand", plan=told["plan"]).states["carry_out"] == "success"
    second = hand.run("by_hand", plan=another.xcom("plan")["plan"])
    assert (second.states["carry_out"], second.xcom("carry_out", "failure")) == ("failed", "plan_under_way")
    (waiting,) = hand.queued()
    return hand.begin(waiting)


def test_what_was_shown_is_carried_out(hand: World, ends: tuple[str, str], unloaded: Outcome) -> None:
    assert (unloaded.state, unloaded.states["unload"]) == ("success", "success")
    (move,) = read_moves(unloaded.folder)
    assert (move.source, move.destination) == ends
    assert hand.served.cluster.owner(move.bundle) == move.destination
    assert Written.read(unloaded.folder).counts == {"moved": 1}
    by_hand = Summary.read(unloaded.folder).by_hand
    assert by_hand is not None
    assert by_hand.by == "dag_test"
    assert [unload.outcome for unload in hand.moves().unloads.values()] == ["moved"]


def test_a_plan_counts_no_hit_and_is_carried_out_once(hand: World, unloaded: Outcome) -> None:
    decision = hand.decision()
    assert (decision.seq, decision.plan_id, decision.counted_at) == (1, unloaded.folder.name, None)

    identity = Summary.read(unloaded.folder).by_hand.carries_out  # type: ignore[union-attr]
    again = hand.run("by_hand", plan=identity)

    assert (again.states["carry_out"], again.xcom("carry_out", "failure")) == ("failed", "plan_used")
    assert hand.queued() == []


def test_a_run_is_undone(hand: World, ends: tuple[str, str], unloaded: Outcome) -> None:
    (move,) = read_moves(unloaded.folder)

    shown = hand.run("by_hand", action="undo", run=unloaded.folder.name)
    harm = Written.read(unloaded.folder).moves[0].harm
    assert harm is not None
    assert harm.clients_seconds is not None
    assert shown.xcom("plan")["last_seconds"] == {move.bundle: harm.clients_seconds}
    hand.run("by_hand", plan=shown.xcom("plan")["plan"])
    (waiting,) = hand.queued()
    undone = hand.begin(waiting)

    assert Written.read(undone.folder).counts == {"moved": 1}
    assert hand.served.cluster.owner(move.bundle) == ends[0]


def test_a_plan_that_was_stopped_goes_on_by_its_hash(hand: World, ends: tuple[str, str], unloaded: Outcome) -> None:
    (hot, cold), cluster = ends, hand.served.cluster
    bundles = loaded(hand, hot)[:2]
    identity = hand.run("by_hand", action="unload", bundles=bundles, destination=cold).xcom("plan")["plan"]
    hand.run("by_hand", plan=identity)
    (waiting,) = hand.queued()
    under_way = hand.begin(waiting, last="gate")
    assert hand.run("control", action="stop", reason="wait").state == "success"

    stopped = hand.go_on(under_way)

    assert (stopped.state, Written.read(stopped.folder).counts) == ("failed", {"stopped": 2})
    assert hand.run("by_hand", plan=identity).state == "success"
    (again,) = hand.queued()
    under_way = hand.begin(again, last="gate")
    assert hand.run("control", action="pause", until="2999-01-01T00:00:00Z", reason="wait").state == "success"

    paused = hand.go_on(under_way)

    assert (paused.state, paused.states["unload"]) == ("success", "skipped"), "a pause is no failure"
    assert Written.read(paused.folder).counts == {"paused": 2}
    assert hand.run("control", action="resume", reason="go on").state == "success"
    assert hand.run("by_hand", plan=identity).state == "success"
    (again,) = hand.queued()
    assert Written.read(hand.begin(again).folder).counts == {"moved": 2}
    assert {cluster.owner(bundle) for bundle in bundles} == {cold}
    last = hand.run("by_hand", plan=identity)
    assert (last.states["carry_out"], last.xcom("carry_out", "failure")) == ("failed", "plan_used")


def test_a_bundle_is_split(hand: World, ends: tuple[str, str], unloaded: Outcome) -> None:
    shown = hand.run("by_hand", action="split", bundles=["acme/orders/LARGEST"], unload=True)
    plan = shown.xcom("plan")
    assert "is split permanently at 0x" in plan["splits"][0]
    assert plan["disturbed"]["topics"] > 0
    dry = read_run(shown.folder)
    assert dry is not None
    assert of_run(dry, "", 0).sentence == "A plan to split 1 bundle permanently is shown, nothing is carried out."
    assert newest(hand.storage, datetime.now(UTC))[0] != dry
    hand.run("by_hand", plan=plan["plan"])
    (waiting,) = hand.queued()
    run = hand.begin(waiting)

    (split,) = Written.read(run.folder).splits
    assert (split.reason, split.ok, run.state) == ("split", True, "success")


def test_a_drain_is_served_interval_by_interval_until_the_broker_is_released(
    hand: World, ends: tuple[str, str], unloaded: Outcome
) -> None:
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
    assert Written.read(hand.go_on(early).folder).counts == {"draining": 1}
    assert cluster.owner(elsewhere) == ends[0]
    reset = hand.run("control", action="reset", reason="whoever resets the state ends no drain")
    assert reset.state == "success"
    first, second = hand.run(), hand.run()

    assert [Summary.read(run.folder).drains[broker].moving for run in (first, second)] == [CAP, movable - CAP]
    assert Written.read(second.folder).verdict == "open"
    # What no broker reports, because no topic of it is loaded, cannot be moved.
    assert len(cluster.owned_bundles(broker)) == held - movable <= 2
    towards = hand.run("by_hand", action="unload", bundles=["acme/*"], destination=broker)
    assert (towards.states["plan"], towards.xcom("plan", "failure")) == ("failed", "draining")

    released = hand.run("by_hand", action="release", broker=broker, reason="the disks are in")
    assert released.states["carry_out"] == "success"
    twice = hand.run("by_hand", action="release", broker=broker, reason="to be sure")
    assert twice.xcom("carry_out", "failure") == "not_drained"
