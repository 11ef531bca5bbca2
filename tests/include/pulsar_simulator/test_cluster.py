from dataclasses import replace
from typing import Any

import pytest

from pulsar_simulator.cluster import Cluster
from pulsar_simulator.faults import Refusal
from pulsar_simulator.load import NO_NOISE
from pulsar_simulator.scenario import spec


def reports(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {broker: cluster.load_report(broker) for broker in cluster.active_brokers()}


def hot_and_empty(cluster: Cluster) -> tuple[str, str]:
    scores = cluster.true_scores()
    return max(scores, key=lambda b: scores[b]), min(scores, key=lambda b: scores[b])


def busy_bundles(cluster: Cluster, broker: str) -> list[str]:
    stats = cluster.load_report(broker)["lastStats"]
    loaded = [bundle for bundle in stats if stats[bundle]["msgRateIn"] > 0]
    return sorted(loaded, key=lambda b: -stats[b]["msgRateIn"])


def topic_of(cluster: Cluster, bundle: str) -> str:
    return cluster.topology.topics(cluster.topology.index(bundle))[0]


def move(cluster: Cluster, bundle: str, destination: str) -> str:
    cluster.unload(bundle, destination)
    return cluster.lookup(topic_of(cluster, bundle))


def test_rates_follow_at_the_next_statistics_and_cpu_at_the_next_host_sample() -> None:
    base = spec(brokers=3, bundles=30, noise=NO_NOISE)
    base.timing = replace(base.timing, stats_period=10.0, host_check_period=60.0)
    cluster = Cluster(base)
    hot, empty = hot_and_empty(cluster)
    bundle = busy_bundles(cluster, hot)[0]
    before = reports(cluster)
    move(cluster, bundle, empty)
    assert reports(cluster) == before

    cluster.advance(10)
    middle = reports(cluster)
    assert bundle in middle[empty]["lastStats"]
    assert bundle not in middle[hot]["lastStats"]
    assert middle[empty]["lastBundleGains"] == [bundle]
    assert middle[hot]["lastBundleLosses"] == [bundle]
    assert middle[empty]["cpu"] == before[empty]["cpu"]

    cluster.advance(50)
    after = reports(cluster)
    gained = after[empty]["cpu"]["usage"] - before[empty]["cpu"]["usage"]
    assert gained > 0
    assert before[hot]["cpu"]["usage"] - after[hot]["cpu"]["usage"] == pytest.approx(gained)
    assert after[empty]["bandwidthIn"]["usage"] > 0


def test_a_killed_broker_is_noticed_when_its_session_ends(cluster: Cluster) -> None:
    hot, _ = hot_and_empty(cluster)
    bundles = busy_bundles(cluster, hot)
    cluster.kill(hot)
    cluster.advance(7)
    assert hot in cluster.active_brokers()
    assert cluster.owner(bundles[0]) == hot
    cluster.advance(2)
    assert hot not in cluster.active_brokers()
    with pytest.raises(Refusal, match="inactive destination"):
        cluster.unload(bundles[0], hot)
    assert all(cluster.owner(bundle) not in (None, hot) for bundle in bundles)
