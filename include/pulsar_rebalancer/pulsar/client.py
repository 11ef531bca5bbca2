"""Cluster, broker, settings and policy requests; bundle and topic requests are in `bundle_calls.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Self, TypeVar

from pydantic import JsonValue

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import BALANCER_SETTING, SHEDDING_SETTING, SPLITTING_SETTING, is_broker_id
from pulsar_rebalancer.pulsar.answers import first_line, path, split_namespace
from pulsar_rebalancer.pulsar.bundle_calls import BundleAdmin
from pulsar_rebalancer.pulsar.connection import AdminConnection, address_or_empty
from pulsar_rebalancer.pulsar.exchange import TOPIC_NAMES_SIZE, TOPIC_STATS_SIZE
from pulsar_rebalancer.pulsar.transport import Transport
from pulsar_rebalancer.reasons import Reason

_Read = TypeVar("_Read")


class PulsarAdmin:
    """A client for one cluster's admin REST API; an async context manager.

    Every method raises `AdminError` with a reason code from `pulsar_rebalancer.reasons`; the constructor
    raises `SettingsError` if a certificate file cannot be used.
    """

    def __init__(self, connection: AdminConnection) -> None:
        self.connection = connection
        self._transport = Transport(connection)
        self.tokens = self._transport.tokens
        self.bundles = BundleAdmin(self._transport)
        self._cluster = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    # the cluster

    async def brokers(self) -> list[str]:
        return await self._transport.brokers()

    def set_brokers(self, brokers: Iterable[str]) -> None:
        """Store the cluster's brokerIds. The client sends requests to these brokers if no seed answers."""
        self._transport.set_brokers(brokers)

    async def leader(self) -> str:
        """Return the leader's brokerId; empty if there is no leader."""
        try:
            answer = await self._transport.get("/admin/v2/brokers/leaderBroker")
        except AdminError as error:
            if error.reason == Reason.NOT_FOUND:
                return ""
            raise
        leader = answer.mapping()
        broker, url = leader.get("brokerId"), leader.get("serviceUrl")
        # Older brokers have no brokerIds and name the leader by its address, which then serves as its id.
        leader_id = broker if isinstance(broker, str) else address_or_empty(url)
        if not is_broker_id(leader_id):
            raise answer.bad_body("the answer names no leader of the form host:port")
        return leader_id

    async def cluster_name(self) -> str:
        if not self._cluster:
            # Geo-replicated instances list every cluster; only the configuration says which one this is.
            answer = await self._transport.get("/admin/v2/brokers/configuration/runtime")
            name = answer.mapping().get("clusterName")
            if not isinstance(name, str) or not name:
                raise answer.bad_body("the answer names no cluster")
            self._cluster = name
        return self._cluster

    # brokers

    async def load_report(self, broker: str) -> dict[str, JsonValue] | None:
        """Return LocalBrokerData; None if empty (NoopLoadManager). Redirects are rejected."""
        answer = await self._transport.get("/admin/v2/broker-stats/load-report", broker=broker, follow=False)
        return answer.mapping_or_none()

    async def load_reports(
        self, brokers: Iterable[str], read: Callable[[str, dict[str, JsonValue]], _Read]
    ) -> dict[str, _Read | AdminError | None]:
        """Fetch many brokers' load reports, at most `concurrency` at once, and return the results of `read`.

        A parsed report needs much more memory than its JSON, so `read` reduces each one before the next is
        parsed; it may raise `AdminError`. An empty report gives None; an error is returned.
        """

        async def ask(broker: str) -> _Read | AdminError | None:
            try:
                report = await self.load_report(broker)
                return None if report is None else read(broker, report)
            except AdminError as error:
                return error

        asked = list(dict.fromkeys(brokers))
        return dict(zip(asked, await asyncio.gather(*map(ask, asked)), strict=True))

    async def metrics(self, broker: str) -> list[dict[str, JsonValue]]:
        """Return the broker's own metrics: objects with `dimensions` and `metrics` (values by name)."""
        url_path = "/admin/v2/broker-stats/metrics"  # includes every loaded namespace
        return (await self._transport.get(url_path, broker=broker, follow=False, size=TOPIC_NAMES_SIZE)).objects()

    async def topic_stats(self, broker: str, size: int = TOPIC_STATS_SIZE) -> dict[str, JsonValue]:
        """Return statistics for the broker's loaded topics, nested by namespace, hash range, domain and topic.

        Brokers update them every `statsUpdateFrequencyInSecs`. `size` is a factor for `max_answer_bytes`; a
        longer response raises `bad_answer`.
        """
        url_path = "/admin/v2/broker-stats/topics"
        return (await self._transport.get(url_path, broker=broker, follow=False, size=size)).mapping()

    async def version(self, broker: str) -> str:
        return (await self._transport.get("/admin/v2/brokers/version", broker=broker, follow=False)).text()

    async def reported_bundles(self, broker: str) -> set[str]:
        """Return a broker's bundles; under the modular load manager, those of its statistics (see `owned_bundles`)."""
        try:
            report = await self.load_report(broker) or {}
        except AdminError as error:
            if error.reason is not Reason.NO_LOAD_REPORT:
                raise
            return await self.owned_bundles(broker)
        stats = report.get("lastStats")
        return set(stats) if isinstance(stats, dict) else set()

    async def owned_bundles(self, broker: str) -> set[str]:
        """Return the owned bundles; for the extensible load manager only (see `BundleAdmin.is_owner`)."""
        url_path = path("admin", "v2", "brokers", await self.cluster_name(), broker, "ownedNamespaces")
        return set((await self._transport.get(url_path, broker=broker)).mapping())

    # settings

    async def runtime_configuration(self, broker: str | None = None) -> dict[str, str]:
        """Return the effective settings, as strings, of a broker, or of any broker if `broker` is None.

        Raises AdminError (`bad_answer`), also if the shedding setting is missing: that does not mean "off".
        """
        answer = await self._transport.get("/admin/v2/brokers/configuration/runtime", broker=broker or "")
        values = answer.mapping()
        if nested := [name for name, value in values.items() if isinstance(value, list | dict)]:
            raise answer.bad_body(f"the value of {first_line(ascii(nested[0]))} is not text")
        texts = {name: "" if value is None else str(value) for name, value in values.items()}
        for name in (BALANCER_SETTING, SHEDDING_SETTING):
            if texts.get(name, "").strip().lower() not in ("true", "false"):
                raise answer.bad_body(f"the answer does not say whether {name} is true or false")
        return texts

    # policies

    async def isolation_policies(self, cluster: str) -> dict[str, JsonValue]:
        """Return the namespace isolation policies, by name; empty if none were ever set (404)."""
        return await self._get_or_empty(path("admin", "v2", "clusters", cluster, "namespaceIsolationPolicies"))

    async def failure_domains(self, cluster: str) -> dict[str, JsonValue]:
        """Return the failure domains, by name, each as `{"brokers": […]}`; empty if there are none."""
        return await self._get_or_empty(path("admin", "v2", "clusters", cluster, "failureDomains"))

    async def _get_or_empty(self, url_path: str) -> dict[str, JsonValue]:
        try:
            return (await self._transport.get(url_path)).mapping()
        except AdminError as error:
            # An unknown cluster is a 412, which must not pass for "no policies".
            if error.status == 404:
                return {}
            raise

    async def anti_affinity_group(self, namespace: str, broker: str = "") -> str:
        """Return the anti-affinity group of `tenant/namespace`; empty without one."""
        url_path = path("admin", "v2", "namespaces", *split_namespace(namespace), "antiAffinity")
        text = (await self._transport.get(url_path, broker=broker)).text()
        return "" if text == "null" else text


def shedding_is_on(runtime: Mapping[str, str]) -> bool:
    """Return whether a broker with this configuration would shed bundles if it were the leader."""
    return all(runtime[name].strip().lower() == "true" for name in (BALANCER_SETTING, SHEDDING_SETTING))


def splitting_is_on(runtime: Mapping[str, str]) -> bool:
    return runtime.get(SPLITTING_SETTING, "").strip().lower() == "true"


async def splitting_brokers(admin: PulsarAdmin) -> list[str]:
    """Return the brokers that split automatically and can be read. Raises AdminError without a list."""

    async def splits_bundles(broker: str) -> bool:
        try:
            return splitting_is_on(await admin.runtime_configuration(broker))
        except AdminError:
            return False

    brokers = sorted(set(await admin.brokers()))
    found = await asyncio.gather(*map(splits_bundles, brokers))
    return [broker for broker, is_on in zip(brokers, found, strict=True) if is_on]
