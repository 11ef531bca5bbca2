"""The simulated brokers split as measured on real ones: bounds, topics, load, owners, and what they refuse."""

import httpx
import numpy as np
import pytest

from pulsar_simulator.brokers import BrokerSpec
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.load import QUIET, Traffic
from pulsar_simulator.serve import running
from pulsar_simulator.spec import ClusterSpec
from pulsar_simulator.topology import Namespace, Topology, topic_hash

WHOLE = "0x00000000_0xffffffff"
BUNDLE = f"acme/one/{WHOLE}"
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


@pytest.mark.parametrize(
    ("bundle", "algorithm", "body", "status", "said"),
    [
        (WHOLE, "by_colour", "", 412, "Unsupported namespace bundle split algorithm"),
        (WHOLE, "specified_positions_divide", "", 412, "splitBoundaries must not be empty"),
        ("0x00000000_0x10000000", "range_equally_divide", "", 412, "Invalid upper boundary"),
        ("abc", "range_equally_divide", "", 412, "Invalid bundle range format"),
        (WHOLE, "specified_positions_divide", "[1", 400, "not a usable JSON document"),
        (WHOLE, "specified_positions_divide", '["1"]', 400, "JSON list of positions"),
        (WHOLE, "flow_or_qps_equally_divide", "", 500, "cannot be cast"),
        (WHOLE, "specified_positions_divide", "[0, 4294967295]", 204, ""),
    ],
)
def test_what_is_refused_or_changes_nothing(served, bundle, algorithm, body, status, said):
    answer = put(served, bundle, algorithm, body)
    assert answer.status_code == status
    assert said in answer.text
    assert bounds(served) == ["0x00000000", "0xffffffff"]


def test_idle_bundles_have_no_topics_to_divide_and_no_largest(served):
    idle = "/admin/v2/namespaces/acme/idle"
    assert put(served, WHOLE, "topic_count_equally_divide", namespace=idle).status_code == 204
    assert put(served, "LARGEST", namespace=idle).status_code == 404
    assert len(served.cluster.topology.boundaries("acme/idle")) == 2


def test_a_broker_that_does_not_own_the_bundle_redirects_to_the_owner(served):
    answer = put(served, WHOLE, broker=1)
    assert answer.status_code == 307
    assert answer.headers["location"].startswith(f"{served.urls[0]}{PATH}/{WHOLE}/split?")


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


def test_unloaded_parts_are_nobodys_until_producers_look_them_up(served):
    cluster = served.cluster
    name = cluster.topology.bundles[0]
    assert put(served, name.rpartition("/")[2], unload="true").status_code == 204
    parts = [cluster.topology.bundles[0], cluster.topology.bundles[-1]]
    assert [cluster.owner(part) for part in parts] == [None, None]
    cluster.advance(1)
    active = [part for part in parts if cluster.traffic.active[cluster.topology.index(part)]]
    assert active
    assert None not in [cluster.owner(part) for part in active]
