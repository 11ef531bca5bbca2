"""A report of every broker, asked of each as its load manager answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pulsar_rebalancer.errors import AdminError, SettingsError
from pulsar_rebalancer.extensible import load_data
from pulsar_rebalancer.extensible.heard import Heard
from pulsar_rebalancer.extensible.listening import LOAD, TOP, listen, require_client
from pulsar_rebalancer.load_report import figure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.admin import AdminConnection
    from pulsar_rebalancer.extensible.heard import Message
    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.storage import Folder

Report = dict[str, Any]
Answer = Report | AdminError | None

_TOPIC_STATS_AT_ONCE = 4
"""Statistics of single topics are long: few brokers' are held at the same time."""

_SLACK_S = 60.0


class ReportCalls(Protocol):
    """What reports need of the admin client; every call raises `AdminError`."""

    @property
    def connection(self) -> AdminConnection:
        """How the brokers are reached."""

    async def load_reports(self, brokers: Iterable[str]) -> dict[str, Answer]:
        """Broker to its load report, to None for an empty one, or to the error of asking it."""

    async def metrics(self, broker: str) -> list[dict[str, Any]]:
        """Metrics of the broker itself."""

    async def topic_stats(self, broker: str) -> dict[str, Any]:
        """Statistics of the broker's loaded topics."""

    async def version(self, broker: str) -> str:
        """Pulsar's version that the broker runs."""

    async def owned_bundles(self, broker: str) -> set[str]:
        """Bundles that the broker owns, with or without loaded topics."""

    async def service_url(self, topic: str) -> str:
        """Where Pulsar's clients reach the broker that serves a topic."""


def is_extensible(runtime: Mapping[str, str]) -> bool:
    """Whether a broker with this configuration runs the extensible load manager."""
    return runtime.get("loadManagerClassName", "").strip().endswith(".ExtensibleLoadManagerImpl")


async def load_reports(
    admin: ReportCalls,
    runtimes: Mapping[str, Mapping[str, str]],
    settings: Settings,
    *,
    now: datetime,
    kept_in: Folder | None = None,
) -> dict[str, Answer]:
    """Reports of the brokers, each asked as its load manager answers.

    Args:
        admin: the admin client.
        runtimes: the brokers to ask, with their configuration.
        settings: effective settings.
        now: time of the sample.
        kept_in: the cluster's state folder, where what brokers published is kept between runs; None keeps nothing.

    Returns:
        Broker to its report, to None when it gives none, or to the error of asking it.

    Raises:
        AdminError: `client_missing`, or the system topics of the extensible load manager cannot be read.
        SettingsError: `contradiction`; the brokers offer no TLS to a token that came over https.
    """
    extensible = {broker: runtime for broker, runtime in runtimes.items() if is_extensible(runtime)}
    reports = await admin.load_reports([broker for broker in runtimes if broker not in extensible])
    if extensible:
        reports |= await _Extensible(admin, extensible, settings, now, kept_in).reports()
    return reports


@dataclass(frozen=True, slots=True)
class _Told:
    """What a broker itself said when it was asked."""

    metrics: list[dict[str, Any]]
    bundles: dict[str, dict[str, Any]]
    version: str


