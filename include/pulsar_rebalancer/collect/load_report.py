"""Read a broker's load report (the modular load manager's LocalBrokerData) as columns of the snapshot.

`load_data` builds reports of the extensible load manager in the same form. Values are not corrected here, so
that validation can report errors: a missing or non-numeric value becomes null; NaN, infinite and negative
values are kept.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pydantic import JsonValue

from pulsar_rebalancer.collect.broker_settings import Runtimes
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.tables import BUNDLES, RESOURCES, TRAFFIC, Cell
from pulsar_rebalancer.texts import one_line

_RESOURCE_FIELDS = dict(zip(RESOURCES, ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), strict=True))
_TRAFFIC_FIELDS = dict(zip(TRAFFIC, ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut"), strict=True))
_BROKER_COUNTS = {"topics": "numTopics", "bundles": "numBundles", "producers": "numProducers"} | {
    "consumers": "numConsumers"
}
_BUNDLE_COUNTS = {"topics": "topics", "producers": "producerCount", "consumers": "consumerCount"} | {
    "cache_size": "cacheSize",
    "top_rank": "topRank",
}
_AVERAGE_FIELDS = {"load_average": "weightedMaxEMA", "throughput_average": "msgThroughputEMA"}
_BUNDLE_SCHEMA = pa.schema([BUNDLES.field(name) for name in ("broker", "bundle", *_TRAFFIC_FIELDS, *_BUNDLE_COUNTS)])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of year 9999, the last a datetime can hold
_INT64_LIMIT = 2**63
_MAX_VERSION_CHARS = 200


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """The data that the tables need from one broker's report.

    Attributes:
        broker_names: the broker's names as `host:port`. Brokers up to 4.x do not report their brokerId, but their web
            addresses have the same host and port.
        broker_columns: the columns of `tables.BROKERS` that depend only on the report.
        rows: such columns of `tables.BUNDLES`: a row per bundle with a loaded topic, also of heartbeat namespaces.
    """

    broker_names: tuple[str, ...]
    takes_persistent_topics: bool
    broker_columns: Mapping[str, Cell]
    rows: pa.Table


def read_report(
    broker: str, report: Mapping[str, JsonValue], *, collected_at: datetime, host_interval_s: float
) -> BrokerReport:
    """Return the data that the tables need from a report, a LocalBrokerData parsed from JSON.

    Raises AdminError `bad_answer` if the report has no `lastStats` (NamespaceBundleStats by bundle).
    `host_interval_s` is the interval between the broker's host samples in seconds.
    """
    stats = report.get("lastStats")
    if not isinstance(stats, dict):
        raise AdminError(Reason.BAD_ANSWER, f"the load report of {broker} has no lastStats", broker=broker)
    return BrokerReport(
        broker_names=_broker_names(report),
        takes_persistent_topics=report.get("persistentTopicsEnabled") is not False,
        broker_columns=_broker_columns(report, collected_at, host_interval_s),
        rows=_bundle_columns(broker, stats),
    )


def _broker_columns(report: Mapping[str, JsonValue], collected_at: datetime, host_interval_s: float) -> dict[str, Cell]:
    """Return the columns of the brokers table for one report.

    `last_update` is when the report was last written to the metadata store, in a healthy cluster at most 15
    minutes ago. Pulsar reports -1 as `usage` and `limit` of resources that it does not measure.
    """
    now_ms = collected_at.timestamp() * 1000
    updated, started = as_float(report.get("lastUpdate")), as_float(report.get("startTimestamp"))
    version = report.get("brokerVersionString")
    columns: dict[str, Cell] = {
        "last_update": _time_from_ms(updated),
        "report_age_seconds": None if updated is None else (now_ms - updated) / 1000,
        "started_at": _time_from_ms(started),
        "host_samples": None if started is None else _floor_or_nan((now_ms - started) / 1000 / host_interval_s),
        "version": one_line(version, _MAX_VERSION_CHARS) if isinstance(version, str) else None,
    }
    for column, name in _RESOURCE_FIELDS.items():
        resource = report.get(name)
        usage = resource if isinstance(resource, dict) else {}
        columns[f"{column}_usage"] = as_float(usage.get("usage"))
        columns[f"{column}_limit"] = as_float(usage.get("limit"))
    columns |= {column: as_float(report.get(name)) for column, name in (_TRAFFIC_FIELDS | _AVERAGE_FIELDS).items()}
    columns |= {column: as_int(report.get(name)) for column, name in _BROKER_COUNTS.items()}
    return columns


def _bundle_columns(broker: str, stats: Mapping[str, JsonValue]) -> pa.Table:
    entries = [entry if isinstance(entry, dict) else {} for entry in stats.values()]
    columns: dict[str, list[Any]] = {"broker": [broker] * len(entries), "bundle": list(stats)}
    columns |= {c: [as_float(entry.get(name)) for entry in entries] for c, name in _TRAFFIC_FIELDS.items()}
    columns |= {c: [as_int(entry.get(name)) for entry in entries] for c, name in _BUNDLE_COUNTS.items()}
    return pa.Table.from_pydict(columns, schema=_BUNDLE_SCHEMA)


def _broker_names(report: Mapping[str, JsonValue]) -> tuple[str, ...]:
    urls = (report.get("webServiceUrl"), report.get("webServiceUrlTls"))
    names = [report.get("brokerId"), *(url.partition("://")[2] for url in urls if isinstance(url, str))]
    return tuple(name for name in names if isinstance(name, str) and name)


def as_float(value: object) -> float | None:
    """Return a number as a float, including NaN and infinities; None for any other value, such as text or booleans."""
    if type(value) is float:
        return value
    if type(value) is not int:
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_int(value: object) -> int | None:
    """Return a whole number that fits in 64 bits; None for any other value."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and -_INT64_LIMIT <= value < _INT64_LIMIT else None


