"""The REST API over real HTTP, as measured on Pulsar 4.0.8 and 4.2.4 with the modular load manager."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pulsar_simulator.load import QUIET
from pulsar_simulator.scenario import build
from pulsar_simulator.serve import Running, running
from pulsar_simulator.topology import topic_hash

if TYPE_CHECKING:
    from pulsar_simulator.cluster import Cluster

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


def test_brokers_leader_and_health(served: Running, http: httpx.Client) -> None:
    for url in served.urls:
        assert http.get(f"{url}/admin/v2/brokers").json() == ids(served)
        assert http.get(f"{url}/admin/v2/brokers/wrongcluster").json() == ids(served)
        leader = http.get(f"{url}/admin/v2/brokers/leaderBroker").json()
        assert leader == {"serviceUrl": served.urls[0], "brokerId": ids(served)[0]}
        assert http.get(f"{url}/admin/v2/brokers/ready").text == "ok"
        assert http.get(f"{url}/admin/v2/brokers/health").text == "ok"
        assert http.get(f"{url}/admin/v2/brokers/version").text == "4.2.4"


def test_load_reports_have_pulsars_fields_and_tell_the_brokers_apart(served: Running, http: httpx.Client) -> None:
    for url in served.urls:
        report = http.get(f"{url}/admin/v2/broker-stats/load-report").json()
        assert list(report) == REPORT_KEYS
        assert report["webServiceUrl"] == url
        assert report["loadReportType"] == "LocalBrokerData"
        for stats in report["lastStats"].values():
            assert list(stats) == BUNDLE_KEYS


def test_owned_namespaces_redirects_to_the_broker_it_is_about(served: Running, http: httpx.Client) -> None:
    owner = hot(served.cluster)
    path = f"/admin/v2/brokers/simulated/{owner}/ownedNamespaces"
    other = not_leading(served, but=owner)
    answer = http.get(f"http://{other}{path}")
    assert answer.status_code == 307
    assert answer.headers["location"] == f"http://{owner}{path}"
    owned = http.get(answer.headers["location"]).json()
    bundle, _ = pick(served.cluster, owner)
    assert owned[bundle] == {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    assert f"pulsar/{owner}/0x00000000_0xffffffff" in owned
    unknown = http.get(f"http://{other}/admin/v2/brokers/simulated/127.0.0.1:1/ownedNamespaces")
    assert unknown.status_code == 404


def test_namespaces_bundles_and_topics(served: Running, http: httpx.Client) -> None:
    admin = f"{served.urls[1]}/admin/v2"
    assert http.get(f"{admin}/clusters").json() == ["simulated"]
    assert http.get(f"{admin}/tenants").json() == ["acme", "globex"]
    assert http.get(f"{admin}/namespaces/acme").json() == ["acme/orders", "acme/payments"]
    assert http.get(f"{admin}/namespaces/nobody").status_code == 404
    bundles = http.get(f"{admin}/namespaces/acme/orders/bundles").json()
    assert bundles["numBundles"] == 15
    assert bundles["boundaries"][0] == "0x00000000"
    assert bundles["boundaries"][-1] == "0xffffffff"
    assert len(bundles["boundaries"]) == 16
    missing = http.get(f"{admin}/namespaces/acme/none/bundles")
    assert (missing.status_code, missing.json()) == (404, {"reason": "Namespace not found"})
    topics = http.get(f"{admin}/namespaces/acme/orders/topics").json()
    assert topics == http.get(f"{admin}/persistent/acme/orders").json()
    assert all(topic.startswith("persistent://acme/orders/") for topic in topics)
    assert http.get(f"{admin}/non-persistent/acme/orders").json() == []
    assert http.get(f"{admin}/non-persistent/globex/metrics").json()


def test_policies(served: Running, http: httpx.Client) -> None:
    admin = f"{served.urls[0]}/admin/v2"
    assert http.get(f"{admin}/clusters/simulated/namespaceIsolationPolicies").status_code == 404
    assert http.get(f"{admin}/clusters/simulated/failureDomains").json() == {}
    assert http.get(f"{admin}/clusters/other/failureDomains").status_code == 412
    assert http.get(f"{admin}/namespaces/acme/orders/antiAffinity").status_code == 204
    served.cluster.spec.isolation_policies = {"blue": {"namespaces": ["acme/.*"], "primary": [".*"]}}
    policies = http.get(f"{admin}/clusters/simulated/namespaceIsolationPolicies").json()
    assert policies == {"blue": {"namespaces": ["acme/.*"], "primary": [".*"]}}


def test_topic_statistics_and_hash_positions(served: Running, http: httpx.Client) -> None:
    owner = hot(served.cluster)
    bundle, topic = pick(served.cluster, owner)
    namespace, _, hash_range = bundle.rpartition("/")
    stats = http.get(f"http://{owner}/admin/v2/broker-stats/topics").json()
    domains = stats[namespace][hash_range]
    report = http.get(f"http://{owner}/admin/v2/broker-stats/load-report").json()
    rates = [entry["msgRateIn"] for topics in domains.values() for entry in topics.values()]
    assert sum(rates) == pytest.approx(report["lastStats"][bundle]["msgRateIn"])
    positions, hops = follow(
        http, "GET", f"http://{not_leading(served, but=owner)}/admin/v2/namespaces/{bundle}/topicHashPositions"
    )
    assert len(hops) == 1
    assert positions.json()["topicHashPositions"][topic] == topic_hash(topic)
    one = http.get(f"http://{owner}/admin/v2/namespaces/{bundle}/topicHashPositions", params={"topics": topic})
    assert one.json() == {
        "namespace": namespace,
        "bundle": hash_range,
        "topicHashPositions": {topic: topic_hash(topic)},
    }


def test_non_persistent_topics_of_a_bundle(served: Running, http: httpx.Client) -> None:
    cluster = served.cluster
    for i in cluster.topology.members("globex/metrics"):
        bundle, owner = cluster.topology.bundles[i], cluster.owner(cluster.topology.bundles[i])
        if owner and cluster.traffic.active[i]:
            answer = http.get(f"http://{owner}/admin/v2/non-persistent/{bundle}")
            assert answer.json() == cluster.topology.topics(i)
            return
    pytest.fail("no bundle with traffic in the non-persistent namespace")


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


def test_lookup_tells_the_bundle_of_a_topic(served: Running, http: httpx.Client) -> None:
    bundle, topic = pick(served.cluster, hot(served.cluster))
    answer = http.get(f"{served.urls[0]}{lookup_path(topic)}/bundle")
    assert answer.text == bundle.rpartition("/")[2]
    assert http.get(f"{served.urls[0]}/lookup/v2/topic/persistent/acme/none/t1").status_code == 404


@pytest.mark.parametrize("destination", ["127.0.0.1:1", "localhost:{port}"])
def test_a_destination_that_is_no_active_broker_is_409_at_once(
    served: Running, http: httpx.Client, destination: str
) -> None:
    called = not_leading(served)
    bundle, _ = pick(served.cluster, hot(served.cluster))
    wanted = destination.format(port=called.rpartition(":")[2])
    answer = http.put(f"http://{called}{unload_path(bundle)}", params={"destinationBroker": wanted})
    assert answer.status_code == 409
    reason = "Not allowed unload namespace bundle to inactive destination broker"
    assert answer.json() == {"reason": reason}


def test_a_destination_may_carry_a_scheme_and_the_body_is_ignored(served: Running, http: httpx.Client) -> None:
    bundle, topic = pick(served.cluster, hot(served.cluster))
    target = not_leading(served, but=hot(served.cluster))
    answer, _ = follow(
        http,
        "PUT",
        f"{served.urls[0]}{unload_path(bundle)}",
        params={"destinationBroker": f"http://{target}"},
        content=b"junk",
    )
    assert answer.status_code == 204
    assert served.cluster.lookup(topic) == target


@pytest.mark.parametrize(
    ("bundle", "status", "reason"),
    [
        ("acme/orders/0x00000000_0x00000001", 412, "Invalid upper boundary for bundle"),
        ("acme/orders/abc", 500, "Stacktrace"),
        ("acme/none/0x00000000_0xffffffff", 404, "Namespace not found"),
    ],
)
def test_what_is_no_bundle(served: Running, http: httpx.Client, bundle: str, status: int, reason: str) -> None:
    answer = http.put(f"{served.urls[0]}{unload_path(bundle)}", params={"destinationBroker": ids(served)[1]})
    assert answer.status_code == status
    assert reason in answer.json()["reason"]


def test_an_unowned_bundle_is_204_and_its_destination_is_kept(served: Running, http: httpx.Client) -> None:
    cluster = served.cluster
    bundle = next(b for b in cluster.topology.bundles if cluster.owner(b) is None)
    target = ids(served)[2]
    answer = http.put(f"{served.urls[0]}{unload_path(bundle)}", params={"destinationBroker": target})
    assert answer.status_code == 204
    assert cluster.owner(bundle) is None
    positions = http.get(f"{served.urls[0]}/admin/v2/namespaces/{bundle}/topicHashPositions")
    assert positions.status_code == 412
    topic = cluster.topology.topics(cluster.topology.index(bundle))[0]
    found, _ = follow(http, "GET", f"{served.urls[3]}{lookup_path(topic)}")
    assert found.json()["httpUrl"] == f"http://{target}"


# configuration


def test_runtime_configuration_is_all_text_and_shedding_is_off(served: Running, http: httpx.Client) -> None:
    runtime = http.get(f"{served.urls[2]}/admin/v2/brokers/configuration/runtime").json()
    assert all(isinstance(value, str) for value in runtime.values())
    assert runtime["loadBalancerSheddingEnabled"] == "false"
    assert runtime["loadBalancerAvgShedderLowThreshold"] == "15"
    assert runtime["loadBalancerAvgShedderHighThreshold"] == "40"
    assert runtime["maxUnloadPercentage"] == "0.5"
    assert runtime["webServicePort"] == f"Optional[{ids(served)[2].rpartition(':')[2]}]"


def test_dynamic_configuration_is_set_on_all_and_taken_back(served: Running, http: httpx.Client) -> None:
    base = f"{served.urls[0]}/admin/v2/brokers/configuration"
    key = "loadBalancerSheddingEnabled"

    def effective() -> set[str]:
        urls = [f"{url}/admin/v2/brokers/configuration/runtime" for url in served.urls]
        return {http.get(url).json()[key] for url in urls}

    assert key in http.get(base).json()
    assert http.post(f"{base}/{key}/true").status_code == 200
    assert http.get(f"{base}/values").json() == {key: "true"}
    assert effective() == {"true"}
    assert http.delete(f"{base}/{key}").status_code == 200
    assert http.get(f"{base}/values").json() == {}
    assert effective() == {"false"}


def test_static_keys_are_412_and_values_of_a_wrong_type_are_kept_but_ignored(
    served: Running, http: httpx.Client
) -> None:
    base = f"{served.urls[0]}/admin/v2/brokers/configuration"
    for key in ("loadBalancerLoadPlacementStrategy", "noSuchKey"):
        answer = http.post(f"{base}/{key}/x")
        assert answer.status_code == 412
        assert answer.json() == {"reason": "Can't update non-dynamic configuration"}
    assert http.post(f"{base}/loadBalancerAvgShedderLowThreshold/abc").status_code == 200
    assert http.get(f"{base}/values").json() == {"loadBalancerAvgShedderLowThreshold": "abc"}
    assert http.get(f"{base}/runtime").json()["loadBalancerAvgShedderLowThreshold"] == "15"


# tokens


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic YTpi", "{token}", "Bearer"])
def test_without_a_valid_token_every_route_is_401_with_a_page(served: Running, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.format(token=served.token)}
    with httpx.Client(headers=headers, timeout=30) as client:
        for path in ("/admin/v2/brokers", "/admin/v2/brokers/ready", "/simulation/state", "/nowhere"):
            answer = client.get(f"{served.urls[0]}{path}")
            assert answer.status_code == 401
            assert answer.headers["content-type"].startswith("text/html")
            assert served.token not in answer.text


def test_a_user_who_is_no_super_user(served: Running) -> None:
    bundle, _ = pick(served.cluster, hot(served.cluster))
    with httpx.Client(headers={"Authorization": f"Bearer {served.user_token}"}, timeout=30) as client:
        for path in ("brokers/ready", "brokers/version", "clusters", "namespaces/acme/orders/bundles"):
            assert client.get(f"{served.urls[0]}/admin/v2/{path}").status_code == 200
        for path in ("brokers", "brokers/leaderBroker", "broker-stats/load-report", "brokers/configuration/runtime"):
            answer = client.get(f"{served.urls[0]}/admin/v2/{path}")
            assert answer.status_code == 401
            assert answer.json() == {"reason": "This operation requires super-user access"}
        assert client.put(f"{served.urls[0]}{unload_path(bundle)}").status_code == 401
        assert client.get(f"{served.urls[0]}/simulation/state").status_code == 401
    assert served.cluster.owner(bundle) is not None


def test_a_redirect_needs_the_token_again(served: Running, http: httpx.Client) -> None:
    """A client that drops the header because the port changed ends in 401."""
    owner = hot(served.cluster)
    path = f"/admin/v2/brokers/simulated/{owner}/ownedNamespaces"
    other = not_leading(served, but=owner)
    answer = httpx.get(f"http://{other}{path}", headers=served.headers, follow_redirects=True, timeout=30)
    assert [hop.status_code for hop in answer.history] == [307]
    assert answer.status_code == 401


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


def test_two_hundred_brokers_are_served_by_one_process() -> None:
    cluster = build(brokers=200, bundles=200 * 128, noise=QUIET)
    with running(cluster) as served, httpx.Client(headers=served.headers, timeout=60) as client:
        names: set[str] = set()
        for url in served.urls:
            report = json.loads(client.get(f"{url}/admin/v2/broker-stats/load-report").content)
            assert report["webServiceUrl"] == url
            names.update(report["bundles"])
    busy = int(cluster.traffic.active.sum())
    assert len(names) == busy + 200  # and one heartbeat bundle each
