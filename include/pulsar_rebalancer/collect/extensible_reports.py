"""Get the load report of every broker, using the requests that its load manager supports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from pydantic import JsonValue

from pulsar_rebalancer.collect import load_data
from pulsar_rebalancer.collect.load_data import LOAD, TOP, PublishedLoad, TopicMessage, require_pulsar_client
from pulsar_rebalancer.collect.load_report import BrokerReport, as_float, read_report
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import AdminError, SettingsError
from pulsar_rebalancer.names import is_extensible
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import one_line

_MAX_CONCURRENT_TOPIC_STATS = 4
"""Maximum number of brokers whose topic statistics, which can be large, are in memory at the same time."""

_REPORT_SLACK_S = 60.0


async def read_load_reports(
    admin: PulsarAdmin,
    runtimes: Mapping[str, Mapping[str, str]],
    settings: Settings,
    *,
    now: datetime,
    state_folder: StoragePath | None = None,
    store: bool = True,
) -> dict[str, BrokerReport | AdminError | None]:
    """Return each broker's load report under either load manager, None if it provides none, or the error.

    Each report is judged by the time at which it was read: a broker that does not respond delays the others' reports.

    Args:
        state_folder: where messages from the system topics are stored for the next run; None to use none.
        store: False to store nothing.

    Raises:
        AdminError: the client is missing (`wrong_setting`), or the load manager's system topics cannot be read.
        SettingsError: `contradiction`: the connection uses https but the brokers' service URL no TLS.
    """
    begun, host_interval_s = time.monotonic(), settings.host_usage_interval_minutes * 60

    def clock() -> datetime:
        return now + timedelta(seconds=time.monotonic() - begun)

    def read(broker: str, report: Mapping[str, JsonValue]) -> BrokerReport:
        return read_report(broker, report, collected_at=clock(), host_interval_s=host_interval_s)

    extensible = {
        broker: runtime
        for broker, runtime in runtimes.items()
        if is_extensible(runtime.get("loadManagerClassName", ""))
    }
    reports = await admin.load_reports([broker for broker in runtimes if broker not in extensible], read)
    if extensible:
        published, kept_in = PublishedLoad.from_folder(state_folder), state_folder if store else None
        reports |= await _ExtensibleReportReader(admin, extensible, settings, clock, published, kept_in).reports()
    return reports


@dataclass(frozen=True, slots=True)
class _BrokerMeasurements:
    measured_at: datetime
    metrics: load_data.BrokerMetrics
    stats_by_bundle: dict[str, dict[str, float]]
    broker_version: str


class _ExtensibleReportReader:
    def __init__(
        self,
        admin: PulsarAdmin,
        runtimes: Mapping[str, Mapping[str, str]],
        settings: Settings,
        clock: Callable[[], datetime],
        published_load: PublishedLoad,
        load_folder: StoragePath | None,
    ) -> None:
        self._admin = admin
        self._runtimes = runtimes
        self._settings = settings
        self._clock = clock
        self._published = published_load
        self._kept_in = load_folder
        self._received_now: set[str] = set()
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_TOPIC_STATS)

    async def reports(self) -> dict[str, BrokerReport | AdminError | None]:
        if self._settings.listen_seconds:
            require_pulsar_client()
        asked = dict(zip(self._runtimes, await asyncio.gather(*map(self._try_to_measure, self._runtimes)), strict=True))
        values = {broker: answer for broker, answer in asked.items() if isinstance(answer, _BrokerMeasurements)}
        if values and self._settings.listen_seconds:
            await self._receive_load_data(values)
        failed = {broker: answer for broker, answer in asked.items() if isinstance(answer, AdminError)}
        return failed | {broker: self._make_broker_report(broker, answer) for broker, answer in values.items()}

    async def _try_to_measure(self, broker: str) -> _BrokerMeasurements | AdminError:
        try:
            return await self._measure_broker(broker)
        except AdminError as error:
            return error

    async def _measure_broker(self, broker: str) -> _BrokerMeasurements:
        metrics = await self._admin.metrics(broker)
        at = self._clock()
        other_host = load_data.mismatched_host(metrics, broker)
        if other_host:
            raise AdminError(
                Reason.WRONG_BROKER, f"{broker} answered with metrics of {one_line(other_host, 200)!a}", broker=broker
            )
        async with self._slots:
            # Summed before anything else is awaited: the topics take most of the memory.
            bundles = load_data.bundle_stats(await self._admin.topic_stats(broker))
        if load_data.are_other_brokers_stats(bundles, await self._admin.owned_bundles(broker)):
            raise AdminError(
                Reason.WRONG_BROKER, f"{broker} answered with topics of bundles it does not own", broker=broker
            )
        return _BrokerMeasurements(at, load_data.read_metrics(metrics), bundles, await self._admin.version(broker))

    async def _receive_load_data(self, all_measured: Mapping[str, _BrokerMeasurements]) -> None:
        self._published.keep_only(self._runtimes)
        # Brokers publish top bundles regularly, but load data only after changes.
        missing = {LOAD: {b for b, m in all_measured.items() if not self._is_load_current(b, m)}, TOP: {*all_measured}}

        def handle_message(topic: str, message: TopicMessage) -> bool:
            if message.broker in self._runtimes and self._store_message(topic, message):
                missing[topic].discard(message.broker)
            return not any(missing.values())

        topics = {topic: partial(handle_message, topic) for topic in missing}
        url = await self._service_url()
        admin, seconds = self._admin, self._settings.listen_seconds
        await admin.tokens.get()  # fails here, where an error has its code
        await asyncio.to_thread(load_data.receive_messages, admin.connection, admin.tokens, url, topics, seconds)
        if self._kept_in is not None:
            self._published.write(self._kept_in)

    def _store_message(self, topic: str, message: TopicMessage) -> bool:
        if topic == TOP:
            return self._published.store_top_bundles(message)
        taken = self._published.store_load(message)
        if taken:
            self._received_now.add(message.broker)
        return taken

    async def _service_url(self) -> str:
        connection = self._admin.connection
        url = connection.service_url or await self._admin.bundles.service_url(LOAD)
        if connection.uses_tls and not url.startswith("pulsar+ssl://"):
            raise SettingsError(
                Reason.CONTRADICTION,
                f"the connection uses https, but {url} does not use TLS; set the connection's service_url",
            )
        return url

    def _make_broker_report(self, broker: str, measured: _BrokerMeasurements) -> BrokerReport | None:
        runtime, published = self._runtimes[broker], self._published.load.get(broker, {})
        load = load_data.current_load(measured.metrics, published)
        if load is None and not published:
            return None
        parts = load_data.make_report(
            broker,
            load=published if load is None else load,
            throughput_average=published.get("msgThroughputEMA") if self._is_load_current(broker, measured) else None,
            stats_by_bundle=measured.stats_by_bundle,
            top_bundles=self._top_bundles(broker, measured),
        )
        report = parts | {
            "lastUpdate": published.get("updatedAt") if load is None else measured.measured_at.timestamp() * 1000,
            "startTimestamp": measured.metrics.started_at_ms,
            "brokerVersionString": measured.broker_version,
            "persistentTopicsEnabled": runtime.get("enablePersistentTopics", "true").strip().lower() == "true",
        }
        host_interval_s = self._settings.host_usage_interval_minutes * 60
        return read_report(broker, report, collected_at=measured.measured_at, host_interval_s=host_interval_s)

    def _is_load_current(self, broker: str, measured: _BrokerMeasurements) -> bool:
        if broker in self._received_now:
            return True
        published = self._published.load.get(broker, {})
        updated = as_float(published.get("updatedAt"))
        oldest = self._settings.report_max_interval_minutes * 60 + _REPORT_SLACK_S
        if updated is None or measured.measured_at.timestamp() * 1000 - updated > oldest * 1000:
            return False
        threshold = _numeric_setting(self._runtimes[broker], "loadBalancerReportUpdateThresholdPercentage", 10)
        return load_data.is_load_current(published, measured.stats_by_bundle, threshold)

    def _top_bundles(self, broker: str, measured: _BrokerMeasurements) -> Sequence[str]:
        """Return the last top bundles received from a broker; empty if they are known to be outdated.

        Brokers publish them with their rates (TopBundleLoadDataReporter) and withdraw them when they load or
        unload a bundle.
        """
        top = self._published.top.get(broker)
        oldest = 2 * _numeric_setting(self._runtimes[broker], "statsUpdateFrequencyInSecs", 60) + _REPORT_SLACK_S
        if (
            top is None
            or measured.measured_at.timestamp() * 1000 - top.at_ms > oldest * 1000
            or not set(top.bundles) <= measured.stats_by_bundle.keys()
        ):
            return ()
        return top.bundles


def _numeric_setting(runtime: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(runtime.get(name, default))
    except ValueError:
        return default
