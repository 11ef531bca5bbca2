import asyncio
import gc
import weakref
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from pulsar_rebalancer.collect import split_candidates
from pulsar_rebalancer.collect.split_candidates import read_candidates
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.run.tables import BUNDLES, table
from pulsar_simulator.brokers import BrokerSpec
from pulsar_simulator.cluster import Cluster, ClusterSpec
from pulsar_simulator.load import NO_NOISE, Traffic
from pulsar_simulator.serve import serve
from pulsar_simulator.topology import Namespace, Topology, topic_hash


def row(bundle="a/b/1", **values):
    return {"cluster": "c", "broker": "b:1", "bundle": bundle, "topics": 2} | values


def test_reading_topics_ends_and_holds_one_broker_s_statistics_at_a_time(monkeypatch):
    class Statistics(dict[str, Any]):
        """A dictionary that can be watched."""

    alive, most = weakref.WeakValueDictionary[int, Statistics](), []

    class Admin:
        class bundles:
            @staticmethod
            async def boundaries(_):
                return [0, 1]

            @staticmethod
            async def topic_hash_positions(bundle):
                await asyncio.Event().wait() if bundle == "a/b/9" else None
                return {"t": 1}

        @staticmethod
        async def topic_stats(_):
            gc.collect()
            most.append(len(alive))
            found = Statistics()
            alive[id(found)] = found
            return found

    monkeypatch.setattr(split_candidates, "MAX_READ_SECONDS", 0.2)
    rows = [row(f"a/b/{n}", broker=f"b:{n}", topics=2000) for n in range(10)]
    admin: Any = Admin
    found = asyncio.run(read_candidates(admin, table(rows, BUNDLES), None, Settings(split_mode="observe")))
    assert [len(each.topics or ()) for each in found.bundles] == [1] * 9 + [0]
    assert max(most) <= 1


@pytest.fixture(scope="module")
def served():
    """Two namespaces of two bundles; the first bundle has a broker of its own."""
    ones = np.ones(4)
    traffic = Traffic(np.array([900.0, 10, 10, 10]), 100 * ones, ones, noise=NO_NOISE, seed=1, step=60)
    topology = Topology([Namespace("acme/one", 2, topics_per_bundle=3), Namespace("acme/two", 2)])
    counts = np.ones(4, dtype=np.int64)
    brokers = [BrokerSpec(f"127.0.0.1:{port}") for port in (1, 2)]
    with serve(Cluster(ClusterSpec(brokers, topology, traffic, np.array([0, 1, 1, 1]), counts, counts))) as made:
        yield made


def read(served, *, rows=None, **settings):
    cluster = served.cluster
    name, broker = cluster.topology.bundles[0], cluster.membership.brokers[0].broker_id
    given = {"split_mode": "observe", "max_bundle_msg_rate": 100, **settings}

    async def act():
        connection = AdminConnection(seeds=tuple(served.urls), token=SecretStr(served.token))
        async with PulsarAdmin(connection) as admin:
            busy = [row(name, broker=broker, msg_rate_in=900.0)] if rows is None else rows
            return await read_candidates(admin, table(busy, BUNDLES), None, Settings(**given))

    return asyncio.run(act()).bundles


def test_topics_come_with_their_hash_and_what_they_carry(served):
    (found,) = read(served)
    topics = served.cluster.topology.topics(0)
    assert found.bounds == (0, 0x80000000, 0xFFFFFFFF)
    assert [topic.position for topic in found.topics] == sorted(map(topic_hash, topics))
    by_position = {topic_hash(topic): 1 / k for k, topic in enumerate(topics, 1)}
    whole = sum(by_position.values())
    rates = {topic.position: topic.msg_rate for topic in found.topics}
    assert rates == pytest.approx({position: 1800 * share / whole for position, share in by_position.items()})


@pytest.mark.parametrize(
    ("path", "bounds", "topics", "rates"),
    [("/bundles", False, True, True), ("/topicHashPositions", True, False, False), ("/topics", True, True, False)],
)
def test_missing_answer_of_a_broker_alone_is_missing(served, path, bounds, topics, rates):
    served.cluster.faults.add("error_500", path=path)
    try:
        (found,) = read(served)
    finally:
        served.cluster.faults.clear()
    assert (bool(found.bounds), found.topics is not None) == (bounds, topics)
    assert any(topic.msg_rate for topic in found.topics or ()) == rates


def test_a_bundle_with_too_many_topics_is_not_read(served, monkeypatch):
    monkeypatch.setattr(split_candidates, "MAX_TOPICS_READ", 2)
    (found,) = read(served)
    assert found.topics is None
    assert found.bounds


def test_brokers_are_asked_nothing_while_splitting_is_off_or_no_bundle_is_large(served):
    served.cluster.faults.add("error_500", path="")
    try:
        assert read(served, split_mode="off") == ()
        assert read(served, rows=[row(topics=1)]) == ()
    finally:
        served.cluster.faults.clear()
