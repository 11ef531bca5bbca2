"""The REST API over real HTTP, as measured on Pulsar 4.0.8 and 4.2.4 with the modular load manager."""

from typing import Any

import httpx

from pulsar_simulator.cluster import Cluster
from pulsar_simulator.serve import RunningCluster


def ids(served: RunningCluster) -> list[str]:
    return [broker.broker_id for broker in served.cluster.membership.brokers]


def pick(cluster: Cluster, owner: str) -> tuple[str, str]:
    index = cluster.membership.find(owner).index
    for i, bundle in enumerate(cluster.topology.bundles):
        if cluster.ownership.owner[i] == index and cluster.traffic.is_active[i]:
            return bundle, cluster.topology.topics(i)[0]
    raise LookupError(owner)


def not_leading(served: RunningCluster, *, but: str = "") -> str:
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


def test_unload_goes_from_a_non_leader_to_the_leader_to_the_owner(served: RunningCluster, http: httpx.Client) -> None:
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