class _Extensible:
    """The brokers under the extensible load manager."""

    def __init__(
        self,
        admin: ReportCalls,
        runtimes: Mapping[str, Mapping[str, str]],
        settings: Settings,
        now: datetime,
        kept_in: Folder | None,
    ) -> None:
        self._admin = admin
        self._runtimes = runtimes
        self._settings = settings
        self._now_ms = now.timestamp() * 1000
        self._kept_in = kept_in
        self._heard = Heard.read(kept_in)
        self._heard_now: set[str] = set()
        self._slots = asyncio.Semaphore(_TOPIC_STATS_AT_ONCE)

    async def reports(self) -> dict[str, Answer]:
        """A report of each."""
        if self._settings.listen_seconds:
            require_client()
        asked = dict(zip(self._runtimes, await asyncio.gather(*map(self._ask, self._runtimes)), strict=True))
        told = {broker: answer for broker, answer in asked.items() if isinstance(answer, _Told)}
        if told and self._settings.listen_seconds:
            await self._listen(told)
        failed = {broker: answer for broker, answer in asked.items() if isinstance(answer, AdminError)}
        return failed | {broker: self._report(broker, answer) for broker, answer in told.items()}

    async def _ask(self, broker: str) -> _Told | AdminError:
        try:
            return await self._told(broker)
        except AdminError as error:
            return error

    async def _told(self, broker: str) -> _Told:
        """What the broker says, one request after the other: it is the brokers that are asked side by side."""
        metrics = await self._admin.metrics(broker)
        other = load_data.other_host(metrics, broker)
        if other:
            raise AdminError("wrong_broker", f"{broker} answered with the metrics of {other[:200]!a}", broker=broker)
        async with self._slots:
            bundles = load_data.bundle_stats(await self._admin.topic_stats(broker))
        if load_data.are_of_another(bundles, await self._admin.owned_bundles(broker)):
            raise AdminError("wrong_broker", f"{broker} answered with topics of bundles it does not own", broker=broker)
        return _Told(metrics, bundles, await self._admin.version(broker))

    async def _listen(self, told: Mapping[str, _Told]) -> None:
        """Hear what brokers publish, until nothing is missing or the time is over, and keep it."""
        heard = self._heard
        heard.keep_only(self._runtimes)
        # Top bundles are published all the time, load data after changes alone.
        missing = {LOAD: {broker for broker in told if not self._is_current(broker, told[broker])}, TOP: set(told)}

        def take(topic: str, message: Message) -> bool:
            if message.broker in self._runtimes:
                taken = heard.take_load(message) if topic == LOAD else heard.take_top(message)
                if taken:
                    missing[topic].discard(message.broker)
                    self._heard_now.update({message.broker} if topic == LOAD else ())
            return not any(missing.values())

        topics = {topic: partial(take, topic) for topic in missing}
        url = await self._service_url()
        await asyncio.to_thread(listen, self._admin.connection, url, topics, self._settings.listen_seconds)
        heard.write(self._kept_in)

    async def _service_url(self) -> str:
        connection = self._admin.connection
        url = connection.service_url or await self._admin.service_url(LOAD)
        if connection.tls and not url.startswith("pulsar+ssl://"):
            raise SettingsError("contradiction", f"https, but {url} is without TLS; set the connection's service_url")
        return url

    def _report(self, broker: str, told: _Told) -> Report | None:
        runtime, published = self._runtimes[broker], self._heard.load.get(broker, {})
        load = load_data.load_now(told.metrics, published)
        if load is None and not published:
            return None
        parts = load_data.report(
            broker,
            load=published if load is None else load,
            throughput_average=published.get("msgThroughputEMA") if self._is_current(broker, told) else None,
            stats=told.bundles,
            top=self._top(broker, told),
        )
        return parts | {
            "lastUpdate": published.get("updatedAt") if load is None else self._now_ms,
            "startTimestamp": load_data.started_at(told.metrics),
            "brokerVersionString": told.version,
            "persistentTopicsEnabled": runtime.get("enablePersistentTopics", "true").strip().lower() == "true",
        }

    def _is_current(self, broker: str, told: _Told) -> bool:
        """Whether the load data heard last is that published last, as far as can be told."""
        if broker in self._heard_now:
            return True
        published = self._heard.load.get(broker, {})
        updated = figure(published.get("updatedAt"))
        oldest = self._settings.report_max_interval_minutes * 60 + _SLACK_S
        if updated is None or self._now_ms - updated > oldest * 1000:
            return False
        threshold = _number(self._runtimes[broker], "loadBalancerReportUpdateThresholdPercentage", 10)
        return load_data.is_current(published, told.bundles, threshold)

    def _top(self, broker: str, told: _Told) -> Sequence[str]:
        """The top bundles heard last, unless others must have been published since.

        Brokers publish them whenever they compute rates (TopBundleLoadDataReporter), and take them back when a bundle
        comes or goes.
        """
        top = self._heard.top.get(broker)
        oldest = 2 * _number(self._runtimes[broker], "statsUpdateFrequencyInSecs", 60) + _SLACK_S
        if top is None or self._now_ms - top.at_ms > oldest * 1000 or not set(top.bundles) <= told.bundles.keys():
            return ()
        return top.bundles


def _number(runtime: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(runtime.get(name, default))
    except ValueError:
        return default
