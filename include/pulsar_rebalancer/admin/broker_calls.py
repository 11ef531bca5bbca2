"""Calls about the cluster as a whole: its brokers, their load reports, settings and policies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

from pulsar_rebalancer.admin.connection import address_in
from pulsar_rebalancer.admin.names import path, split_namespace
from pulsar_rebalancer.admin.transport import Request, Transport
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import BALANCER, SHEDDING, is_broker_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_rebalancer.admin.answers import Answer
    from pulsar_rebalancer.admin.connection import AdminConnection


class BrokerCalls:
    """What `PulsarAdmin` asks brokers about themselves, their settings and the cluster's policies.

    Args:
        connection: how the brokers are reached.

    Raises:
        SettingsError: a certificate file of the connection cannot be used.
    """

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self._transport = Transport(connection)
        self._cluster = connection.cluster

    @property
    def connection(self) -> AdminConnection:
        """How the brokers are reached."""
        return self._connection

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
        # Brokers before brokerIds name the leader by its address, which then is the id.
        leader_id = broker if isinstance(broker, str) else address_in(url)
        if not is_broker_id(leader_id):
            raise answer.bad("the answer names no leader of the form host:port")
        return leader_id

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
        return answer.mapping_or_none()

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

    async def metrics(self, broker: str) -> list[dict[str, Any]]:
        """Metrics of the broker itself: objects with `metrics` (name to figure) and `dimensions`."""
        return (await self._get("/admin/v2/broker-stats/metrics", broker=broker, follow=False)).objects()

    async def topic_stats(self, broker: str) -> dict[str, Any]:
        """Statistics of the broker's loaded topics: namespace, hash range, domain, topic.

        Brokers renew them when they compute rates, every `statsUpdateFrequencyInSecs`.
        """
        timeout = self._connection.read_timeout_s
        request = Request("GET", "/admin/v2/broker-stats/topics", "", timeout, follow=False, long=True)
        return (await self._transport.send(request, broker)).mapping()

    async def version(self, broker: str) -> str:
        """Pulsar's version that the broker runs."""
        return (await self._get("/admin/v2/brokers/version", broker=broker, follow=False)).text()

    async def owned_bundles(self, broker: str) -> set[str]:
        """Bundles that the broker owns, with or without loaded topics.

        For the extensible load manager: under the modular one the question may block a broker that is taking bundles
        over (see `PulsarAdmin.owns`).
        """
        url_path = path("admin", "v2", "brokers", await self.cluster_name(), broker, "ownedNamespaces")
        return set((await self._get(url_path, broker=broker)).mapping())

    # settings

    async def runtime_configuration(self, broker: str | None = None) -> dict[str, str]:
        """Effective settings of a broker (of any when None): every value is a text, optionals print as such.

        Raises:
            AdminError: `bad_answer` also when it does not say whether the broker sheds: that must not pass for "off".
        """
        answer = await self._get("/admin/v2/brokers/configuration/runtime", broker=broker or "")
        found = {key: "" if value is None else str(value) for key, value in answer.mapping().items()}
        for name in (BALANCER, SHEDDING):
            if found.get(name, "").strip().lower() not in ("true", "false"):
                raise answer.bad(f"the answer does not say whether {name} is true or false")
        return found

    async def set_dynamic(self, name: str, value: str) -> None:
        """Override a dynamic setting on all brokers.

        Brokers store a value of the wrong type as well, and then ignore it: read the effect back.

        Raises:
            AdminError: `wrong_setting`; the name is unknown or not dynamic.
        """
        await self._write("POST", path("admin", "v2", "brokers", "configuration", name, value), "wrong_setting")

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
            return (await self._get(url_path)).mapping()
        except AdminError as error:
            # An unknown cluster is a 412, which must not pass for "no policies".
            if error.status == 404:
                return {}
            raise

    async def anti_affinity_group(self, namespace: str) -> str:
        """Anti-affinity group of `tenant/namespace`; empty when it is in none."""
        url_path = path("admin", "v2", "namespaces", *split_namespace(namespace), "antiAffinity")
        text = (await self._get(url_path)).text()
        return "" if text == "null" else text
