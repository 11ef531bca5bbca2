"""Bundle and topic requests: owners, bounds, unloads, splits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from pydantic import BaseModel, Field, JsonValue, ValidationError

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_in_bundle, namespace_of, range_of
from pulsar_rebalancer.pulsar.answers import (
    BrokerAnswer,
    admin_error,
    first_line,
    path,
    split_bundle,
    split_namespace,
    split_topic,
)
from pulsar_rebalancer.pulsar.connection import address_or_empty, is_service_url
from pulsar_rebalancer.pulsar.exchange import TOPIC_NAMES_SIZE
from pulsar_rebalancer.pulsar.transport import Transport
from pulsar_rebalancer.reasons import Reason

_MAX_TOPICS_READ = 100
"""Maximum number of scalable topics that are read to find a segment in a bundle."""


class _HashRange(BaseModel):
    start: int = Field(ge=0, le=0xFFFF)
    end: int = Field(ge=0, le=0xFFFF)


class _Segment(BaseModel):
    id: int = Field(alias="segmentId", ge=0)
    keys: _HashRange = Field(alias="hashRange")


class _ScalableLayout(BaseModel):
    segments: dict[str, _Segment]


async def segments_of_bundle(transport: Transport, bundle: str) -> list[str]:
    """Return a scalable topic's segments in the bundle; brokers without such topics are no error."""
    tenant, local, _ = split_bundle(bundle)
    folder = path("admin", "v2", "scalable", tenant, local)
    listed = await _get_if_found(transport, folder)
    for topic in sorted(listed.strings() if listed else ())[:_MAX_TOPICS_READ]:
        answer = await _get_if_found(transport, f"{folder}{path(split_topic(topic)[3])}")
        inside = [name for name in _segment_names(topic, answer) if is_in_bundle(name, bundle)] if answer else []
        if inside:
            return inside
    return []


async def _get_if_found(transport: Transport, url_path: str) -> BrokerAnswer | None:
    try:
        return await transport.get(url_path, size=TOPIC_NAMES_SIZE)
    except AdminError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        return None


def _segment_names(topic: str, answer: BrokerAnswer) -> list[str]:
    try:
        layout = _ScalableLayout.model_validate(answer.mapping())
    except ValidationError:
        raise answer.bad_body("the answer holds no segments") from None
    parent = topic.partition("://")[2]
    return [f"segment://{parent}/{s.keys.start:04x}-{s.keys.end:04x}-{s.id}" for s in layout.segments.values()]


class ClientCounts(NamedTuple):
    producers: int
    consumers: int


def stats_by_topic(stats: Mapping[str, JsonValue], bundle: str) -> dict[str, JsonValue]:
    branch: JsonValue = dict(stats)
    for key in (namespace_of(bundle), range_of(bundle)):
        branch = branch.get(key) if isinstance(branch, dict) else None
    domains = branch.values() if isinstance(branch, dict) else ()
    return {topic: load for domain in domains if isinstance(domain, dict) for topic, load in domain.items()}


def has_clients(topic: JsonValue) -> bool | None:
    """Return whether the statistics of one topic show connected clients; None if they do not say so.

    With `exposePublisherStats=false`, brokers only count producers (PersistentTopic.updateRates).
    """
    producers = topic.get("producerCount") if isinstance(topic, dict) else None
    if isinstance(producers, int) and producers > 0:
        return True
    clients = client_counts(topic)
    return None if clients is None else any(clients)


def client_counts(topic: JsonValue) -> ClientCounts | None:
    # The statistics of a segment call them producers.
    producers = topic.get("publishers", topic.get("producers")) if isinstance(topic, dict) else None
    subscriptions = topic.get("subscriptions") if isinstance(topic, dict) else None
    if not isinstance(producers, list) or not isinstance(subscriptions, dict):
        return None
    consumers = [entry.get("consumers") if isinstance(entry, dict) else None for entry in subscriptions.values()]
    if not all(isinstance(connected, list) for connected in consumers):
        return None
    return ClientCounts(len(producers), sum(len(connected) for connected in consumers if isinstance(connected, list)))


