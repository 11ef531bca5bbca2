"""Load data under the extensible load manager: brokers publish it on system topics and give no load reports."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, JsonValue

from pulsar_rebalancer.collect.load_report import as_float, as_int
from pulsar_rebalancer.errors import AdminError, SnapshotError
from pulsar_rebalancer.pulsar.connection import AdminConnection
from pulsar_rebalancer.pulsar.tokens import Tokens
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import LOAD_DATA_FILE, VersionedDocument
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import parse_json

RATE_FIELDS = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")

_USAGE_METRICS = {
    "cpu": "brk_lb_cpu_usage",
    "memory": "brk_lb_memory_usage",
    "directMemory": "brk_lb_directMemory_usage",
    "bandwidthIn": "brk_lb_bandwidth_in_usage",
    "bandwidthOut": "brk_lb_bandwidth_out_usage",
}
_PUBLISHED_FIELDS = (*RATE_FIELDS, "weightedMaxEMA", "msgThroughputEMA", "updatedAt")
_SUMMED_FIELDS = {"numTopics": "topics", "numProducers": "producerCount", "numConsumers": "consumerCount"}


def bundle_stats(topics: Mapping[str, JsonValue]) -> dict[str, dict[str, float]]:
    """Return statistics by bundle (NamespaceBundleStats), summed over its loaded topics, without cache sizes.

    `topics` is the response to `broker-stats/topics`, nested by namespace, hash range, domain and topic.
    """
    stats = {}
    for namespace, ranges in topics.items():
        for hash_range, domains in _as_mapping(ranges).items():
            loaded = [topic for domain in _as_mapping(domains).values() for topic in _as_mapping(domain).values()]
            if loaded:
                stats[f"{namespace}/{hash_range}"] = _sum_by_name([_as_mapping(topic) for topic in loaded])
    return stats


def _sum_by_name(topics: Sequence[Mapping[str, JsonValue]]) -> dict[str, float]:
    total: dict[str, float] = dict.fromkeys(RATE_FIELDS, 0.0) | {
        "topics": len(topics),
        "producerCount": 0,
        "consumerCount": 0,
    }
    for topic in topics:
        for name in RATE_FIELDS:
            rate = as_float(topic.get(name))
            total[name] += math.nan if rate is None else rate
        # Brokers with `exposePublisherStats=false` count producers without listing them (PersistentTopic.updateRates).
        total["producerCount"] += max(_length_or_zero(topic.get("publishers")), as_int(topic.get("producerCount")) or 0)
        subscriptions = _as_mapping(topic.get("subscriptions")).values()
        total["consumerCount"] += sum(_length_or_zero(_as_mapping(entry).get("consumers")) for entry in subscriptions)
    return total


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """A broker's load metrics.

    Usage is in percent, by the resource's name in LocalBrokerData; the average (`weightedMaxEMA`) is 1 at 100
    percent; the start is in ms since 1970.
    """

    usage_percents: Mapping[str, float | None] | None
    load_average: float | None
    started_at_ms: float | None


def read_metrics(metrics: Sequence[Mapping[str, JsonValue]]) -> BrokerMetrics:
    """Parse a response to `broker-stats/metrics`, computed for each request (BrokerLoadData.toMetrics)."""
    percents = _find(metrics, "brk_lb_cpu_usage")
    average = _find(metrics, "brk_lb_resource_usage", feature="max_ema") or {}
    return BrokerMetrics(
        None if percents is None else {field: as_float(percents.get(name)) for field, name in _USAGE_METRICS.items()},
        as_float(average.get("brk_lb_resource_usage")),
        as_float((_find(metrics, "jvm_start_time") or {}).get("jvm_start_time")),
    )


def current_load(metrics: BrokerMetrics, published_load: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """Return a broker's current load with the published limits, or 100; None if there are no such metrics."""
    if metrics.usage_percents is None:
        return None
    load = {field: _resource_usage(share, published_load.get(field)) for field, share in metrics.usage_percents.items()}
    return {**load, "weightedMaxEMA": metrics.load_average}


def mismatched_host(metrics: Sequence[Mapping[str, JsonValue]], broker: str) -> str:
    """Return the responding broker's host if it is another broker; empty if not, or if the host is unknown.

    The metrics name the advertised address, which is also the host in brokerIds
    (ExtensibleLoadManagerImpl.getMetrics). Brokers on the same host cannot be distinguished.
    """
    labels = (_as_mapping(group.get("dimensions")) for group in metrics)
    named = next((label.get("broker") for label in labels if label.get("metric") == "loadBalancing"), None)
    if not isinstance(named, str) or _normalized_host(named) == _normalized_host(broker.rpartition(":")[0]):
        return ""
    return named


def _normalized_host(host: str) -> str:
    return host.lower().strip("[]").removesuffix(".")


