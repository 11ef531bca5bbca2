"""Which bundles are asked about before a split, and what their owners say."""

import asyncio
import gc
import weakref

import numpy as np
import pytest
from pydantic import SecretStr

from pulsar_rebalancer.admin import AdminConnection, PulsarAdmin
from pulsar_rebalancer.collect import split_candidates
from pulsar_rebalancer.collect.split_candidates import choose, read_candidates
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.tables import BUNDLES, MEANS, table
from pulsar_simulator.brokers import BrokerSpec
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.load import QUIET, Traffic
from pulsar_simulator.serve import running
from pulsar_simulator.spec import ClusterSpec
from pulsar_simulator.topology import Namespace, Topology, topic_hash

MIB = 1048576


def row(bundle="a/b/1", **figures):
    return {"cluster": "c", "broker": "b:1", "bundle": bundle, "topics": 2} | figures


@pytest.mark.parametrize(
    ("figures", "before", "chosen"),
    [
        ({}, {}, False),
        ({"topics": 1000}, {}, False),
        ({"topics": 1001}, {}, True),
        ({"producers": 600, "consumers": 401}, {}, True),
        ({"producers": 1001}, {}, True),  # consumers were not told
        ({"msg_rate_in": 20000.0, "msg_rate_out": 10000.0}, {}, False),
        ({"msg_rate_in": 20000.0, "msg_rate_out": 10001.0}, {}, True),
        ({"msg_rate_in": 30001.0, "topics": 1}, {}, False),  # nothing to part
        ({"msg_rate_in": 30001.0, "topics": None}, {}, False),
        ({"msg_throughput_in": 100.0 * MIB + 1}, {}, True),
        # quiet at this moment, but a mean may still be above: the one before was
        ({"msg_rate_in": 1.0}, {"long_term_msg_rate": 30001.0}, True),
        ({"msg_rate_in": 1.0}, {"long_term_msg_throughput": 100.0 * MIB + 1}, True),
        ({"msg_rate_in": 1.0}, {"long_term_msg_rate": 30000.0}, False),
    ],
)
def test_a_bundle_is_looked_at_if_its_figure_or_its_mean_exceeds_a_bound(figures, before, chosen):
    means = table([{"cluster": "c", "bundle": "a/b/1"} | before], MEANS)
    found = choose(table([row(**figures)], BUNDLES), means, Settings())
    assert [each["bundle"] for each in found] == ["a/b/1"] * chosen


def test_bundles_that_are_not_split_anyway_take_no_place_of_others(monkeypatch):
    monkeypatch.setattr(split_candidates, "MOST_BUNDLES", 2)
    sizes = {"pulsar/system/1": 9000, "pulsar/b:1/1": 9000, "a/b/new": 8000, "a/b/1": 3000, "a/b/2": 2000}
    bundles = table([row(name, topics=topics) for name, topics in sizes.items()], BUNDLES)

    def found(**more):
        return [each["bundle"] for each in choose(bundles, None, Settings(), **more)]

    assert found(waits=lambda bundle: bundle == "a/b/new") == ["a/b/1", "a/b/2"]
    assert found() == ["a/b/new", "a/b/1"]
    monkeypatch.setattr(split_candidates, "MOST_BUNDLES", 3)
    assert found(waits=lambda bundle: bundle == "a/b/new") == ["a/b/1", "a/b/2", "a/b/new"]


def test_those_furthest_above_a_bound_are_looked_at_each_once_and_none_of_an_excluded_namespace(caplog):
    many = [row(f"a/b/{n:02}", topics=2000 + n, msg_rate_in=30000.0 - n) for n in range(25)]
    twice = row("a/b/24", topics=2000, broker="b:2")
    excluded = row("a/kept/1", topics=2000, msg_rate_in=99.0)
    settings = Settings(excluded_namespaces="a/kept")
    found = choose(table([*many, twice, excluded], BUNDLES), None, settings)
    assert [each["bundle"] for each in found] == [f"a/b/{n:02}" for n in range(24, 4, -1)]
    assert found[0]["broker"] == "b:1"
    assert "25 bundles may have to be split; 20 of them are looked at" in caplog.text


def test_how_far_above_its_bound_a_mean_is_counts_as_well():
    figures = {"topics": 1500}, {"msg_rate_in": 60000.0}, {"producers": 2500}, {"msg_throughput_out": 400.0 * MIB}, {}
    rows = [row(f"a/b/{n}", **each) for n, each in enumerate(figures)]
    means = table([{"cluster": "c", "bundle": "a/b/4", "long_term_msg_rate": 90000.0}], MEANS)
    found = choose(table(rows, BUNDLES), means, Settings())
    assert [each["bundle"][-1] for each in found] == ["3", "4", "2", "1", "0"]


@pytest.mark.parametrize("figure", [10**400, float("nan"), float("inf"), -1, "7", None, True])
def test_what_is_no_sound_figure_of_a_topic_counts_as_none(figure):
    assert split_candidates._carried({"msgRateIn": figure, "msgRateOut": 2}, "msgRate") == 2.0


def test_reading_topics_ends_and_holds_one_broker_s_statistics_at_a_time(monkeypatch):
    class Statistics(dict):
        """A dictionary that can be watched."""

        __hash__ = object.__hash__

    alive, most = weakref.WeakSet(), []

    class Admin:
        class bundles:
            @staticmethod
            async def bounds(_):
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
            alive.add(found)
            return found

    monkeypatch.setattr(split_candidates, "MOST_SECONDS", 0.2)
    rows = [row(f"a/b/{n}", broker=f"b:{n}", topics=2000) for n in range(10)]
    found = asyncio.run(read_candidates(Admin, table(rows, BUNDLES), None, Settings(split_mode="observe")))
    assert [len(each.topics or ()) for each in found.bundles] == [1] * 9 + [0]
    assert max(most) <= 1


@pytest.fixture(scope="module")
def served():
    """Two namespaces of two bundles; the first bundle has a broker of its own."""
    ones = np.ones(4)
    traffic = Traffic(np.array([900.0, 10, 10, 10]), 100 * ones, ones, noise=QUIET, seed=1, step=60)
    topology = Topology([Namespace("acme/one", 2, topics_per_bundle=3), Namespace("acme/two", 2)])
    counts = np.ones(4, dtype=np.int64)
    brokers = [BrokerSpec(f"127.0.0.1:{port}") for port in (1, 2)]
    with running(Cluster(ClusterSpec(brokers, topology, traffic, np.array([0, 1, 1, 1]), counts, counts))) as made:
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
def test_what_a_broker_does_not_say_is_missing_and_nothing_else(served, path, bounds, topics, rates):
    served.cluster.faults.add("error_500", path=path)
    try:
        (found,) = read(served)
    finally:
        served.cluster.faults.clear()
    assert (bool(found.bounds), found.topics is not None) == (bounds, topics)
    assert any(topic.msg_rate for topic in found.topics or ()) == rates


def test_a_bundle_with_too_many_topics_is_not_read(served, monkeypatch):
    monkeypatch.setattr(split_candidates, "MOST_TOPICS", 2)
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
