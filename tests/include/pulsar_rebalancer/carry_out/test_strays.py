"""Moves carried out over HTTP: strays, lost answers, late owners, and how many bundles are under way."""

import asyncio
from itertools import islice

import pytest
from tests.include.pulsar_rebalancer.carry_out.unloading_scene import (
    IDLE,
    LONG,
    ON_A,
    RECONNECT,
    SESSION,
    SHORT,
    Watched,
)

from pulsar_rebalancer.admin import BundleAdmin
from pulsar_rebalancer.admin.transport import Transport
from pulsar_rebalancer.carry_out.bundle_move import pauses
from pulsar_rebalancer.carry_out.move_executor import carry_out_moves
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Reason


def test_a_stray_is_unloaded_again_from_where_it_landed(scene):
    scene.cluster.faults.add("stray", times=1)
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 2)
    assert scene.cluster.owner(scene.bundles[0]) == scene.b


@pytest.mark.parametrize("retries", [0, 2])
def test_a_stray_is_given_up_after_the_retries_and_its_owner_named(scene, retries):
    scene.cluster.faults.add("stray")
    outcome = scene.run_one(retries=retries)
    assert (outcome.reason, outcome.ok, outcome.owner) == ("astray", False, scene.c)
    assert outcome.attempts == len(scene.admin.unloads) == retries + 1


def test_a_leader_change_between_unload_and_lookup_costs_a_retry(scene):
    def prepare(admin):
        admin.after_unload = scene.once(lambda: scene.cluster.change_leader(scene.c))

    outcome = scene.run_one(prepare=prepare)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 2)


def test_an_unload_that_is_redirected_to_a_dead_leader_waits_for_the_next_one(scene):
    scene.cluster.change_leader(scene.c)

    def prepare(admin):
        admin.before_unload = scene.once(
            lambda: scene.cluster.kill(scene.c), lambda: None, lambda: scene.cluster.advance(SESSION)
        )

    outcome = scene.run_one(prepare=prepare)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)
    assert len(scene.admin.unloads) == 3


def test_a_bundle_that_arrives_while_its_unload_is_tried_again_is_not_unloaded_there(scene):
    """The leader remembered the destination and sent the unload on to an owner that had died."""
    arrived = scene.cluster.topology.topics(0)[0]

    def placed():
        scene.cluster.unload(scene.bundles[0], scene.b)
        assert scene.cluster.lookup(arrived) == scene.b

    def prepare(admin):
        async def unload(bundle, destination):
            admin.unloads.append(bundle)
            placed()
            raise AdminError(Reason.UNREACHABLE, "no connection to the owner", sent=False)

        admin.unload = unload

    outcome = scene.run_one(prepare=prepare)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)
    assert len(scene.admin.unloads) == 1


def test_an_unload_that_reaches_nobody_ends_with_the_time_out(scene):
    scene.cluster.change_leader(scene.c)
    scene.cluster.kill(scene.c)
    outcome = scene.run_one(timeout=SHORT)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("unreachable", scene.a, 1)


def test_parallel_moves_that_partly_go_astray_all_end_where_they_should(scene):
    for number in (1, 4, 7):
        scene.cluster.faults.add("stray", bundle=scene.bundles[number], times=1)
    moves = [scene.move(number) for number in range(IDLE)]
    outcomes = scene.run(*moves, concurrency=9)
    assert [outcome.attempts for outcome in outcomes] == [1, 2, 1, 1, 2, 1, 1, 2, 1]
    assert {scene.cluster.owner(move.bundle) for move in moves} == {scene.b}


def test_a_lookup_after_the_one_that_used_the_destination_up_goes_to_the_destination_all_the_same(scene):
    """A client's lookup has the leader forget it; what it chooses then is another broker (apache/pulsar#24884)."""

    def prepare(admin):
        admin.after_unload = lambda: scene.cluster.lookup_at(0, topic, authoritative=False)

    topic = scene.cluster.topology.topics(0)[0]
    outcome = scene.run_one(prepare=prepare)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)


def test_a_destination_that_died_since_does_not_keep_the_bundle_from_its_clients(scene):
    def prepare(admin):
        admin.after_unload = lambda: scene.cluster.kill(scene.b)

    outcome = scene.run_one(prepare=prepare, retries=0)
    assert (outcome.reason, outcome.owner) == ("astray", scene.c)