def are_other_brokers_stats(stats_bundles: Collection[str], owned_bundles: Collection[str]) -> bool:
    """Return whether statistics come from another broker: they list several bundles, none of them owned here.

    Statistics are up to `statsUpdateFrequencyInSecs` seconds old, so one bundle or, after a drain, every
    bundle can have moved. Heartbeat bundles are named after their broker and never move.
    """
    if any(":" in bundle for bundle in {*stats_bundles} & {*owned_bundles}):
        return False
    theirs, mine = ({bundle for bundle in names if ":" not in bundle} for names in (stats_bundles, owned_bundles))
    return len(theirs) > 1 and bool(mine) and mine.isdisjoint(theirs)


def _find(metrics: Sequence[Mapping[str, JsonValue]], name: str, **dimensions: str) -> Mapping[str, JsonValue] | None:
    for group in metrics:
        values, labels = _as_mapping(group.get("metrics")), _as_mapping(group.get("dimensions"))
        if name in values and dimensions.items() <= labels.items():
            return values
    return None


def _resource_usage(share: float | None, published_usage: object) -> dict[str, JsonValue]:
    pair = _as_mapping(published_usage)
    limit = as_float(pair.get("limit"))
    if limit is None:
        return {"usage": share, "limit": 100.0}
    # Without a limit there is no percentage; Pulsar marks a resource that is not measured with -1 of -1.
    return {"usage": None if share is None else share / 100 * limit, "limit": limit} if limit > 0 else pair


