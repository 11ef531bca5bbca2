import pytest
from tests.include.pulsar_rebalancer.carry_out.unloading_scene import IDLE, ON_A, SESSION

# where the bundle is before


def test_a_bundle_is_unloaded_once_and_owned_by_its_destination(scene):
    outcome = scene.run_one()
    assert (outcome.reason, outcome.ok, outcome.owner, outcome.attempts) == ("moved", True, scene.b, 1)
    assert scene.cluster.owner(scene.bundles[0]) == scene.b
    assert (outcome.source, outcome.error) == (scene.a, "")


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


def test_no_broker_is_asked_for_all_its_bundles(scene):
    """Brokers of the modular load manager may hang for ever when they are asked while they take bundles over."""
    scene.cluster.faults.add("error_500", path="/ownedNamespaces")
    scene.cluster.faults.add("stray", bundle=scene.bundles[0], times=1)
    assert {outcome.reason for outcome in scene.run(scene.move(0), scene.move(1), scene.move(ON_A))} == {
        "moved",
        "already_there",
    }


def test_a_redirect_to_a_stranger_counts_for_the_leader_remembers_the_destination(scene):
    scene.cluster.faults.add("redirect_to_stranger", path="/unload")
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("foreign_address", scene.a, 1)
    assert outcome.destination_kept


# the destination is gone


def test_dead_broker_still_listed_receives_no_bundle(scene):
    scene.cluster.kill(scene.b)
    assert scene.b in scene.cluster.active_brokers()
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("destination_gone", "", 0)
    assert scene.cluster.owner(scene.bundles[0]) == scene.a


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
