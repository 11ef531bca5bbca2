"""The REST API over real HTTP, as measured on Pulsar 4.0.8 and 4.2.4 with the modular load manager."""

from typing import Any

import httpx

from pulsar_simulator.cluster import Cluster
from pulsar_simulator.serve import Running

# Keys of a load report of Pulsar 4.2.4, in its order.
REPORT_KEYS = [
    "webServiceUrl",
    "pulsarServiceUrl",
    "persistentTopicsEnabled",
    "nonPersistentTopicsEnabled",
    "cpu",
    "memory",
    "directMemory",
    "bandwidthIn",
    "bandwidthOut",
    "msgThroughputIn",
    "msgThroughputOut",
    "msgRateIn",
    "msgRateOut",
    "lastUpdate",
    "lastStats",
    "numTopics",
    "numBundles",
    "numConsumers",
    "numProducers",
    "bundles",
    "lastBundleGains",
    "lastBundleLosses",
    "brokerVersionString",
    "protocols",
    "advertisedListeners",
    "loadManagerClassName",
    "startTimestamp",
    "maxResourceUsage",
    "loadReportType",
]

BUNDLE_KEYS = [
    "msgRateIn",
    "msgThroughputIn",
    "msgRateOut",
    "msgThroughputOut",
    "consumerCount",
    "producerCount",
    "topics",
    "cacheSize",
]


def ids(served: Running) -> list[str]:
    return [broker.broker_id for broker in served.cluster.membership.brokers]


def pick(cluster: Cluster, owner: str) -> tuple[str, str]:
    """A busy bundle of a broker, and one of its topics."""
    index = cluster.membership.find(owner).index
    for i, bundle in enumerate(cluster.topology.bundles):
        if cluster.ownership.owner[i] == index and cluster.traffic.active[i]:
            return bundle, cluster.topology.topics(i)[0]
    raise LookupError(owner)


def hot(cluster: Cluster) -> str:
    scores = cluster.true_scores()
    return max(scores, key=lambda broker: scores[broker])


def not_leading(served: Running, *, but: str = "") -> str:
    return next(b for b in ids(served)[1:] if b != but)


def unload_path(bundle: str) -> str:
    return f"/admin/v2/namespaces/{bundle}/unload"


def lookup_path(topic: str) -> str:
    return f"/lookup/v2/topic/{topic.replace('://', '/')}"


def follow(http: httpx.Client, method: str, url: str, **more: Any) -> tuple[httpx.Response, list[str]]:
    """Follows 307 with the token, as a careful client does."""
    hops: list[str] = []
    answer = http.request(method, url, **more)
    while answer.status_code == 307:
        hops.append(answer.headers["location"])
        answer = http.request(method, hops[-1])
    return answer, hops


# reading


def test_load_reports_have_pulsars_fields_and_tell_the_brokers_apart(served: Running, http: httpx.Client) -> None:
    for url in served.urls:
        report = http.get(f"{url}/admin/v2/broker-stats/load-report").json()
        assert list(report) == REPORT_KEYS
        assert report["webServiceUrl"] == url
        assert report["loadReportType"] == "LocalBrokerData"
        for stats in report["lastStats"].values():
            assert list(stats) == BUNDLE_KEYS


# moves


def test_unload_goes_from_a_non_leader_to_the_leader_to_the_owner(served: Running, http: httpx.Client) -> None:
    leader = ids(served)[0]
    owner = next(b for b in ids(served)[1:] if served.cluster.true_scores()[b] > 10)
    called = not_leading(served, but=owner)
    bundle, topic = pick(served.cluster, owner)
    path = unload_path(bundle)
    answer, hops = follow(http, "PUT", f"http://{called}{path}", params={"destinationBroker": called})
    assert answer.status_code == 204
    assert hops == [
        f"http://{leader}{path}?destinationBroker={called}&authoritative=false",
        f"http://{owner}{path}?authoritative=true",
    ]
    assert served.cluster.owner(bundle) is None

    found, hops = follow(http, "GET", f"http://{owner}{lookup_path(topic)}")
    assert hops == [
        f"http://{leader}{lookup_path(topic)}?authoritative=false",
        f"http://{called}{lookup_path(topic)}?authoritative=true",
    ]
    assert found.json()["httpUrl"] == f"http://{called}"
    assert served.cluster.owner(bundle) == called
    again = http.get(f"http://{owner}{lookup_path(topic)}")
    assert (again.status_code, again.json()) == (200, found.json())


# configuration


# tokens


def test_statistics_of_a_topic_say_who_is_connected(served: Running, http: httpx.Client) -> None:
    cluster, owner = served.cluster, hot(served.cluster)
    bundle, topic = pick(cluster, owner)
    domain, _, path = topic.partition("://")
    url, index = f"/admin/v2/{domain}/{path}/stats", cluster.topology.index(bundle)

    def connected(broker: str, url: str = url) -> tuple[int, int]:
        stats = http.get(f"http://{broker}{url}").json()
        return len(stats["publishers"]), sum(len(each["consumers"]) for each in stats["subscriptions"].values())

    listed = http.get(f"http://{owner}/admin/v2/broker-stats/topics").json()
    topics = listed[bundle.rpartition("/")[0]][bundle.rpartition("/")[2]][domain]
    assert sum(each["producerCount"] for each in topics.values()) == cluster.reporter.producers[index]
    assert connected(owner)[0] == len(topics[topic]["publishers"]) > 0
    assert http.get(f"http://{owner}{url.replace('/t', '/nothing')}").status_code == 404
    other = not_leading(served, but=owner)
    assert http.get(f"http://{other}{url}", follow_redirects=False).status_code == 307

    cluster.unload(bundle, other)
    assert cluster.lookup(topic) == other
    assert connected(other) == (0, 0)
    cluster.advance(cluster.spec.timing.reconnect_delay)
    assert connected(other)[0] > 0
    cluster.faults.add("clients_gone", bundle=bundle)
    cluster.unload(bundle, owner)
    assert cluster.lookup(topic) == owner
    cluster.advance(60)
    assert connected(owner) == (0, 0)


# size