def values_to_store(published_load: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    values = {name: as_float(published_load.get(name)) for name in _PUBLISHED_FIELDS}
    pairs = {field: _as_mapping(published_load[field]) for field in _USAGE_METRICS if field in published_load}
    usage: dict[str, JsonValue] = {
        field: {part: as_float(pair.get(part)) for part in ("usage", "limit")} for field, pair in pairs.items()
    }
    return {**usage, **values}


def is_load_current(
    published_load: Mapping[str, JsonValue],
    stats_by_bundle: Mapping[str, Mapping[str, float]],
    threshold_percent: float,
) -> bool:
    """Return False if the broker must have published newer load data than `published_load`, a BrokerLoadData.

    Brokers publish when message rate or throughput has changed by more than
    loadBalancerReportUpdateThresholdPercentage (BrokerLoadDataReporter.needBrokerDataUpdate).
    """
    for names in (RATE_FIELDS[:2], RATE_FIELDS[2:]):
        then = sum(as_float(published_load.get(name)) or 0.0 for name in names)
        now = sum(bundle[name] for bundle in stats_by_bundle.values() for name in names)
        if then != now and not abs(now - then) * 100 <= threshold_percent * then:
            return False
    return True


def make_report(
    broker: str,
    *,
    load: Mapping[str, JsonValue],
    throughput_average: JsonValue,
    stats_by_bundle: Mapping[str, Mapping[str, float]],
    top_bundles: Sequence[str] = (),
) -> dict[str, JsonValue]:
    """Return the broker's load report, without its version and start time.

    `load` has `weightedMaxEMA` and resources; the throughput's moving average is in bytes/s; `top_bundles` is in the
    published order.
    """
    ranks = {bundle: rank for rank, bundle in enumerate(top_bundles)}
    return {
        "brokerId": broker,
        **{field: load.get(field) for field in _USAGE_METRICS},
        **{name: sum(entry[name] for entry in stats_by_bundle.values()) for name in RATE_FIELDS},
        **{total: sum(entry[name] for entry in stats_by_bundle.values()) for total, name in _SUMMED_FIELDS.items()},
        "numBundles": len(stats_by_bundle),
        "weightedMaxEMA": load.get("weightedMaxEMA"),
        "msgThroughputEMA": throughput_average,
        "lastStats": {name: {**entry, "topRank": ranks.get(name)} for name, entry in stats_by_bundle.items()},
    }


def _as_mapping(value: object) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _length_or_zero(value: object) -> int:
    return len(value) if isinstance(value, list | dict) else 0


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A system topic's message: brokerId, time in ms since 1970, and a JSON object; empty if withdrawn."""

    broker: str
    published_at_ms: int
    payload: bytes


class TopBundles(BaseModel):
    """The names of a broker's top bundles, in its order, and the message's time in ms since 1970."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_ms: int
    bundles: tuple[str, ...]


class PublishedLoad(VersionedDocument):
    """The last messages from each broker: the BrokerLoadData values in use, and the top bundles."""

    model_config = ConfigDict(frozen=False)

    FILE: ClassVar[str] = LOAD_DATA_FILE

    load: dict[str, dict[str, JsonValue]] = {}
    top: dict[str, TopBundles] = {}

    @classmethod
    def from_folder(cls, folder: StoragePath | None) -> Self:
        try:
            return (cls.read_if_exists(folder) if folder else None) or cls()
        except SnapshotError as error:
            _log.warning("load data kept from earlier runs cannot be used: %s", error)
            return cls()

    def keep_only(self, brokers: Collection[str]) -> None:
        for by_broker in (self.load, self.top):
            for broker in by_broker.keys() - set(brokers):
                del by_broker[broker]

    def store_load(self, message: TopicMessage) -> bool:
        self.load.pop(message.broker, None)
        document = _message_document(message)
        if document is None:
            return False
        self.load[message.broker] = values_to_store(document)
        return True

    def store_top_bundles(self, message: TopicMessage) -> bool:
        self.top.pop(message.broker, None)
        entries = (_message_document(message) or {}).get("topBundlesLoadData")
        if not isinstance(entries, list):
            return False
        names = (entry.get("bundleName") for entry in entries if isinstance(entry, dict))
        bundles = tuple(name for name in names if isinstance(name, str))
        self.top[message.broker] = TopBundles(at_ms=message.published_at_ms, bundles=bundles)
        return True


def _message_document(message: TopicMessage) -> dict[str, JsonValue] | None:
    if not message.payload:
        return None
    try:
        document = parse_json(message.payload)
        json.dumps(document, allow_nan=False)  # must be storable as JSON
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        return document
    _log.warning("%s published a message that is not a JSON object", message.broker)
    return None


LOAD = "non-persistent://pulsar/system/loadbalancer-broker-load-data"
TOP = "non-persistent://pulsar/system/loadbalancer-top-bundles-load-data"

_POLL_MS = 100
_REASON_BY_ERROR = {
    "AuthorizationError": Reason.FORBIDDEN,
    "AuthenticationError": Reason.UNAUTHORIZED,
    "Timeout": Reason.TIMEOUT,
    "ValueError": Reason.BAD_ANSWER,
}


def require_pulsar_client() -> None:
    try:
        import pulsar  # noqa: F401 # a C++ library, loaded only if needed
    except ImportError as error:
        what = f"the Python package pulsar-client cannot be loaded ({error})"
        advice = "install pulsar-rebalancer[extensible], or set listen_seconds to 0"
        raise AdminError(Reason.WRONG_SETTING, f"{what}: {advice}") from None


def receive_messages(
    connection: AdminConnection,
    tokens: Tokens,
    service_url: str,
    handlers: Mapping[str, Callable[[TopicMessage], bool]],
    seconds: float,
) -> None:
    """Pass messages to the handlers until one returns True or the time limit is reached. This call blocks.

    Args:
        tokens: the tokens of the admin REST API client, whose event loop runs in another thread.
        seconds: time limit, counted from when the topics are open.

    Raises:
        AdminError: `wrong_setting`, `forbidden`, `unauthorized`, `unreachable`, `bad_answer` (the client
            rejects the address) or `timeout` (also if the brokers reject the token).
    """
    require_pulsar_client()
    import pulsar

    failed: str
    try:
        return _poll_readers(pulsar.Client(service_url, **_client_options(connection, tokens)), handlers, seconds)
    except (pulsar.PulsarException, ValueError) as error:
        failed = tokens.mask.hide(f"{type(error).__name__}, {error}")
        reason = _REASON_BY_ERROR.get(type(error).__name__, Reason.UNREACHABLE)
    # Raised outside the handler, because the caught error keeps the client alive.
    raise AdminError(reason, f"the system topics of {service_url} cannot be read: {failed}")


def _poll_readers(client: Any, handlers: Mapping[str, Callable[[TopicMessage], bool]], seconds: float) -> None:
    import pulsar

    with ExitStack() as closing:
        closing.callback(client.close)
        readers = []
        for topic, take in handlers.items():
            reader = client.create_reader(topic, pulsar.MessageId.latest)
            closing.callback(reader.close)  # the client and open readers refer to each other
            readers.append((reader, take))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for reader, take in readers:
                # One topic is drained before the next is read, so a quiet topic costs its time-out only once.
                while time.monotonic() < end and (message := _next_message(reader)) is not None:
                    if take(message):
                        return


def _next_message(reader: Any) -> TopicMessage | None:
    import pulsar

    try:
        message = reader.read_next(timeout_millis=_POLL_MS)
    except pulsar.Timeout:
        return None
    return TopicMessage(message.partition_key(), message.publish_timestamp(), message.data())


def _client_options(connection: AdminConnection, tokens: Tokens) -> dict[str, object]:
    import pulsar

    options: dict[str, object] = {
        "operation_timeout_seconds": max(1, round(connection.connect_timeout_s)),
        "connection_timeout_ms": round(connection.connect_timeout_s * 1000),
        "stats_interval_in_seconds": 0,
        "tls_validate_hostname": True,
        "logger": pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    }
    if connection.ca_file is not None:
        options["tls_trust_certs_file_path"] = str(connection.ca_file)
    certificate = connection.client_cert_file
    key = connection.client_key_file or certificate
    if connection.has_token:
        options["authentication"] = pulsar.AuthenticationToken(tokens.get_in_thread)
        if certificate is not None:
            options |= {"tls_certificate_file_path": str(certificate), "tls_private_key_file_path": str(key)}
    elif certificate is not None:
        options["authentication"] = pulsar.AuthenticationTLS(str(certificate), str(key))
    return options
