"""Moves carried out over HTTP: bundles that are not moved, are refused, or are lost with their broker."""

import itertools

import pytest
from tests.include.pulsar_rebalancer.carry_out.unloading_scene import IDLE, ON_A, SESSION, SHORT

from pulsar_simulator.topology import topic_hash

# where the bundle is before


def test_a_bundle_is_unloaded_once_and_owned_by_its_destination(scene):
    outcome = scene.run_one()
    assert (outcome.reason, outcome.ok, outcome.owner, outcome.attempts) == ("moved", True, scene.b, 1)
    assert scene.cluster.owner(scene.bundles[0]) == scene.b
    assert (outcome.source, outcome.error) == (scene.a, "")


def test_a_bundle_on_its_destination_is_a_success_and_not_unloaded(scene):
    outcome = scene.run_one(scene.move(ON_A))
    assert (outcome.reason, outcome.ok, outcome.owner, outcome.attempts) == ("already_there", True, scene.b, 0)
    assert scene.admin.unloads == []


def test_a_second_run_of_the_same_wave_unloads_nothing(scene):
    moves = [scene.move(number) for number in range(4)]
    assert {outcome.reason for outcome in scene.run(*moves)} == {"moved"}
    assert {outcome.reason for outcome in scene.run(*moves)} == {"already_there"}
    assert scene.admin.unloads == []


def test_a_bundle_that_moved_on_since_the_plan_is_left_alone(scene):
    outcome = scene.run_one(scene.move(ON_A, destination=scene.c))
    assert (outcome.reason, outcome.ok, outcome.owner) == ("owner_changed", False, scene.b)
    assert scene.admin.unloads == []


@pytest.mark.parametrize("planned", [True, False], ids=["destination remembered", "destination forgotten"])
def test_a_bundle_that_an_earlier_attempt_unloaded_and_did_not_place_is_placed(scene, planned):
    scene.cluster.unload(scene.bundles[0], scene.b if planned else None)
    assert scene.cluster.owner(scene.bundles[0]) is None
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)


def test_a_bundle_without_a_loaded_topic_is_passed_over(scene):
    outcome = scene.run_one(scene.move(IDLE))
    assert (outcome.reason, outcome.owner) == ("no_topic", scene.a)
    assert scene.admin.unloads == []


def test_only_a_topic_of_the_bundle_is_looked_up(scene):
    ours, other = (scene.cluster.topology.topics(number)[0] for number in (0, 1))
    names = (f"persistent://acme/returns/t{number}" for number in itertools.count())
    foreign = next(name for name in names if topic_hash(name) < topic_hash(ours))  # the range, of another namespace

    def prepare(admin):
        async def topics_of_bundle(_bundle):
            return [other, foreign, ours]

        admin.topics_of_bundle = topics_of_bundle

    assert scene.run_one(prepare=prepare).reason == "moved"
    assert set(scene.admin.looked_up) == {ours}


def test_a_range_that_was_split_is_left_alone(scene):
    move = scene.move(0).model_copy(update={"bundle": "acme/orders/0x00000000_0x00000100"})
    outcome = scene.run_one(move)
    assert (outcome.reason, outcome.attempts) == ("bad_range", 0)


def test_a_broker_that_has_no_part_in_the_move_is_not_asked(scene):
    scene.cluster.faults.add("error_500", scene.c, path="")
    assert scene.run_one(retries=0).reason == "moved"


def test_a_source_that_does_not_answer_leaves_the_bundle_alone(scene):
    scene.cluster.change_leader(scene.c)
    scene.cluster.kill(scene.a)
    outcome = scene.run_one()
    assert (outcome.reason, outcome.attempts) == ("unreachable", 0)
    assert scene.a in outcome.error


def test_no_broker_is_asked_for_all_its_bundles(scene):
    """Brokers of the modular load manager may hang for ever when they are asked while they take bundles over."""
    scene.cluster.faults.add("error_500", path="/ownedNamespaces")
    scene.cluster.faults.add("stray", bundle=scene.bundles[0], times=1)
    assert {outcome.reason for outcome in scene.run(scene.move(0), scene.move(1), scene.move(ON_A))} == {
        "moved",
        "already_there",
    }


@pytest.mark.parametrize(("fault", "reason"), [("forbidden", "forbidden"), ("unauthorized", "unauthorized")])
def test_credentials_that_may_not_unload_change_nothing(scene, fault, reason):
    scene.cluster.faults.add(fault, path="/unload")
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == (reason, scene.a, 0)


def test_a_redirect_to_a_stranger_counts_for_the_leader_remembers_the_destination(scene):
    scene.cluster.faults.add("redirect_to_stranger", path="/unload")
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("foreign_redirect", scene.a, 1)
    assert outcome.destination_kept


def test_a_read_only_connection_changes_nothing(scene):
    outcome = scene.run_one(read_only=True)
    assert (outcome.reason, outcome.attempts) == ("read_only", 0)
    assert scene.cluster.owner(scene.bundles[0]) == scene.a


# the destination is gone


def test_nothing_is_unloaded_towards_a_dead_broker_that_is_still_listed(scene):
    scene.cluster.kill(scene.b)
    assert scene.b in scene.cluster.active_brokers()
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("destination_gone", "", 0)
    assert scene.cluster.owner(scene.bundles[0]) == scene.a


def test_a_destination_that_the_leader_refuses_is_gone(scene):
    def leave():
        scene.cluster.kill(scene.b)
        scene.cluster.advance(SESSION)

    outcome = scene.run_one(prepare=lambda admin: setattr(admin, "before_unload", leave))
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("destination_gone", scene.a, 0)
    assert "inactive destination broker" in outcome.error


def test_a_destination_that_dies_with_the_bundle_on_its_way_is_not_tried_again(scene):
    scene.cluster.faults.add("destination_vanishes", scene.b, times=1)

    def prepare(admin):
        # The first lookup still names the dead broker; then its session ends and clients place the bundle again.
        admin.after_lookup = scene.once(lambda: scene.cluster.advance(SESSION))

    outcome = scene.run_one(prepare=prepare)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("destination_gone", scene.c, 1)
    assert scene.cluster.owner(scene.bundles[0]) == scene.c


def test_a_broker_that_dies_in_the_middle_of_a_wave_does_not_stop_the_others(scene):
    moves = [scene.move(number, scene.c if number % 2 else scene.b) for number in range(8)]

    def on_outcome(outcome):
        scene.told.append(outcome)
        if len(scene.told) == 3:
            scene.cluster.kill(scene.c)

    outcomes = scene.run(*moves, concurrency=1, on_outcome=on_outcome)
    assert [outcome.reason for outcome in outcomes[:3]] == ["moved"] * 3
    assert [outcome.reason for outcome in outcomes[3:]] == [
        "destination_gone" if outcome.destination == scene.c else "moved" for outcome in outcomes[3:]
    ]


def test_a_broker_that_dies_under_parallel_moves_harms_only_those_to_it(scene):
    scene.cluster.faults.add("destination_vanishes", scene.c, times=1)
    moves = [scene.move(number, scene.c if number % 2 else scene.b) for number in range(8)]
    outcomes = scene.run(*moves, concurrency=8, timeout=SHORT)
    for outcome in outcomes:
        if outcome.destination == scene.b:
            assert outcome.reason == "moved"
            assert scene.cluster.owner(outcome.bundle) == scene.b
        else:
            assert outcome.reason in {"moved", "destination_gone", "unknown_owner"}
    assert "unknown_owner" in {outcome.reason for outcome in outcomes}
