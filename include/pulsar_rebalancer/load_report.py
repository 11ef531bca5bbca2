"""What a broker reports (LocalBrokerData of the modular load manager) as rows of the snapshot.

Reports of other brokers are put together in that form (`extensible.load_data`), with moving averages and ranks added.
Nothing is cleaned here: a figure that is missing, a text, NaN, infinite or negative reaches the table as null, NaN,
infinite or negative, so that validation can name it. Unknown fields are passed over.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.snapshot import RESOURCES, TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_RESOURCE_FIELDS = dict(zip(RESOURCES, ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), strict=True))
_TRAFFIC_FIELDS = dict(zip(TRAFFIC, ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut"), strict=True))
_BROKER_COUNTS = {"topics": "numTopics", "bundles": "numBundles", "producers": "numProducers"} | {
    "consumers": "numConsumers"
}
_BUNDLE_COUNTS = {"topics": "topics", "producers": "producerCount", "consumers": "consumerCount"} | {
    "cache_size": "cacheSize",
    "top_rank": "topRank",
}
_AVERAGES = {"load_average": "weightedMaxEMA", "throughput_average": "msgThroughputEMA"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999  # the end of year 9999, the last a datetime can hold
_INT64 = 2**63


def broker_row(report: Mapping[str, Any], *, collected_at: datetime, host_interval_s: float) -> dict[str, Any]:
    """The columns of `snapshot.BROKERS` that the load report alone decides.

    `last_update` is the time of the last metadata write, so up to 15 minutes old in a healthy cluster.
    `usage` and `limit` of -1 each are Pulsar's own sign for a resource that is not measured.

    Args:
        report: LocalBrokerData as JSON gave it.
        collected_at: time of the sample.
        host_interval_s: seconds between two host samples of a broker.
    """
    now_ms = collected_at.timestamp() * 1000
    updated, started = figure(report.get("lastUpdate")), figure(report.get("startTimestamp"))
    row: dict[str, Any] = {
        "last_update": _time(updated),
        "report_age_seconds": None if updated is None else (now_ms - updated) / 1000,
        "started_at": _time(started),
        "host_samples": None if started is None else _floor((now_ms - started) / 1000 / host_interval_s),
        "version": text(report.get("brokerVersionString")),
    }
    for column, name in _RESOURCE_FIELDS.items():
        found = report.get(name)
        usage = found if isinstance(found, dict) else {}
        row[f"{column}_usage"] = figure(usage.get("usage"))
        row[f"{column}_limit"] = figure(usage.get("limit"))
    row |= {column: figure(report.get(name)) for column, name in _TRAFFIC_FIELDS.items()}
    row |= {column: figure(report.get(name)) for column, name in _AVERAGES.items()}
    row |= {column: count(report.get(name)) for column, name in _BROKER_COUNTS.items()}
    return row


def bundle_columns(stats: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[Any]]:
    """The columns of `snapshot.BUNDLES` that load reports alone decide: a row per bundle and reporting broker.

    Args:
        stats: broker and its `lastStats` (bundle to NamespaceBundleStats): every bundle with at least one loaded
            topic, system and heartbeat namespaces among them.
    """
    columns: dict[str, list[Any]] = {name: [] for name in ("broker", "bundle", *_TRAFFIC_FIELDS, *_BUNDLE_COUNTS)}
    for broker, bundles in stats:
        entries = [entry if isinstance(entry, dict) else {} for entry in bundles.values()]
        columns["broker"] += [broker] * len(entries)
        columns["bundle"] += map(text, bundles)
        for column, name in _TRAFFIC_FIELDS.items():
            columns[column] += [figure(entry.get(name)) for entry in entries]
        for column, name in _BUNDLE_COUNTS.items():
            columns[column] += [count(entry.get(name)) for entry in entries]
    return columns


def names_of(report: Mapping[str, Any]) -> tuple[str, ...]:
    """The `host:port` names under which a report speaks of its broker.

    Brokers up to 4.x do not write their brokerId; their web addresses hold the same host and port.
    """
    urls = (report.get("webServiceUrl"), report.get("webServiceUrlTls"))
    found = [report.get("brokerId"), *(url.partition("://")[2] for url in urls if isinstance(url, str))]
    return tuple(name for name in found if isinstance(name, str) and name)


def figure(value: object) -> float | None:
    """A number as float, NaN and infinities included; None for anything else (texts and truth values too)."""
    if type(value) is float:
        return value
    if type(value) is not int:
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def count(value: object) -> int | None:
    """A whole number that fits into 64 bits; None for anything else."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def text(value: object) -> str | None:
    """A text that can be stored: lone surrogates, which JSON may hold and UTF-8 may not, become question marks."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _time(ms: float | None) -> datetime | None:
    if ms is None or not 0 <= ms <= _LAST_MS:
        return None
    return _EPOCH + timedelta(milliseconds=ms)


def _floor(samples: float) -> float:
    return float(math.floor(samples)) if math.isfinite(samples) else math.nan
