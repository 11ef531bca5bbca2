"""What the tests ask a real cluster for, over plain HTTP: nothing here is taken from the product under test."""

import time
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import httpx
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.java import CLUSTER_NAME

_LOST_RACE = ("Failed to acquire ownership", "is already locked")
_RACE_SECONDS = 30


class Admin:
    """The admin REST API of a `PulsarCluster`, as its super-user."""

    def __init__(self, cluster: PulsarCluster, broker: int = 0) -> None:
        self._broker = broker
        self._cluster = cluster
        self._client = cluster.http(cluster.admin_token)
        self._by_url = {cluster.web_url(i): name for i, name in enumerate(cluster.broker_ids)}

    def call(
        self,
        method: str,
        path: str,
        *,
        broker: int | None = None,
        json: object = None,
        params: dict[str, str] | None = None,
    ) -> httpx.Response:
        """One request, followed over redirects with the token sent again on every hop.

        HTTP clients drop the token when the port changes, and brokers redirect to each other's ports.
        """
        url = httpx.URL(self._cluster.web_url(self._broker if broker is None else broker) + path, params=params)
        for _ in range(5):
            answer = self._client.request(method, url, json=json)
            if not answer.has_redirect_location:
                break
            url = answer.url.join(answer.headers["Location"])
        if answer.is_error or answer.has_redirect_location:
            message = f"{method} {answer.url}: {answer.status_code} {answer.text}"
            raise httpx.HTTPStatusError(message, request=answer.request, response=answer)
        return answer

    def get(self, path: str, *, broker: int | None = None) -> Any:
        return self.call("GET", f"/admin/v2/{path}", broker=broker).json()

    def create_namespace(self, namespace: str, bundles: int) -> list[str]:
        """Make the namespace, and its tenant if needed, and return its bundle ranges (``0x…_0x…``) in order."""
        tenant = namespace.split("/")[0]
        if tenant not in self.get("tenants"):
            self.call("PUT", f"/admin/v2/tenants/{tenant}", json={"allowedClusters": [CLUSTER_NAME]})
        self.call("PUT", f"/admin/v2/namespaces/{namespace}", json={"bundles": {"numBundles": bundles}})
        return self.ranges(namespace)

    def ranges(self, namespace: str) -> list[str]:
        boundaries = self.get(f"namespaces/{namespace}/bundles")["boundaries"]
        return [f"{low}_{high}" for low, high in pairwise(boundaries)]

    def look_up(self, topic: str) -> str:
        """The id of the broker that serves the topic; makes one own its bundle if none does.

        Two clients that ask for an unowned bundle at once race for it: the loser is answered 500 and asks again, as
        Pulsar's own clients do.
        """
        deadline = time.monotonic() + _RACE_SECONDS
        while True:
            try:
                answer = self.call("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}").json()
            except httpx.HTTPStatusError as error:
                lost = any(words in str(error) for words in _LOST_RACE)
                if not lost or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return self._by_url[answer["httpUrlTls" if self._cluster.ca_file else "httpUrl"]]

    def owner(self, bundle: str) -> str:
        """The id of the broker that owns ``tenant/namespace/0x…_0x…``, as it says itself: others redirect to it.

        The list of a broker's bundles is not asked for: see ``BundleAdmin.is_owner``.
        """
        answer = self._positions(bundle)
        return self._by_url[f"{answer.url.scheme}://{answer.url.netloc.decode()}"]

    def owners(self, bundles: Iterable[str]) -> set[str]:
        """The ids of the brokers that own these bundles; "nobody" while one of them has no owner."""
        try:
            return {self.owner(bundle) for bundle in bundles}
        except (httpx.HTTPError, KeyError):
            return {"nobody"}

    def topics(self, bundle: str) -> set[str]:
        return set(self._positions(bundle).json()["topicHashPositions"])

    def _positions(self, bundle: str) -> httpx.Response:
        return self.call("GET", f"/admin/v2/namespaces/{bundle}/topicHashPositions")

    def unload(self, namespace: str, bundle_range: str, destination: int) -> None:
        """Unload one bundle; its next owner shall be the destination (it owns it from the next lookup on)."""
        self.call(
            "PUT",
            f"/admin/v2/namespaces/{namespace}/{bundle_range}/unload",
            params={"destinationBroker": self._cluster.broker_ids[destination]},
        )

    def move(self, namespace: str, bundle_range: str, topic: str, destination: int) -> None:
        """Unload one bundle, of which `topic` is looked up, until the destination owns it.

        Under load a second lookup can reach the leader after the first has used the destination up, and the bundle
        strays to another broker: seen once in eight moves of brokers short of CPU. RuntimeError after five times.
        """
        owner = self.look_up(topic)
        for _ in range(5):
            # The extensible load manager refuses to move a bundle to its owner.
            if owner == self._cluster.broker_ids[destination]:
                return
            try:
                self.unload(namespace, bundle_range, destination)
            except httpx.HTTPStatusError as error:
                # Just after an unload, a lookup may still name the previous owner.
                if "Failed to find ownership" not in str(error):
                    raise
            owner = self.look_up(topic)
        if owner != self._cluster.broker_ids[destination]:
            raise RuntimeError(f"{namespace}/{bundle_range} strayed five times, last to {owner}")

    def load_report(self, broker: int) -> dict[str, Any]:
        report: dict[str, Any] = self.get("broker-stats/load-report", broker=broker)
        return report

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def topics_in_bundles(
    namespace: str, ranges: Sequence[str], per_bundle: int, domain: str = "non-persistent"
) -> dict[str, list[str]]:
    """Names of topics by the bundle that they will fall into: that with the CRC-32 of the full name in its range."""
    edges = [int(r.split("_")[1], 16) for r in ranges]
    found: dict[str, list[str]] = {r: [] for r in ranges}
    number = 0
    while any(len(topics) < per_bundle for topics in found.values()):
        topic = f"{domain}://{namespace}/topic-{number}"
        number += 1
        position = zlib.crc32(topic.encode())
        # Upper edges are open, but for the very last one.
        index = next((i for i, edge in enumerate(edges) if position < edge), len(edges) - 1)
        if len(found[ranges[index]]) < per_bundle:
            found[ranges[index]].append(topic)
    return found
