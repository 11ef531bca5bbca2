"""The simulated brokers split as measured on real ones: bounds, topics, load, owners, and what they refuse."""

import httpx
import numpy as np
import pytest

from pulsar_simulator.brokers import BrokerSpec
from pulsar_simulator.cluster import Cluster, ClusterSpec
from pulsar_simulator.load import QUIET, Traffic
from pulsar_simulator.serve import running
from pulsar_simulator.topology import Namespace, Topology, topic_hash

WHOLE = "0x00000000_0xffffffff"
PATH = "/admin/v2/namespaces/acme/one"


@pytest.fixture(scope="module")
def served():
    """Two namespaces of one bundle each on the first of two brokers; the second one has no load."""
    rates = np.array([900.0, 0.0])
    traffic = Traffic(rates, np.full(2, 100.0), np.ones(2), noise=QUIET, seed=1, step=60)
    counts = np.array([6, 6])
    topology = Topology([Namespace("acme/one", 1, topics_per_bundle=6), Namespace("acme/idle", 1)])
    spec = ClusterSpec(
        [BrokerSpec(f"127.0.0.1:{port}") for port in (1, 2)], topology, traffic, np.array([0, 0]), counts, counts
    )
    cluster = Cluster(spec)
    with running(cluster) as brokers:
        yield brokers


def put(served, bundle, algorithm="range_equally_divide", body="", *, broker=0, namespace=PATH, unload="false"):
    url = f"{served.urls[broker]}{namespace}/{bundle}/split"
    return httpx.put(
        url, params={"splitAlgorithmName": algorithm, "unload": unload}, content=body, headers=served.headers
    )


def bounds(served):
    return httpx.get(f"{served.urls[0]}{PATH}/bundles", headers=served.headers).json()["boundaries"]


def test_topics_and_load_go_to_the_parts_and_stay_with_the_owner(served):
    cluster = served.cluster
    before = cluster.reporter.topic_stats(cluster.membership.brokers[0])["acme/one"][WHOLE]["persistent"]
    assert put(served, WHOLE, "topic_count_equally_divide").status_code == 204
    hashes = sorted(map(topic_hash, before))
    middle = hashes[2] + (hashes[3] - hashes[2]) // 2
    assert bounds(served) == ["0x00000000", f"0x{middle:08x}", "0xffffffff"]
    lower, upper = f"0x00000000_0x{middle:08x}", f"0x{middle:08x}_0xffffffff"
    after = cluster.reporter.topic_stats(cluster.membership.brokers[0])["acme/one"]
    rates = {topic: stats["msgRateIn"] for part in after.values() for topic, stats in part["persistent"].items()}
    assert rates == pytest.approx({topic: stats["msgRateIn"] for topic, stats in before.items()})
    assert [len(after[part]["persistent"]) for part in (lower, upper)] == [3, 3]
    report = cluster.load_report(cluster.membership.brokers[0].broker_id)
    stats = [report["lastStats"][f"acme/one/{part}"] for part in (lower, upper)]
    assert sum(part["msgRateIn"] for part in stats) == pytest.approx(900)
    assert [part["topics"] for part in stats] == [3, 3]
    assert cluster.owner(f"acme/one/{upper}") == cluster.membership.brokers[0].broker_id
    cluster.advance(60)  # the next statistics say the same
    again = cluster.load_report(cluster.membership.brokers[0].broker_id)["lastStats"]
    assert again[f"acme/one/{upper}"]["msgRateIn"] == pytest.approx(stats[1]["msgRateIn"])
