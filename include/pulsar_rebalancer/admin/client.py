"""The calls of Pulsar's admin REST API that a rebalancer needs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode
from zlib import crc32

from pulsar_rebalancer.admin.answers import failure
from pulsar_rebalancer.admin.connection import address_of
from pulsar_rebalancer.admin.names import path, split_bundle, split_namespace, split_topic
from pulsar_rebalancer.admin.transport import Request, Transport
from pulsar_rebalancer.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_rebalancer.admin.answers import Answer
    from pulsar_rebalancer.admin.connection import AdminConnection

_LAST_HASH = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The owner of a topic's bundle, as a lookup names it.

    Attributes:
        broker_service_url: `pulsar://…`, or `pulsar+ssl://…` where the broker has no plain port; may be empty.
        http_url: the owner's web service, `http://…` or `https://…`.
        addresses: `host:port` of every web address in the answer.
    """

    broker_service_url: str
    http_url: str
    addresses: tuple[str, ...]


class PulsarAdmin:
    """Client of one cluster's admin REST API; an async context manager.

    Every method raises `AdminError` with a reason code of `pulsar_rebalancer.reasons`.

    Args:
        connection: how the brokers are reached.

    Raises:
        SettingsError: a certificate file of the connection cannot be used.
    """

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self._transport = Transport(connection)
        self._cluster = connection.cluster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    async def _get(
        self,
        url_path: str,
        query: Mapping[str, object] | Sequence[tuple[str, object]] = (),
        *,
        broker: str = "",
        follow: bool = True,
        on_412: str = "not_found",
    ) -> Answer:
        request = Request("GET", url_path, urlencode(query), self._connection.read_timeout_s, follow, on_412)
        return await self._transport.send(request, broker)

    # the cluster

    async def brokers(self) -> list[str]:
        """BrokerIds of the active brokers, sorted."""
        found = (await self._get("/admin/v2/brokers")).brokers()
        self._transport.know(found)
        return found

    async def leader(self) -> str:
        """BrokerId of the leader; empty when there is none."""
        try:
            answer = await self._get("/admin/v2/brokers/leaderBroker")
        except AdminError as error:
            if error.reason == "not_found":
                return ""
            raise
        leader = answer.mapping()
        broker, url = leader.get("brokerId"), leader.get("serviceUrl")
        if isinstance(broker, str) and broker:
            return broker
        # Brokers before brokerIds name the leader by its address, which then is the id.
        return _address(url) or _raise(answer.bad("the answer names no leader"))

    async def cluster_name(self) -> str:
        """Name of the cluster: the connection's own, the only one configured, or the one the brokers run as."""
        if not self._cluster:
            local = [name for name in (await self._get("/admin/v2/clusters")).strings() if name != "global"]
            # Geo-replicated instances list every cluster; only the configuration tells which one this is.
            self._cluster = local[0] if len(local) == 1 else await self._configured_cluster()
        return self._cluster

    async def _configured_cluster(self) -> str:
        answer = await self._get("/admin/v2/brokers/configuration/runtime")
        name = answer.mapping().get("clusterName")
        if not isinstance(name, str) or not name:
            raise answer.bad("the answer names no cluster; set the connection's cluster")
        return name

    # brokers

    async def load_report(self, broker: str) -> dict[str, Any] | None:
        """Load report of the broker itself: the answer is local to whoever is asked, so nothing is followed.

        Returns:
            LocalBrokerData of the modular load manager; None for an empty one (NoopLoadManager).
        """
        answer = await self._get("/admin/v2/broker-stats/load-report", broker=broker, follow=False)
        return None if answer.json() is None else answer.mapping()

    async def load_reports(self, brokers: Iterable[str]) -> dict[str, dict[str, Any] | AdminError | None]:
        """Load reports of many brokers at once, at most `concurrency` under way.

        Returns:
            Broker to its report, to None for an empty one, or to the error of asking it.
        """

        async def ask(broker: str) -> dict[str, Any] | AdminError | None:
            try:
                return await self.load_report(broker)
            except AdminError as error:
                return error

        asked = list(dict.fromkeys(brokers))
        return dict(zip(asked, await asyncio.gather(*map(ask, asked)), strict=True))

    async def owned_bundles(self, broker: str) -> set[str]:
        """Bundles that the broker owns, with or without loaded topics."""
        url_path = path("admin", "v2", "brokers", await self.cluster_name(), broker, "ownedNamespaces")
        return set((await self._get(url_path, broker=broker)).mapping())

    async def ready(self, broker: str) -> bool:
        """Whether the broker says that it is ready; False when it answers with a failure of its own."""
        return await self._ok("/admin/v2/brokers/ready", broker)

    async def health(self, broker: str) -> bool:
        """Whether the broker's health check passes: it writes and reads a persistent topic of its own."""
        return await self._ok("/admin/v2/brokers/health?topicVersion=V2", broker)

    async def _ok(self, url_path: str, broker: str) -> bool:
        url_path, _, query = url_path.partition("?")
        request = Request("GET", url_path, query, self._connection.read_timeout_s, follow=False)
        try:
            return (await self._transport.send(request, broker)).text() == "ok"
        except AdminError as error:
            if error.reason == "server_error":
                return False
            raise

    # settings

    async def runtime_configuration(self, broker: str | None = None) -> dict[str, str]:
        """Effective settings of a broker (of any when None): every value is a text, optionals print as such."""
        answer = await self._get("/admin/v2/brokers/configuration/runtime", broker=broker or "")
        return _texts(answer)

    async def dynamic_values(self) -> dict[str, str]:
        """Dynamic settings that override the brokers' files."""
        return _texts(await self._get("/admin/v2/brokers/configuration/values"))

    async def set_dynamic(self, name: str, value: str) -> None:
        """Override a dynamic setting on all brokers.

        Brokers store a value of the wrong type as well, and then ignore it: read the effect back.

        Raises:
            AdminError: `wrong_setting`; the name is unknown or not dynamic.
        """
        await self._write("POST", path("admin", "v2", "brokers", "configuration", name, value), "wrong_setting")

    async def delete_dynamic(self, name: str) -> None:
        """Give a dynamic setting back to the brokers' files.

        Raises:
            AdminError: `wrong_setting`; the name is unknown or not dynamic.
        """
        await self._write("DELETE", path("admin", "v2", "brokers", "configuration", name), "wrong_setting")

    async def _write(self, method: str, url_path: str, on_412: str) -> None:
        timeout = self._connection.read_timeout_s
        await self._transport.send(Request(method, url_path, "", timeout, on_412=on_412))

    # policies

    async def isolation_policies(self, cluster: str) -> dict[str, Any]:
        """Namespace isolation policies by name; empty when none was ever set (404)."""
        return await self._policies(path("admin", "v2", "clusters", cluster, "namespaceIsolationPolicies"))

    async def failure_domains(self, cluster: str) -> dict[str, Any]:
        """Failure domains by name, each `{"brokers": […]}`; empty when there is none."""
        return await self._policies(path("admin", "v2", "clusters", cluster, "failureDomains"))

    async def _policies(self, url_path: str) -> dict[str, Any]:
        try:
            # 412 means that the cluster is unknown, which must not pass for "no policies".
            return (await self._get(url_path, on_412="bad_answer")).mapping()
        except AdminError as error:
            if error.reason == "not_found" and error.status == 404:
                return {}
            raise

    async def anti_affinity_group(self, namespace: str) -> str:
        """Anti-affinity group of `tenant/namespace`; empty when it is in none."""
        url_path = path("admin", "v2", "namespaces", *split_namespace(namespace), "antiAffinity")
        text = (await self._get(url_path)).text()
        return "" if text == "null" else text

    # namespaces, bundles and topics

    async def bundle_boundaries(self, namespace: str) -> list[str]:
        """Boundaries of the bundles of `tenant/namespace`, ascending: `0x00000000` … `0xffffffff`."""
        answer = await self._get(path("admin", "v2", "namespaces", *split_namespace(namespace), "bundles"))
        found = answer.mapping().get("boundaries")
        if not isinstance(found, list) or not all(isinstance(b, str) for b in found):
            raise answer.bad("the answer names no boundaries")
        return found

    async def topics(self, namespace: str) -> list[str]:
        """Full names of the topics of `tenant/namespace`, sorted.

        Persistent topics that exist, loaded or not, and non-persistent ones that are loaded
        (NamespacesBase.internalGetListOfTopics; brokers list only the persistent ones unless asked for all).
        """
        return await self._topics(namespace, "ALL")

    async def _topics(self, namespace: str, mode: str) -> list[str]:
        url_path = path("admin", "v2", "namespaces", *split_namespace(namespace), "topics")
        return sorted((await self._get(url_path, {"mode": mode})).strings())

    async def topics_of_bundle(self, bundle: str) -> list[str]:
        """Full names of a bundle's topics of both domains, sorted, partitions one by one.

        The owner lists its loaded non-persistent topics and the persistent ones that exist
        (NamespaceService.getOwnedTopicListForNamespaceBundle). While nobody owns the bundle only its persistent
        topics can be told, by their hash.
        """
        tenant, local, hash_range = split_bundle(bundle)
        try:
            return sorted(await self.topic_hash_positions(bundle))
        except AdminError as error:
            if "Failed to find ownership" not in error.message:
                raise
        low, high = (int(bound, 16) for bound in hash_range.split("_"))
        return [
            topic
            for topic in await self._topics(f"{tenant}/{local}", "PERSISTENT")
            if low <= (position := crc32(topic.encode())) < high or position == high == _LAST_HASH
        ]

    async def topic_hash_positions(self, bundle: str, topics: Iterable[str] = ()) -> dict[str, int]:
        """Topic to its hash (0 … 2**32 - 1), asked of the bundle's owner.

        Args:
            bundle: `tenant/namespace/0x…_0x…`.
            topics: full names to ask for; all of the bundle when empty. Those not in the bundle are left out.

        Raises:
            AdminError: `bad_range` when the range is stale, and while nobody owns the bundle.
        """
        tenant, local, hash_range = split_bundle(bundle)
        url_path = path("admin", "v2", "namespaces", tenant, local, hash_range, "topicHashPositions")
        answer = await self._get(url_path, [("topics", topic) for topic in topics], on_412="bad_range")
        found = answer.mapping().get("topicHashPositions")
        if not isinstance(found, dict) or not all(type(position) is int for position in found.values()):
            raise answer.bad("the answer holds no topicHashPositions")
        return found

    async def lookup(self, topic: str) -> LookupResult:
        """Look a topic up as clients do: a bundle that nobody owns gets its owner by this.

        Args:
            topic: full name, `persistent://tenant/namespace/topic` or `non-persistent://…`.
        """
        answer = await self._get(path("lookup", "v2", "topic", *split_topic(topic)))
        found = {k: v for k, v in answer.mapping().items() if isinstance(v, str) and v}
        urls = [found[key] for key in ("httpUrl", "httpUrlTls") if _address(found.get(key))]
        if not urls:
            raise answer.bad("the answer names no owner")
        if self._connection.seeds[0].startswith("https:"):
            urls.reverse()
        service = found.get("brokerUrl") or found.get("brokerUrlTls") or ""
        return LookupResult(service, urls[0], tuple(_address(url) for url in urls))

    async def lookup_owner(self, topic: str) -> str:
        """BrokerId of the owner that a lookup names."""
        result = await self.lookup(topic)
        ids = {broker.lower(): broker for broker in await self.brokers()}
        for address in result.addresses:
            if address in ids:
                return ids[address]
        what = f"GET {path('lookup', 'v2', 'topic', *split_topic(topic))}"
        detail = f"the owner {' or '.join(result.addresses)} is none of the cluster's brokers"
        raise failure("bad_answer", what, result.addresses[0], detail)

    async def owner(self, bundle: str, likely: Sequence[str] = ()) -> str | None:
        """BrokerId of the bundle's owner as the brokers themselves say; None while nobody owns it.

        Right after an unload nobody does, until the next lookup.

        Args:
            bundle: `tenant/namespace/0x…_0x…`.
            likely: brokers to ask first, one after the other.

        Raises:
            AdminError: nobody claims the bundle and a broker could not be asked: then the owner is unknown.
        """
        split_bundle(bundle)
        errors: list[AdminError] = []

        async def ask(broker: str) -> str | None:
            try:
                return broker if bundle in await self.owned_bundles(broker) else None
            except AdminError as error:
                errors.append(error)
                return None

        for broker in likely:
            if await ask(broker):
                return broker
        others = [broker for broker in await self.brokers() if broker not in likely]
        found = next(filter(None, await asyncio.gather(*map(ask, others))), None)
        if found is None and errors:
            raise errors[0]
        return found

    async def unload(self, bundle: str, destination: str) -> None:
        """Unload a bundle, to be placed on a destination at the next lookup of one of its topics.

        Success means that it was unloaded, not where it lands: look a topic up and read the owner back. Brokers
        unload it also when the destination owns it already (modular load manager).

        Args:
            bundle: `tenant/namespace/0x…_0x…`.
            destination: brokerId.

        Raises:
            AdminError: `conflict` when the destination is not active, `bad_range` when the range is stale.
        """
        url_path = path("admin", "v2", "namespaces", *split_bundle(bundle), "unload")
        query = urlencode({"authoritative": "false", "destinationBroker": destination})
        await self._transport.send(Request("PUT", url_path, query, self._connection.unload_timeout_s))


def _texts(answer: Answer) -> dict[str, str]:
    return {key: "" if value is None else str(value) for key, value in answer.mapping().items()}


def _address(url: object) -> str:
    """`host:port` of a URL, or an empty text if it is none."""
    try:
        return address_of(url) if isinstance(url, str) else ""
    except ValueError:
        return ""


def _raise(error: AdminError) -> str:
    raise error
