"""Ask about bundles and their topics, and unload."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from pulsar_rebalancer.admin.answers import failure, first_line
from pulsar_rebalancer.admin.connection import address_in, is_service_url
from pulsar_rebalancer.admin.exchange import TOPIC_NAMES
from pulsar_rebalancer.admin.url_paths import path, split_bundle, split_namespace, split_topic
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_in_bundle
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.admin.transport import Transport

_RACE_PAUSES_S = (0.1, 0.2, 0.4, 0.8)
"""Between asking again for an owner while brokers race for the bundle."""


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The owner of a topic's bundle, as a lookup names it.

    Attributes:
        broker_service_url: `pulsar://…` or `pulsar+ssl://…`; may be empty. Where the broker has both, the one that
            goes with the scheme of the connection.
        http_url: the owner's web service, `http://…` or `https://…`.
        addresses: `host:port` of every web address in the answer.
    """

    broker_service_url: str
    http_url: str
    addresses: tuple[str, ...]


class BundleAdmin:
    """The calls of one cluster's admin REST API about bundles and topics: `PulsarAdmin.bundles`.

    Every method raises `AdminError` with a reason code of `pulsar_rebalancer.reasons`.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def topics_of_bundle(self, bundle: str) -> list[str]:
        """Return the full names of a bundle's topics of both domains, sorted, partitions one by one.

        The owner lists its loaded non-persistent topics and the persistent ones that exist
        (NamespaceService.getOwnedTopicListForNamespaceBundle). While nobody owns the bundle only its persistent
        topics can be told, by their hash.
        """
        tenant, local, _ = split_bundle(bundle)
        try:
            return sorted(await self.topic_hash_positions(bundle))
        except AdminError as error:
            if not _says_unowned(error):
                raise
        # Brokers list persistent topics that exist, loaded or not (NamespacesBase.internalGetListOfTopics).
        url_path = path("admin", "v2", "namespaces", tenant, local, "topics")
        persistent = (await self._transport.get(url_path, {"mode": "PERSISTENT"}, size=TOPIC_NAMES)).strings()
        return sorted(topic for topic in persistent if is_in_bundle(topic, bundle))

    async def topic_hash_positions(self, bundle: str, topic: str = "", broker: str = "") -> dict[str, int]:
        """Return topics with their hash (0 … 2**32 - 1), asked of the bundle's owner.

        Args:
            bundle: `tenant/namespace/0x…_0x…`.
            topic: full name of the one to ask for; all of the bundle when empty.
            broker: who is asked and must be the owner itself; when empty, the one that any broker redirects to.

        Raises:
            AdminError: `bad_range` when the range is stale, and while nobody owns the bundle.
        """
        url_path = path("admin", "v2", "namespaces", *split_bundle(bundle), "topicHashPositions")
        query = {"topics": topic} if topic else {}
        answer = await self._transport.get(
            url_path, query, broker=broker, follow=not broker, on_412=Reason.BAD_RANGE, size=TOPIC_NAMES
        )
        found = answer.mapping().get("topicHashPositions")
        if not isinstance(found, dict) or not all(type(position) is int for position in found.values()):
            raise answer.bad("the answer holds no topicHashPositions")
        return {topic: position for topic, position in found.items() if isinstance(position, int)}

    async def lookup(self, topic: str, destination: str = "") -> LookupResult:
        """Look a topic up as clients do: a bundle that nobody owns gets its owner by this.

        Args:
            topic: full name, `persistent://tenant/namespace/topic` or `non-persistent://…`.
            destination: brokerId that gets a bundle without owner, whomever the leader chooses. A broker takes the
                bundle when it is asked authoritatively, as after the leader's choice
                (NamespaceService.searchForCandidateBroker); one that has an owner keeps it.
        """
        answer = await self._transport.get(path("lookup", "v2", "topic", *split_topic(topic)), chosen=destination)
        found = {k: v for k, v in answer.mapping().items() if isinstance(v, str) and v}
        urls = [found[key] for key in ("httpUrl", "httpUrlTls") if address_in(found.get(key))]
        services = [found[key] for key in ("brokerUrl", "brokerUrlTls") if key in found]
        if not urls:
            raise answer.bad("the answer names no owner")
        if self._transport.connection.tls:
            urls.reverse()
            services.reverse()
        return LookupResult(next(iter(services), ""), urls[0], tuple(address_in(url) for url in urls))

    async def lookup_owner(self, topic: str, destination: str = "") -> str:
        """Return the brokerId of the owner that a lookup names; see `lookup`."""
        result = await self.lookup(topic, destination)
        ids = {broker.lower(): broker for broker in await self._transport.brokers()}
        for address in result.addresses:
            if address in ids:
                return ids[address]
        what = f"GET {path('lookup', 'v2', 'topic', *split_topic(topic))}"
        detail = f"the owner {' or '.join(result.addresses)} is none of the cluster's brokers"
        raise failure(self._transport.mask, Reason.BAD_ANSWER, what, result.addresses[0], detail)

    async def service_url(self, topic: str) -> str:
        """Return where Pulsar's own clients reach a topic's owner: `pulsar://…` or `pulsar+ssl://host:port`.

        Clients send their credentials there, so the host must be one of the cluster's if there are any.

        Raises:
            AdminError: `foreign_service_url`; the lookup names no such address, or a host that no broker has.
        """
        result = await self.lookup(topic)
        url = result.broker_service_url
        what = f"GET {path('lookup', 'v2', 'topic', *split_topic(topic))}"
        address = address_in(url)  # of one host: a broker speaks of itself
        if not (address and is_service_url(url)):
            detail = f"the owner's service URL is {first_line(ascii(url))}"
            raise failure(self._transport.mask, Reason.FOREIGN_SERVICE_URL, what, result.addresses[0], detail)
        await self._transport.brokers()
        if self._transport.connection.has_credentials and not self._transport.addresses.knows_host(address):
            detail = f"the owner's service URL is {url}, a host of no broker; nothing was sent there"
            raise failure(self._transport.mask, Reason.FOREIGN_SERVICE_URL, what, result.addresses[0], detail)
        return url

    async def owns(self, broker: str, bundle: str) -> bool:
        """Return whether the broker itself says that it owns the bundle; asking gives the bundle to nobody.

        A broker's list of its bundles (`owned_bundles`) would tell it as well, but must not be asked for while bundles
        are placed. The modular load manager waits there for the bundles that the broker is taking over, one after the
        other, on the very thread that completes them (NamespaceService.getOwnedNameSpacesStatusAsync): one that is
        taken over at the wrong moment blocks the broker for ever. The topics' positions are answered by the owner
        alone, others redirect to it (PulsarWebResource.validateBundleOwnershipAsync, read-only). A broker that waited
        for a bundle which another one got first answers 500, and is asked again.

        Args:
            broker: brokerId.
            bundle: `tenant/namespace/0x…_0x…`.

        Raises:
            AdminError: `unreachable`, `timeout`: the broker cannot be asked. `bad_range`: the range is stale.
        """
        tenant, local, hash_range = split_bundle(bundle)
        no_topic = f"persistent://{tenant}/{local}/{hash_range}"  # a name to ask for keeps the answer short
        for pause in (*_RACE_PAUSES_S, None):
            try:
                await self.topic_hash_positions(bundle, no_topic, broker)
                break
            except AdminError as error:
                if error.status == HTTPStatus.TEMPORARY_REDIRECT or _says_unowned(error):
                    return False
                if error.reason != Reason.SERVER_ERROR or pause is None:
                    raise
                await asyncio.sleep(pause)
        return True

    async def owner(self, bundle: str, likely: Sequence[str] = ()) -> str | None:
        """Return the brokerId of the bundle's owner as the brokers themselves say; None while nobody owns it.

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
                return broker if await self.owns(broker, bundle) else None
            except AdminError as error:
                errors.append(error)
                return None

        for broker in likely:
            if await ask(broker):
                return broker
        others = [broker for broker in dict.fromkeys(await self._transport.brokers()) if broker not in likely]
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
        query = {"authoritative": "false", "destinationBroker": destination}
        await self._transport.write("PUT", url_path, query, timeout_s=self._transport.connection.unload_timeout_s)

    async def bounds(self, namespace: str) -> list[int]:
        """Return the bounds of a namespace's bundles, ascending: one more than it has bundles.

        Args:
            namespace: `tenant/namespace`.
        """
        answer = await self._transport.get(path("admin", "v2", "namespaces", *split_namespace(namespace), "bundles"))
        found = answer.mapping().get("boundaries")
        try:
            bounds = [int(bound, 16) for bound in found]  # type: ignore[arg-type, union-attr]
        except (TypeError, ValueError):
            bounds = []
        if len(bounds) < 2 or bounds != sorted(set(bounds)):
            raise answer.bad("the answer holds no ascending boundaries")
        return bounds

    async def split(self, bundle: str, algorithm: str, positions: Sequence[int] = (), *, unload: bool = False) -> None:
        """Split a bundle for good: Pulsar cannot merge bundles.

        Success does not mean that anything was split: read the namespace's bounds. The broker that is called becomes
        the owner of the parts of a bundle that nobody owns (modular load manager).

        Args:
            bundle: `tenant/namespace/0x…_0x…`.
            algorithm: Pulsar's name of it. Brokers fail at `flow_or_qps_equally_divide` unless it is their default.
            positions: for `specified_positions_divide`; others ignore them.
            unload: whether the parts are unloaded afterwards.

        Raises:
            AdminError: `split_refused` when the range is stale, or the algorithm is none of the broker's.
        """
        await self._transport.write(
            "PUT",
            path("admin", "v2", "namespaces", *split_bundle(bundle), "split"),
            {"authoritative": "false", "unload": str(unload).lower(), "splitAlgorithmName": algorithm},
            timeout_s=self._transport.connection.unload_timeout_s,
            on_412=Reason.SPLIT_REFUSED,
            body=json.dumps(list(positions)).encode() if positions else b"",
        )


def _says_unowned(error: AdminError) -> bool:
    """Return whether nobody owns the bundle that was asked for (PulsarWebResource.validateBundleOwnershipAsync)."""
    return error.status == HTTPStatus.PRECONDITION_FAILED and "Failed to find ownership" in error.message
