"""Moves carried out over HTTP on a simulated cluster of three brokers: A (hot), B (in between) and C (empty).

C is the least loaded broker, so a bundle that lost its planned destination lands there, and never on B by chance.
The cluster's clock stands still: clients do not look topics up, sessions do not end, unless a test lets time pass.
"""

import asyncio
import contextlib
import itertools

import numpy as np
import pytest
from pydantic import SecretStr

from pulsar_rebalancer.admin import AdminConnection, PulsarAdmin
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.plan import Move
from pulsar_rebalancer.reasons import REASONS
from pulsar_rebalancer.simulation.brokers import BrokerSpec
from pulsar_rebalancer.simulation.cluster import Cluster
from pulsar_rebalancer.simulation.load import QUIET, Traffic
from pulsar_rebalancer.simulation.serve import running
from pulsar_rebalancer.simulation.spec import ClusterSpec
from pulsar_rebalancer.simulation.topology import Namespace, Topology, topic_hash
from pulsar_rebalancer.unloading import carry_out

ON_A, ON_B = 10, 6
IDLE = 9  # a bundle of A without producers: no topic is loaded
SESSION = 60.0  # longer than any broker's metadata session
RECONNECT = 5.0  # longer than clients wait until they look a lost topic up
SHORT, LONG = 1.0, 30.0  # time-outs, seconds: one that runs out, one that must not matter


class Watched(PulsarAdmin):
    """The real client; notes the unloads, and lets a test step in around a call."""

    def __init__(self, connection):
        super().__init__(connection)
        self.unloads = []
        self.looked_up = []
        self.under_way = self.most_under_way = 0
        self.before_unload = self.after_unload = self.after_lookup = lambda: None

    @contextlib.contextmanager
    def _counted(self):
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            yield
        finally:
            self.under_way -= 1

    async def unload(self, bundle, destination):
        with self._counted():
            self.unloads.append(bundle)
            self.before_unload()
            await super().unload(bundle, destination)
            self.after_unload()

    async def lookup_owner(self, topic):
        with self._counted():
            self.looked_up.append(topic)
            owner = await super().lookup_owner(topic)
            self.after_lookup()
            return owner


class Scene:
    """The served cluster, its brokers' ids, and how moves are carried out there."""

    def __init__(self, served):
        self.served = served
        self.cluster = served.cluster
        self.a, self.b, self.c = (broker.broker_id for broker in served.cluster.membership.brokers)
        self.bundles = served.cluster.topology.bundles
        self.told = []

    def move(self, number, destination=None):
        return Move(
            bundle=self.bundles[number],
            source=self.a,
            destination=destination or self.b,
            wave=0,
            traffic=100.0,
            measure="message_rate",
        )

    def connection(self, **settings):
        return AdminConnection(seeds=tuple(self.served.urls), token=SecretStr(self.served.token), **settings)

    def run(self, *moves, prepare=None, concurrency=4, retries=2, timeout=LONG, on_outcome=None, **connection):
        """Carries the moves out; `prepare` is given the client before."""

        async def act():
            async with Watched(self.connection(**connection)) as admin:
                self.admin = admin
                if prepare is not None:
                    prepare(admin)
                return await carry_out(
                    admin,
                    moves,
                    concurrency=concurrency,
                    retries=retries,
                    timeout_seconds=timeout,
                    on_outcome=on_outcome or self.told.append,
                )

        outcomes = asyncio.run(act())
        assert {outcome.reason for outcome in outcomes} <= REASONS.keys()
        return outcomes

    def run_one(self, move=None, **options):
        (outcome,) = self.run(move or self.move(0), **options)
        return outcome

    def once(self, *actions):
        """A callable that does one action per call, then nothing."""
        left = list(actions)
        return lambda: left.pop(0)() if left else None


@pytest.fixture
def scene():
    topology = Topology([Namespace("acme/orders", ON_A + ON_B)])
    rates = np.full(ON_A + ON_B, 1000.0)
    rates[IDLE] = 0.0
    ones = np.ones(ON_A + ON_B)
    clients = np.ones(ON_A + ON_B, dtype=np.int64)
    spec = ClusterSpec(
        brokers=[BrokerSpec(f"127.0.0.1:{port}") for port in (1, 2, 3)],
        topology=topology,
        traffic=Traffic(rates, 1024 * ones, ones, noise=QUIET, seed=1, step=1.0),
        owner=np.repeat([0, 1], [ON_A, ON_B]),
        producers=clients,
        consumers=clients,
    )
    with running(Cluster(spec)) as served:
        yield Scene(served)


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


