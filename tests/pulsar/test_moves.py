import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from tests.patience import awaited
from tests.pulsar import java
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.distribution import Distribution
from tests.pulsar.load import Load

import pulsar
from pulsar_rebalancer.carry_out import client_gap_meter
from pulsar_rebalancer.carry_out.client_gap_meter import ClientGapMeter
from pulsar_rebalancer.carry_out.move_executor import carry_out_moves
from pulsar_rebalancer.pulsar import AdminConnection, BundleAdmin, PulsarAdmin
from pulsar_rebalancer.pulsar.bundle_calls import client_counts
from pulsar_rebalancer.pulsar.transport import Transport
from pulsar_rebalancer.run.outcome import ClientGap, MoveOutcome
from pulsar_rebalancer.run.plan import Move

NAMESPACE, BUNDLES = "tests/moves", 32
ROUNDS = 4
CROWD = 8  # bundles under way at once
TIMEOUT = 120.0  # seconds until an unloaded bundle must have an owner: longer than a session of a dead broker


@pytest.fixture(scope="module")
def cluster(pulsar_501: Distribution, module_clusters: ClusterFactory) -> PulsarCluster:
    return module_clusters(pulsar_501, bookie=True, extra=java.SHORT_SESSION)


@pytest.fixture(scope="module")
def topics(cluster: PulsarCluster, admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A topic with a producer in each bundle, by the bundle's name."""
    ranges = admin.create_namespace(NAMESPACE, BUNDLES)
    found = {f"{NAMESPACE}/{r}": topic for r, (topic,) in topics_in_bundles(NAMESPACE, ranges, 1).items()}
    with Load(cluster, dict.fromkeys(found.values(), 5.0), tmp_path_factory.mktemp("load") / "load.log") as load:
        load.start()
        yield found
        report = load.report()
    assert report.keys() == set(found.values())
    for counts in report.values():
        assert counts.errors == 0
        assert counts.acked == counts.sent > 0


class Watched(BundleAdmin):
    """The client; does something once after an unload was accepted."""

    def __init__(self, transport: Transport, after_unload: Callable[[], None]) -> None:
        super().__init__(transport)
        self._after_unload = [after_unload]

    async def unload(self, bundle: str, destination: str) -> None:
        await super().unload(bundle, destination)
        while self._after_unload:
            self._after_unload.pop()()


def gather(admin: Admin, cluster: PulsarCluster, topics: dict[str, str], broker: int) -> None:
    """Has the broker own all these bundles, their producers connected to it."""
    for bundle, topic in topics.items():
        if admin.look_up(topic) != cluster.broker_ids[broker]:
            namespace, _, bundle_range = bundle.rpartition("/")
            admin.move(namespace, bundle_range, topic, broker)
    awaited(lambda: all(topic in admin.topics(bundle) for bundle, topic in topics.items()))


def move(cluster: PulsarCluster, bundle: str, source: int, destination: int) -> Move:
    ids = cluster.broker_ids
    return Move(bundle=bundle, source=ids[source], destination=ids[destination], wave=0, traffic=1.0, measure="rate")


def carried_out(
    cluster: PulsarCluster,
    moves: Sequence[Move],
    *,
    seed: int = 0,
    concurrency: int = 1,
    on_outcome: Callable[[MoveOutcome], None] = lambda _: None,
    after_unload: Callable[[], None] = lambda: None,
    gaps: dict[str, ClientGap] | None = None,
) -> list[MoveOutcome]:
    """Carry out moves; what they cost is put into `gaps`, if it is given."""

    async def act() -> list[MoveOutcome]:
        connection = AdminConnection(seeds=(cluster.web_url(seed),))
        async with Transport(connection) as transport, PulsarAdmin(connection) as measuring:
            options: dict[str, Any] = {"concurrency": concurrency, "timeout_seconds": TIMEOUT}
            if gaps is not None:
                options["meter"] = ClientGapMeter(measuring, moves, gaps.__setitem__)
            return await carry_out_moves(Watched(transport, after_unload), moves, on_outcome=on_outcome, **options)

    return asyncio.run(act())


def test_many_bundles_under_way_at_once_all_arrive(
    cluster: PulsarCluster, admin: Admin, topics: dict[str, str]
) -> None:
    """Brokers that take bundles over while clients and the rebalancer ask for them go on answering.

    Clients that look a topic up at the wrong moment lead bundles astray: the next wave brings those home.
    """
    ids = cluster.broker_ids
    gather(admin, cluster, topics, 0)
    for number in range(ROUNDS):
        destination = (number + 1) % 3
        left = [move(cluster, bundle, number % 3, destination) for bundle in topics]
        while left:
            outcomes = carried_out(cluster, left, concurrency=CROWD)
            assert {outcome.reason for outcome in outcomes} <= {"moved", "astray"}, outcomes
            astray = {outcome.bundle: outcome.owner for outcome in outcomes if not outcome.ok}
            left = [move(cluster, bundle, ids.index(owner), destination) for bundle, owner in astray.items()]
        assert {admin.owner(bundle) for bundle in topics} == {ids[destination]}


def test_every_message_that_was_acknowledged_arrives(
    cluster: PulsarCluster, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Persistent topics with a subscriber, moved while messages are sent to them."""
    # Brokers of a busy machine take their time to say who is connected, and clients take theirs to come back.
    monkeypatch.setattr(client_gap_meter, "MAX_COUNT_BEFORE_S", 60.0)
    monkeypatch.setattr(client_gap_meter, "MAX_WATCH_S", 300.0)
    namespace = "tests/persistent"
    ranges = admin.create_namespace(namespace, 4)
    names = topics_in_bundles(namespace, ranges, 1, "persistent")
    topics = {f"{namespace}/{r}": topic for r, (topic,) in names.items()}
    acknowledged: set[str] = set()
    failed: list[pulsar.Result] = []
    received: set[str] = set()
    measured: list[ClientGap] = []
    client = pulsar.Client(cluster.service_url)
    try:
        for topic in topics.values():
            client.subscribe(topic, "all", message_listener=receiver(received))
        producers = [client.create_producer(topic, send_timeout_millis=300_000) for topic in topics.values()]
        gather(admin, cluster, topics, 0)

        def send(mark: str) -> None:
            for number, producer in enumerate(producers):
                for count in range(50):
                    text = f"{mark}-{number}-{count}"
                    producer.send_async(text.encode(), acknowledger(text, acknowledged, failed))

        for number in range(ROUNDS):
            source, destination = number % 3, (number + 1) % 3
            moves = [move(cluster, bundle, source, destination) for bundle in topics]
            send(f"{number}-before")
            awaited(partial(statistics_have, admin, source, topics.values()))
            gaps: dict[str, ClientGap] = {}
            outcomes = carried_out(cluster, moves, after_unload=partial(send, f"{number}-within"), gaps=gaps)
            assert [outcome.reason for outcome in outcomes] == ["moved"] * len(moves)
            print(f"client gaps {gaps}")
            measured += gaps.values()
        # A broker that answers a send with an error cuts the connection: its clients may be away when they are counted.
        whole = [gap for gap in measured if gap.clients_before == 2]  # one producer and one subscriber
        assert 2 * len(whole) > ROUNDS * len(topics), measured
        assert not [gap for gap in whole if (gap.unknown, gap.clients_back, gap.errors) != ("", 2, 0)]
        assert None not in [gap.clients_seconds for gap in whole]
        for producer in producers:
            producer.flush()
        awaited(lambda: len(acknowledged) + len(failed) == 2 * ROUNDS * 50 * len(producers))
        assert not failed
        awaited(lambda: received >= acknowledged)
    finally:
        client.close()


def statistics_have(admin: Admin, broker: int, topics: Iterable[str]) -> bool:
    """Whether the last statistics of a broker list the producer and the subscriber of each topic."""
    ranges = admin.get("broker-stats/topics", broker=broker).get("tests/persistent", {}).values()
    stats = {topic: found for domains in ranges for listed in domains.values() for topic, found in listed.items()}
    return all(client_counts(stats.get(topic)) == (1, 1) for topic in topics)


def acknowledger(
    text: str, acknowledged: set[str], failed: list[pulsar.Result]
) -> Callable[[pulsar.Result, Any], None]:
    def told(result: pulsar.Result, _: Any) -> None:
        if result == pulsar.Result.Ok:
            acknowledged.add(text)
        else:
            failed.append(result)

    return told


def receiver(received: set[str]) -> Callable[[pulsar.Consumer, pulsar.Message], None]:
    def got(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        received.add(message.data().decode())
        consumer.acknowledge(message)

    return got


def test_a_broker_that_dies_in_the_middle_of_a_wave_stops_no_other_move(
    cluster: PulsarCluster, admin: Admin, topics: dict[str, str]
) -> None:
    chosen = dict(list(topics.items())[:8])
    gather(admin, cluster, chosen, 0)
    moves = [move(cluster, bundle, 0, 1 + number % 2) for number, bundle in enumerate(chosen)]
    alive, dead = cluster.broker_ids[1:]
    killed: list[str] = []

    def kill_second(outcome: MoveOutcome) -> None:
        if outcome.destination == dead and not killed:
            cluster.kill_broker(2)
            killed.append(outcome.bundle)

    outcomes = carried_out(cluster, moves, on_outcome=kill_second)

    told = {outcome.bundle: (outcome.destination, outcome.reason) for outcome in outcomes}
    arrived = killed[0]
    assert told.pop(arrived) == (dead, "moved")
    assert set(told.values()) == {(alive, "moved"), (dead, "destination_gone")}
    assert {outcome.attempts for outcome in outcomes if outcome.reason == "destination_gone"} == {0}
    for move_ in moves:
        if move_.bundle != arrived:
            assert admin.owner(move_.bundle) == (alive if move_.destination == alive else cluster.broker_ids[0])

    # Gone from the list as well: nothing is unloaded towards it, and the bundle it had got is served by another one.
    awaited(lambda: dead not in admin.get("brokers"))
    (outcome,) = carried_out(cluster, [move(cluster, next(iter(told)), 0, 2)])
    assert (outcome.reason, outcome.attempts) == ("destination_gone", 0)
    awaited(lambda: admin.look_up(chosen[arrived]) != dead)
    cluster.start_broker(2)


def test_a_leader_that_dies_with_the_planned_destination_does_not_lead_the_bundle_astray(
    cluster: PulsarCluster, admin: Admin, topics: dict[str, str]
) -> None:
    """Only the leader remembers where an unloaded bundle shall go: another one places it by its own judgement."""
    leader = cluster.broker_ids.index(admin.get("brokers/leaderBroker")["brokerId"])
    source, destination = (number for number in range(3) if number != leader)
    bundle, topic = next(iter(topics.items()))
    with Admin(cluster, broker=source) as survivor:
        gather(survivor, cluster, {bundle: topic}, source)
        (outcome,) = carried_out(
            cluster,
            [move(cluster, bundle, source, destination)],
            seed=source,
            after_unload=lambda: cluster.kill_broker(leader),
        )
        assert (outcome.reason, outcome.owner) == ("moved", cluster.broker_ids[destination])
        assert survivor.owner(bundle) == cluster.broker_ids[destination]
    cluster.start_broker(leader)