@pytest.mark.parametrize(("silent", "kept"), [("c", True), ("b", False)])
def test_only_a_destination_that_is_silent_itself_is_given_up(scene, silent, kept):
    asked = []

    def prepare(admin):
        look_up = admin.lookup_owner

        async def lookup_owner(topic, destination=""):
            asked.append(destination)
            if len(asked) == 1:  # such as the leader that the lookup was redirected to
                raise AdminError(Reason.UNREACHABLE, "no connection", broker=getattr(scene, silent), sent=False)
            return await look_up(topic, destination)

        admin.lookup_owner = lookup_owner

    assert scene.run_one(prepare=prepare).ok
    assert asked == [scene.b, scene.b if kept else ""]


# answers that are lost: ownership decides


def test_an_unload_whose_answer_is_lost_is_judged_by_ownership(scene):
    def lose():
        raise AdminError(Reason.TIMEOUT, "no complete answer")

    outcome = scene.run_one(prepare=lambda admin: setattr(admin, "after_unload", lose))
    assert (outcome.reason, outcome.owner, outcome.attempts, outcome.error) == ("moved", scene.b, 1, "")


def test_an_unload_that_ends_after_its_time_out_is_waited_for(scene):
    def prepare(admin):
        def too_late():
            raise AdminError(Reason.TIMEOUT, "no complete answer")

        admin.before_unload = too_late
        # The source still owns the bundle at the first lookup, and has unloaded it by the second one.
        admin.after_lookup = scene.once(lambda: None, lambda: scene.cluster.unload(scene.bundles[0], scene.b))

    outcome = scene.run_one(prepare=prepare)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)


@pytest.mark.parametrize(("times", "expected"), [(1, ("moved", 2)), (None, ("timeout", 2))])
def test_an_unload_that_was_never_carried_out_is_tried_again(scene, times, expected):
    scene.cluster.faults.add("silent", path="/unload", times=times)
    outcome = scene.run_one(retries=1, timeout=SHORT, unload_timeout_s=SHORT, connect_timeout_s=SHORT)
    assert (outcome.reason, outcome.attempts) == expected
    assert outcome.owner == (scene.b if outcome.ok else scene.a) == scene.cluster.owner(scene.bundles[0])
    assert bool(outcome.error) is not outcome.ok


def test_a_reset_connection_is_no_verdict(scene):
    scene.cluster.faults.add("reset", path="/unload", times=1)
    outcome = scene.run_one(timeout=SHORT)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 2)


def test_the_extensible_load_manager_refuses_to_move_a_bundle_to_its_owner(scene):
    def prepare(admin):
        def in_the_meantime():
            scene.cluster.unload(scene.bundles[0], scene.b)
            scene.cluster.advance(RECONNECT)
            raise AdminError(Reason.SERVER_ERROR, f"own by {scene.b}, cannot be transfer to same broker")

        admin.before_unload = in_the_meantime

    outcome = scene.run_one(prepare=prepare)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("already_there", scene.b, 1)


def test_a_lookup_that_fails_is_repeated(scene):
    scene.cluster.faults.add("error_500", path="/lookup/", times=2)
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)


def test_pauses_between_lookups_grow_up_to_two_seconds():
    assert list(islice(pauses(), 7)) == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_when_lookups_fail_for_good_the_brokers_are_asked_once_more(scene):
    scene.cluster.faults.add("error_500", path="/lookup/")

    def prepare(admin):
        admin.after_unload = lambda: scene.cluster.advance(RECONNECT)  # clients place the bundle

    outcome = scene.run_one(prepare=prepare, timeout=SHORT)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)


def test_a_bundle_that_arrives_late_is_not_unloaded_again(scene):
    scene.cluster.faults.add("error_500", path="/lookup/")

    def prepare(admin):
        read = admin.owner

        async def owner(bundle, likely=()):
            found = await read(bundle, likely)
            scene.cluster.advance(RECONNECT)  # clients place the bundle right after it was read
            return found

        admin.owner = owner

    outcome = scene.run_one(prepare=prepare, timeout=SHORT)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)