@pytest.mark.parametrize(("fault", "reason"), [("forbidden", "forbidden"), ("unauthorized", "unauthorized")])
def test_credentials_that_may_not_unload_change_nothing(scene, fault, reason):
    scene.cluster.faults.add(fault, path="/unload")
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == (reason, scene.a, 1)


def test_a_read_only_connection_changes_nothing(scene):
    assert scene.run_one(read_only=True).reason == "read_only"
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
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("destination_gone", scene.a, 1)
    assert "inactive destination broker" in outcome.error


def test_a_destination_that_dies_with_the_bundle_on_its_way_is_not_tried_again(scene):
    scene.cluster.faults.add("destination_vanishes", scene.b, times=1)

    def prepare(admin):
        # The first lookup still names the dead broker; then its session ends and clients place the bundle anew.
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


# strays


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


def test_parallel_moves_that_partly_go_astray_all_end_where_they_should(scene):
    for number in (1, 4, 7):
        scene.cluster.faults.add("stray", bundle=scene.bundles[number], times=1)
    moves = [scene.move(number) for number in range(IDLE)]
    outcomes = scene.run(*moves, concurrency=9)
    assert [outcome.attempts for outcome in outcomes] == [1, 2, 1, 1, 2, 1, 1, 2, 1]
    assert {scene.cluster.owner(move.bundle) for move in moves} == {scene.b}


# answers that are lost: ownership decides


def test_an_unload_whose_answer_is_lost_is_judged_by_ownership(scene):
    def lose():
        raise AdminError("timeout", "no complete answer")

    outcome = scene.run_one(prepare=lambda admin: setattr(admin, "after_unload", lose))
    assert (outcome.reason, outcome.owner, outcome.attempts, outcome.error) == ("moved", scene.b, 1, "")


def test_an_unload_that_ends_after_its_time_out_is_waited_for(scene):
    def prepare(admin):
        def too_late():
            raise AdminError("timeout", "no complete answer")

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
            raise AdminError("server_error", f"own by {scene.b}, cannot be transfer to same broker")

        admin.before_unload = in_the_meantime

    outcome = scene.run_one(prepare=prepare)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("already_there", scene.b, 1)


def test_a_lookup_that_fails_is_repeated(scene):
    scene.cluster.faults.add("forbidden", path="/lookup/", times=2)
    outcome = scene.run_one()
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)


def test_when_lookups_fail_for_good_the_brokers_are_asked_once_more(scene):
    scene.cluster.faults.add("forbidden", path="/lookup/")

    def prepare(admin):
        admin.after_unload = lambda: scene.cluster.advance(RECONNECT)  # clients place the bundle

    outcome = scene.run_one(prepare=prepare, timeout=SHORT)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("moved", scene.b, 1)


def test_a_bundle_that_arrives_late_is_not_unloaded_again(scene):
    scene.cluster.faults.add("forbidden", path="/lookup/")

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
    scene.cluster.faults.add("forbidden", path="/lookup/")
    outcome = scene.run_one(timeout=SHORT, retries=1)
    assert (outcome.reason, outcome.owner, outcome.attempts) == ("unowned", "", 2)
    assert scene.cluster.owner(scene.bundles[0]) is None


def test_an_owner_that_cannot_be_read_is_not_assumed(scene):
    def prepare(admin):
        admin.after_unload = lambda: scene.cluster.faults.add("forbidden", path="/ownedNamespaces")

    outcome = scene.run_one(prepare=prepare, timeout=SHORT)
    assert (outcome.reason, outcome.ok, outcome.owner, outcome.attempts) == ("unknown_owner", False, "", 1)
    assert "ownedNamespaces" in outcome.error


# many moves


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_bundles_are_under_way_than_allowed(scene, concurrency):
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
        async with Watched(scene.connection()) as admin:
            admin.after_unload = unloaded.set
            moves = [scene.move(number) for number in range(4)]
            options = {"concurrency": 1, "retries": 0, "timeout_seconds": LONG, "on_outcome": scene.told.append}
            task = asyncio.create_task(carry_out(admin, moves, **options))
            await unloaded.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return admin.unloads

    assert asyncio.run(act()) == [scene.bundles[0]]
    assert scene.told == []