def _stats_path(topic: str) -> str:
    domain, tenant, local, name = split_topic(topic)
    if domain != "segment":
        return path("admin", "v2", domain, tenant, local, name, "stats")
    parent, _, descriptor = name.rpartition("/")
    return path("admin", "v2", "scalable", tenant, local, parent, "segments", descriptor.rpartition("-")[2], "stats")


_RACE_PAUSES_S = (0.1, 0.2, 0.4, 0.8)
"""Seconds to wait before the next request to a broker, while several brokers compete for the bundle."""

_CLIENT_STATS_QUERY = {"getPreciseBacklog": "false", "subscriptionBacklogSize": "false"}
"""Query parameters that make brokers leave out statistics whose computation reads ledgers."""


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The owner of a topic's bundle, as returned by a lookup.

    Attributes:
        broker_service_url: the owner's `pulsar://…` or `pulsar+ssl://…` URL; may be empty. If there are both,
            the TLS URL if the connection uses TLS, else the plain URL.
        addresses: `host:port` of every web address in the response.
    """

    broker_service_url: str
    http_url: str
    addresses: tuple[str, ...]


class BundleAdmin:
    """The bundle and topic requests of the admin REST API (`PulsarAdmin.bundles`).

    Bundle names have the form `tenant/namespace/0x…_0x…`; topic names include the domain. Every method raises
    `AdminError` with a reason code from `pulsar_rebalancer.reasons`.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def topics_of_bundle(self, bundle: str) -> list[str]:
        """Return the full names of a bundle's topics, persistent or not, sorted; each partition counts as a topic.

        The owner lists all persistent topics and the loaded non-persistent ones
        (NamespaceService.getOwnedTopicListForNamespaceBundle). Without an owner, persistent topics are selected
        by hash. If no topic is found, the bundle's segments of scalable topics are returned.
        """
        tenant, local, _ = split_bundle(bundle)
        try:
            topics = sorted(await self.topic_hash_positions(bundle))
        except AdminError as error:
            if not _means_no_owner(error):
                raise
            # Brokers list persistent topics that exist, loaded or not (NamespacesBase.internalGetListOfTopics).
            url_path = path("admin", "v2", "namespaces", tenant, local, "topics")
            listed = (await self._transport.get(url_path, {"mode": "PERSISTENT"}, size=TOPIC_NAMES_SIZE)).strings()
            topics = sorted(topic for topic in listed if is_in_bundle(topic, bundle))
        return topics or await segments_of_bundle(self._transport, bundle)

    async def topic_hash_positions(self, bundle: str, topic: str = "", broker: str = "") -> dict[str, int]:
        """Return the bundle's topics with their hashes (0 … 2**32 - 1), as reported by the bundle's owner.

        Args:
            topic: the only topic to return; empty for all topics of the bundle.
            broker: the owner, which receives the request; if empty, any broker redirects it to the owner.

        Raises:
            AdminError: `range_gone` if the range is stale or the bundle has no owner.
        """
        url_path = path("admin", "v2", "namespaces", *split_bundle(bundle), "topicHashPositions")
        query = {"topics": topic} if topic else {}
        answer = await self._transport.get(
            url_path, query, broker=broker, follow=not broker, on_412=Reason.RANGE_GONE, size=TOPIC_NAMES_SIZE
        )
        positions = answer.mapping().get("topicHashPositions")
        if not isinstance(positions, dict) or not all(type(position) is int for position in positions.values()):
            raise answer.bad_body("the answer holds no topicHashPositions")
        return {topic: position for topic, position in positions.items() if isinstance(position, int)}

    async def lookup(self, topic: str, destination: str = "") -> LookupResult:
        """Look up a topic as clients do. If the topic's bundle has no owner, the lookup assigns one.

        If `destination` is set, a bundle without an owner goes to this broker instead of the leader's choice:
        the leader responds with an authoritative redirect, and the broker that receives the redirected lookup
        becomes the owner (NamespaceService.searchForCandidateBroker).
        """
        answer = await self._transport.get(path("lookup", "v2", "topic", *split_topic(topic)), destination=destination)
        named = {k: v for k, v in answer.mapping().items() if isinstance(v, str) and v}
        urls = [named[key] for key in ("httpUrl", "httpUrlTls") if address_or_empty(named.get(key))]
        services = [named[key] for key in ("brokerUrl", "brokerUrlTls") if key in named]
        if not urls:
            raise answer.bad_body("the answer names no owner")
        if self._transport.connection.uses_tls:
            urls.reverse()
            services.reverse()
        return LookupResult(next(iter(services), ""), urls[0], tuple(address_or_empty(url) for url in urls))

    async def lookup_owner(self, topic: str, destination: str = "") -> str:
        result = await self.lookup(topic, destination)
        ids = {broker.lower(): broker for broker in await self._transport.brokers()}
        for address in result.addresses:
            if address in ids:
                return ids[address]
        what = f"GET {path('lookup', 'v2', 'topic', *split_topic(topic))}"
        detail = f"the owner {' or '.join(result.addresses)} is not one of the cluster's brokers"
        raise admin_error(self._transport.mask, Reason.BAD_ANSWER, what, result.addresses[0], detail)

    async def service_url(self, topic: str) -> str:
        """Return the service URL of a topic's owner: `pulsar://host:port` or `pulsar+ssl://host:port`.

        Clients send their credentials to this URL, so, if the connection has any, the host must be a broker's.
        Raises AdminError (`foreign_address`) otherwise, or if there is no URL.
        """
        result = await self.lookup(topic)
        url = result.broker_service_url
        what = f"GET {path('lookup', 'v2', 'topic', *split_topic(topic))}"
        address = address_or_empty(url)  # empty for a list of hosts: a broker names only itself
        if not (address and is_service_url(url)):
            detail = f"the owner's service URL is invalid: {first_line(ascii(url))}"
            raise admin_error(self._transport.mask, Reason.FOREIGN_ADDRESS, what, result.addresses[0], detail)
        await self._transport.brokers()
        connection = self._transport.connection
        credentials = connection.has_token or connection.client_cert_file is not None
        if credentials and not self._transport.addresses.knows_host(address):
            detail = f"no broker has the host of the owner's service URL {url}; nothing was sent there"
            raise admin_error(self._transport.mask, Reason.FOREIGN_ADDRESS, what, result.addresses[0], detail)
        return url

    async def is_owner(self, broker: str, bundle: str) -> bool:
        """Ask a broker whether it owns a bundle, and return its answer. The request never assigns the bundle.

        `owned_bundles` must not be requested while bundles are being placed: under the modular load manager, it blocks
        the thread that completes takeovers (NamespaceService.getOwnedNameSpacesStatusAsync), and the broker can hang
        forever. This method requests hash positions, which only the owner answers
        (PulsarWebResource.validateBundleOwnershipAsync, read-only). A broker that has lost the bundle to another broker
        responds with 500; the request is then repeated.

        Raises AdminError `unreachable`, `timeout`, or `range_gone` if the range is stale.
        """
        tenant, local, hash_range = split_bundle(bundle)
        no_topic = f"persistent://{tenant}/{local}/{hash_range}"  # asking for one topic keeps the answer short
        for pause in (*_RACE_PAUSES_S, None):
            try:
                await self.topic_hash_positions(bundle, no_topic, broker)
                break
            except AdminError as error:
                if error.status == HTTPStatus.TEMPORARY_REDIRECT or _means_no_owner(error):
                    return False
                if error.reason != Reason.SERVER_ERROR or pause is None:
                    raise
                await asyncio.sleep(pause)
        return True

    async def owner(self, bundle: str, likely_owners: Sequence[str] = ()) -> str | None:
        """Query the brokers, `likely_owners` first, for a bundle's owner; None if it has none until the next lookup.

        Raises AdminError if no broker says that it owns the bundle, and at least one did not respond.
        """
        split_bundle(bundle)
        errors: list[AdminError] = []

        async def ask(broker: str) -> str | None:
            try:
                return broker if await self.is_owner(broker, bundle) else None
            except AdminError as error:
                errors.append(error)
                return None

        for broker in likely_owners:
            if await ask(broker):
                return broker
        others = [broker for broker in dict.fromkeys(await self._transport.brokers()) if broker not in likely_owners]
        owner = next(filter(None, await asyncio.gather(*map(ask, others))), None)
        if owner is None and errors:
            raise errors[0]
        return owner

    async def count_clients(self, topic: str, broker: str) -> ClientCounts:
        """Return the number of clients currently connected to a topic, as reported by the topic's owner.

        Use this only for topics that recently had clients: the owner loads a persistent topic
        (PersistentTopicsBase.internalGetStatsAsync), and later deletes a loaded topic that nobody uses.
        `broker` receives the request, and redirects it if it is not the owner.
        """
        answer = await self._transport.get(_stats_path(topic), _CLIENT_STATS_QUERY, broker=broker)
        clients = client_counts(answer.mapping())
        if clients is None:
            raise answer.bad_body("the answer does not say which producers and consumers are connected")
        return clients

    async def unload(self, bundle: str, destination: str) -> None:
        """Unload a bundle; the next lookup of one of its topics then places the bundle on the destination.

        Success does not prove that the bundle is there: look up a topic, then call `owner`. The modular load
        manager unloads a bundle even if the destination already owns it. Raises AdminError `destination_gone`
        if the destination is not active, `range_gone` if the range is stale.
        """
        url_path = path("admin", "v2", "namespaces", *split_bundle(bundle), "unload")
        query = {"authoritative": "false", "destinationBroker": destination}
        await self._transport.put(url_path, query, timeout_s=self._transport.connection.unload_timeout_s)

    async def boundaries(self, namespace: str) -> list[int]:
        """Return the bounds of a namespace's bundles, in ascending order; n bundles have n + 1 bounds."""
        answer = await self._transport.get(path("admin", "v2", "namespaces", *split_namespace(namespace), "bundles"))
        boundaries = answer.mapping().get("boundaries")
        try:
            bounds = [int(bound, 16) for bound in boundaries]  # type: ignore[arg-type, union-attr]
        except (TypeError, ValueError):
            bounds = []
        if len(bounds) < 2 or bounds != sorted(set(bounds)):
            raise answer.bad_body("the answer has no list of ascending bundle boundaries")
        return bounds

    async def split(self, bundle: str, algorithm: str, positions: Sequence[int] = (), *, unload: bool = False) -> None:
        """Split a bundle permanently: Pulsar cannot merge bundles.

        Success does not prove that the bundle was split: check the namespace's bounds. Under the modular load
        manager, the broker that receives the request becomes the owner if there was none.

        Args:
            algorithm: Pulsar's name; `flow_or_qps_equally_divide` works only if it is the brokers' default.
            positions: hashes at which `specified_positions_divide` cuts; other algorithms ignore them.
            unload: True to unload the new bundles afterwards.

        Raises:
            AdminError: `not_split` if the range is stale or the broker does not support the algorithm.
        """
        await self._transport.put(
            path("admin", "v2", "namespaces", *split_bundle(bundle), "split"),
            {"authoritative": "false", "unload": str(unload).lower(), "splitAlgorithmName": algorithm},
            timeout_s=self._transport.connection.unload_timeout_s,
            on_412=Reason.NOT_SPLIT,
            body=json.dumps(list(positions)).encode() if positions else b"",
        )


def _means_no_owner(error: AdminError) -> bool:
    """Return whether a bundle has no owner (PulsarWebResource.validateBundleOwnershipAsync)."""
    return error.status == HTTPStatus.PRECONDITION_FAILED and "Failed to find ownership" in error.message
