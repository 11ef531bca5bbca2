import asyncio

import pytest
from tests.include.pulsar_rebalancer.carry_out.unloading_scene import IDLE, LONG, RECONNECT, SHORT, Watched

from pulsar_rebalancer.carry_out.move_executor import carry_out_moves
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar import BundleAdmin
from pulsar_rebalancer.pulsar.transport import Transport
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
            raise AdminError(Reason.UNREACHABLE, "no connection to the owner", was_sent=False)

        admin.unload = unload

    outcome = scene.run_one(prepare=prepare)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)
    assert len(scene.admin.unloads) == 1


def test_an_unload_that_reaches_nobody_ends_with_the_time_out(scene):
    scene.cluster.change_leader(scene.c)
    scene.cluster.kill(scene.c)
    outcome = scene.run_one(timeout=SHORT)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("unreachable", scene.a, 1)


def test_a_destination_that_died_since_does_not_keep_the_bundle_from_its_clients(scene):
    def prepare(admin):
        admin.after_unload = lambda: scene.cluster.kill(scene.b)

    outcome = scene.run_one(prepare=prepare, retries=0)
    assert (outcome.reason, outcome.owner) == ("astray", scene.c)


# answers that are lost: ownership decides


def test_an_unload_whose_answer_is_lost_is_judged_by_ownership(scene):
    def lose():
        raise AdminError(Reason.TIMEOUT, "no complete answer")

    outcome = scene.run_one(prepare=lambda admin: setattr(admin, "after_unload", lose))
    assert (outcome.reason, outcome.owner, outcome.attempts, outcome.error) == ("moved", scene.b, 1, "")


@pytest.mark.parametrize(("times", "expected"), [(1, ("moved", 2)), (None, ("timeout", 2))])
def test_an_unload_that_was_never_carried_out_is_tried_again(scene, times, expected):
    scene.cluster.faults.add("silent", path="/unload", times=times)
    outcome = scene.run_one(retries=1, timeout=SHORT, unload_timeout_s=SHORT, connect_timeout_s=SHORT)
    assert (outcome.reason, outcome.attempts) == expected
    assert outcome.owner == (scene.b if outcome.ok else scene.a) == scene.cluster.owner(scene.bundles[0])
    assert bool(outcome.error) is not outcome.ok


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
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("unknown_owner", "", 2)
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
    scene.run(*[scene.move(each) for each in range(IDLE)], concurrency=concurrency)
    assert scene.admin.most_under_way == concurrency
    assert len(scene.admin.unloads) == IDLE


@pytest.mark.parametrize(
    ("broken", "expected"),
    [("topics_of_bundle", ("task_failed", 0)), ("lookup_owner", ("unknown_owner", 1))],
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


def test_when_an_outcome_cannot_be_noted_moves_under_way_end_and_no_other_begins(scene):
    failed = asyncio.Event()

    def prepare(admin):
        looks_up = admin.lookup_owner

        async def held_until_the_first_fails(topic, destination):
            if topic in scene.cluster.topology.topics(1):
                await failed.wait()
            return await looks_up(topic, destination)

        admin.lookup_owner = held_until_the_first_fails

    def on_outcome(outcome):
        scene.told.append(outcome.bundle)
        if len(scene.told) == 1:
            failed.set()
            raise RuntimeError("the store is full")

    with pytest.raises(RuntimeError, match="the store is full"):
        scene.run(*[scene.move(each) for each in range(IDLE)], prepare=prepare, concurrency=2, on_outcome=on_outcome)
    assert scene.told == list(scene.bundles[:2])
    assert [scene.cluster.owner(bundle) for bundle in scene.told] == [scene.b, scene.b]
    assert len(scene.admin.unloads) == 2


def test_a_cancelled_run_ends_at_once_and_tells_nothing_of_what_is_under_way(scene):
    scene.cluster.faults.add("silent", path="/lookup/")

    async def act():
        unloaded = asyncio.Event()
        async with Transport(scene.connection()) as transport:
            admin = Watched(transport)
            admin.after_unload = unloaded.set
            moves = [scene.move(number) for number in range(4)]
            options = {"concurrency": 1, "timeout_seconds": LONG, "on_outcome": scene.told.append}
            task = asyncio.create_task(carry_out_moves(admin, moves, **options))
            await unloaded.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return admin.unloads

    assert asyncio.run(act()) == [scene.bundles[0]]
    assert scene.told == []