def test_a_bundle_that_nobody_takes_is_named_so(scene):
    scene.cluster.faults.add("error_500", path="/lookup/")
    outcome = scene.run_one(timeout=SHORT, retries=1)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("unowned", "", 2)
    assert scene.cluster.owner(scene.bundles[0]) is None


def test_an_owner_that_cannot_be_read_is_not_assumed(scene):
    def prepare(admin):
        admin.after_unload = lambda: scene.cluster.faults.add("forbidden", path="/topicHashPositions")

    outcome = scene.run_one(prepare=prepare, timeout=SHORT)
    assert (outcome.reason, outcome.ok, outcome.owner, outcome.attempts) == ("unknown_owner", False, "", 1)
    assert "topicHashPositions" in outcome.error


# many moves


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_bundles_are_under_way_than_allowed(scene, concurrency, monkeypatch):
    unload, all_there = BundleAdmin.unload, asyncio.Barrier(concurrency)

    async def together(*call):
        await asyncio.wait_for(all_there.wait(), LONG)
        await unload(*call)

    monkeypatch.setattr(BundleAdmin, "unload", together)
    scene.run(*[scene.move(number) for number in range(IDLE)], concurrency=concurrency)
    assert scene.admin.most_under_way == concurrency
    assert len(scene.admin.unloads) == IDLE


def test_outcomes_are_told_as_they_come_and_returned_in_the_order_of_the_moves(scene):
    left = []

    def on_outcome(outcome):
        scene.told.append(outcome)
        left.append(sum(scene.cluster.owner(bundle) == scene.a for bundle in scene.bundles))

    moves = [scene.move(number) for number in (4, 2, 0)]
    outcomes = scene.run(*moves, concurrency=1, on_outcome=on_outcome)
    assert [outcome.bundle for outcome in outcomes] == [move.bundle for move in moves]
    assert scene.told == outcomes
    assert left == [ON_A - 1, ON_A - 2, ON_A - 3]


@pytest.mark.parametrize(
    ("broken", "expected"),
    [("topics_of_bundle", ("unexpected_error", 0)), ("lookup_owner", ("unknown_owner", 1))],
    ids=["before its unload", "after its unload"],
)
def test_an_error_that_nobody_expects_stops_one_bundle_alone(scene, caplog, broken, expected):
    def prepare(admin):
        working = getattr(admin, broken)

        async def breaks(asked, *others):
            if asked == scene.bundles[1] or asked in scene.cluster.topology.topics(1):
                raise TypeError("'int' object is not iterable")
            return await working(asked, *others)

        setattr(admin, broken, breaks)

    outcomes = scene.run(*[scene.move(number) for number in range(3)], prepare=prepare, concurrency=1)
    assert [outcome.reason for outcome in outcomes] == ["moved", expected[0], "moved"]
    assert outcomes[1].attempts == expected[1]
    assert "TypeError" in outcomes[1].error
    assert "'int' object is not iterable" in caplog.text, "the traceback is in the log"


def test_no_moves_are_no_work(scene):
    assert scene.run() == []


def test_when_an_outcome_cannot_be_noted_no_other_move_is_begun(scene):
    def on_outcome(outcome):
        scene.told.append(outcome)
        if len(scene.told) == 1:
            raise RuntimeError("the store is full")

    with pytest.raises(RuntimeError, match="the store is full"):
        scene.run(*[scene.move(number) for number in range(IDLE)], concurrency=2, on_outcome=on_outcome)
    # Those under way were brought to their end: nothing is left without an owner.
    assert len(scene.told) == len(scene.admin.unloads) == 2
    assert None not in {scene.cluster.owner(bundle) for bundle in scene.bundles}


def test_a_cancelled_run_ends_at_once_and_tells_nothing_of_what_is_under_way(scene):
    scene.cluster.faults.add("silent", path="/lookup/")

    async def act():
        unloaded = asyncio.Event()
        async with Transport(scene.connection()) as transport:
            admin = Watched(transport)
            admin.after_unload = unloaded.set
            moves = [scene.move(number) for number in range(4)]
            options = {"concurrency": 1, "retries": 0, "timeout_seconds": LONG, "on_outcome": scene.told.append}
            task = asyncio.create_task(carry_out_moves(admin, moves, **options))
            await unloaded.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return admin.unloads

    assert asyncio.run(act()) == [scene.bundles[0]]
    assert scene.told == []