def _time_from_ms(ms: float | None) -> datetime | None:
    if ms is None or not 0 <= ms <= _MAX_TIMESTAMP_MS:
        return None
    return _EPOCH + timedelta(milliseconds=ms)


def _floor_or_nan(samples: float) -> float:
    return float(math.floor(samples)) if math.isfinite(samples) else math.nan


_log = logging.getLogger(__name__)

MAX_NAME_CHARS = 200
"""Maximum length of names from a broker's response; longer names are cut."""


@dataclass(frozen=True, slots=True)
class UsableReports:
    reports: Mapping[str, BrokerReport]
    error_by_broker: Mapping[str, Reason]

    @classmethod
    def from_answers(
        cls, answers: Mapping[str, BrokerReport | AdminError | None], brokers: Collection[str], runtimes: Runtimes
    ) -> UsableReports:
        """Sort the responses. Raises AdminError if none is usable because of the credentials or load manager."""
        judged = {broker: _report(broker, answer, brokers) for broker, answer in answers.items()}
        reports = {broker: verdict for broker, verdict in judged.items() if not isinstance(verdict, Reason)}
        refused = {broker: verdict for broker, verdict in judged.items() if isinstance(verdict, Reason)}
        if not reports:
            _raise_lasting_error(answers, refused, runtimes.leader_config)
        failed = {broker: reason for broker, reason in runtimes.error_by_broker.items() if broker not in reports}
        return cls(reports, failed | refused)

    @property
    def non_persistent_only_brokers(self) -> list[str]:
        closed = [broker for broker, report in self.reports.items() if not report.takes_persistent_topics]
        return closed if len(closed) < len(self.reports) else []

    def bundle_table(self) -> pa.Table:
        return pa.concat_tables([report.rows for report in self.reports.values()] or [BUNDLES.empty_table()])


def _report(broker: str, answer: BrokerReport | AdminError | None, brokers: Collection[str]) -> BrokerReport | Reason:
    if isinstance(answer, AdminError):
        _log.warning("%s", answer)
        return answer.reason
    if answer is None:
        return Reason.NO_LOAD_REPORT
    if _is_from_other_broker(answer, broker, brokers):
        names = one_line(" ".join(answer.broker_names), MAX_NAME_CHARS)
        _log.warning("%s answered with the load report of %s", broker, names)
        return Reason.WRONG_BROKER
    return answer


def _is_from_other_broker(report: BrokerReport, broker: str, brokers: Collection[str]) -> bool:
    names = {name.lower() for name in report.broker_names}
    return broker.lower() not in names and any(other.lower() in names for other in brokers)


def _raise_lasting_error(
    answers: Mapping[str, BrokerReport | AdminError | None],
    refusal_reasons: Mapping[str, Reason],
    runtime: Mapping[str, str],
) -> None:
    for answer in answers.values():
        if isinstance(answer, AdminError) and answer.reason.has(Trait.CREDENTIALS):
            raise answer
    if Reason.NO_LOAD_REPORT in refusal_reasons.values():
        class_name = one_line(runtime.get("loadManagerClassName", "unknown"), MAX_NAME_CHARS)
        raise AdminError(Reason.NO_LOAD_REPORT, f"no broker has a load report; loadManagerClassName is {class_name}")
