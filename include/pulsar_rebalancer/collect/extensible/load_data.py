"""Build a load report (LocalBrokerData) from the figures of a broker under the extensible load manager.

The same functions can then make the snapshot's rows for both load managers. The report has two additional keys,
`weightedMaxEMA` and `msgThroughputEMA`, and the statistics of its top bundles have the key `topRank`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer.collect.load_report import count, figure

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pydantic import JsonValue

RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")

_USAGE = {
    "cpu": "brk_lb_cpu_usage",
    "memory": "brk_lb_memory_usage",
    "directMemory": "brk_lb_directMemory_usage",
    "bandwidthIn": "brk_lb_bandwidth_in_usage",
    "bandwidthOut": "brk_lb_bandwidth_out_usage",
}
_PUBLISHED = (*RATES, "weightedMaxEMA", "msgThroughputEMA", "updatedAt")
_SUMS = {"numTopics": "topics", "numProducers": "producerCount", "numConsumers": "consumerCount"}


def bundle_stats(topics: Mapping[str, JsonValue]) -> dict[str, dict[str, float]]:
    """Return statistics for a broker's bundles (NamespaceBundleStats), summed over the topics in each bundle.

    Cache sizes are not included.

    Args:
        topics: the broker's response to `broker-stats/topics`, nested by namespace, hash range, domain and topic.

    Returns:
        Statistics by bundle, for bundles with at least one loaded topic.
    """
    stats = {}
    for namespace, ranges in topics.items():
        for hash_range, domains in _mapping(ranges).items():
            loaded = [topic for domain in _mapping(domains).values() for topic in _mapping(domain).values()]
            if loaded:
                stats[f"{namespace}/{hash_range}"] = _sum([_mapping(topic) for topic in loaded])
    return stats


def _sum(topics: Sequence[Mapping[str, JsonValue]]) -> dict[str, float]:
    total: dict[str, float] = dict.fromkeys(RATES, 0.0) | {
        "topics": len(topics),
        "producerCount": 0,
        "consumerCount": 0,
    }
    for topic in topics:
        for name in RATES:
            rate = figure(topic.get(name))
            total[name] += math.nan if rate is None else rate
        # Brokers with `exposePublisherStats=false` count producers without listing them (PersistentTopic.updateRates).
        total["producerCount"] += max(_length(topic.get("publishers")), count(topic.get("producerCount")) or 0)
        subscriptions = _mapping(topic.get("subscriptions")).values()
        total["consumerCount"] += sum(_length(_mapping(entry).get("consumers")) for entry in subscriptions)
    return total


@dataclass(frozen=True, slots=True)
class Metrics:
    """A broker's load metrics.

    Attributes:
        percents: usage in percent, by the resource's name in LocalBrokerData; None if the load manager has no such
            metrics.
        load_average: moving average of the load (`weightedMaxEMA`), where 1 is 100 percent; None if not reported.
        started_at_ms: start time of the broker's process, in ms since 1970; None if not reported.
    """

    percents: Mapping[str, float | None] | None
    load_average: float | None
    started_at_ms: float | None


def read_metrics(metrics: Sequence[Mapping[str, JsonValue]]) -> Metrics:
    """Parse a broker's response to `broker-stats/metrics`.

    Brokers compute the response for each request (BrokerLoadData.toMetrics).
    """
    percents = _group(metrics, "brk_lb_cpu_usage")
    average = _group(metrics, "brk_lb_resource_usage", feature="max_ema") or {}
    return Metrics(
        None if percents is None else {field: figure(percents.get(name)) for field, name in _USAGE.items()},
        figure(average.get("brk_lb_resource_usage")),
        figure((_group(metrics, "jvm_start_time") or {}).get("jvm_start_time")),
    )


def load_now(metrics: Metrics, published: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """Return a broker's current load, with the published limits of its resources, or limits of 100 if none are known.

    Args:
        published: the last BrokerLoadData received; empty if there is none.

    Returns:
        Resources and `weightedMaxEMA`; None if the load manager has no such metrics.
    """
    if metrics.percents is None:
        return None
    load = {field: _usage(share, published.get(field)) for field, share in metrics.percents.items()}
    return {**load, "weightedMaxEMA": metrics.load_average}


def other_host(metrics: Sequence[Mapping[str, JsonValue]], broker: str) -> str:
    """Return the host of the broker that responded if it is another broker; empty if not, or if the host is unknown.

    The load manager's metrics name the advertised address, which is also the host in brokerIds
    (ExtensibleLoadManagerImpl.getMetrics). Brokers on the same host cannot be distinguished.
    """
    labels = (_mapping(group.get("dimensions")) for group in metrics)
    named = next((label.get("broker") for label in labels if label.get("metric") == "loadBalancing"), None)
    if not isinstance(named, str) or _plain(named) == _plain(broker.rpartition(":")[0]):
        return ""
    return named


def _plain(host: str) -> str:
    return host.lower().strip("[]").removesuffix(".")


def are_of_another(stats: Collection[str], owned: Collection[str]) -> bool:
    """Return whether statistics come from another broker: they list several bundles, none of which this broker owns.

    Statistics are up to `statsUpdateFrequencyInSecs` seconds old, so a difference by itself proves nothing: in that
    time one bundle or, if the broker was drained, every bundle can have moved. Heartbeat bundles are named after their
    broker and never move.
    """
    if any(":" in bundle for bundle in {*stats} & {*owned}):
        return False
    theirs, mine = ({bundle for bundle in names if ":" not in bundle} for names in (stats, owned))
    return len(theirs) > 1 and bool(mine) and mine.isdisjoint(theirs)


def _group(metrics: Sequence[Mapping[str, JsonValue]], name: str, **dimensions: str) -> Mapping[str, JsonValue] | None:
    """Return the figures of the first group with this metric and these dimensions; None if there is no such group."""
    for group in metrics:
        figures, labels = _mapping(group.get("metrics")), _mapping(group.get("dimensions"))
        if name in figures and dimensions.items() <= labels.items():
            return figures
    return None


def _usage(share: float | None, published: object) -> dict[str, JsonValue]:
    pair = _mapping(published)
    limit = figure(pair.get("limit"))
    if limit is None:
        return {"usage": share, "limit": 100.0}
    # Without a limit there is no percentage; Pulsar marks a resource that is not measured with -1 of -1.
    return {"usage": None if share is None else share / 100 * limit, "limit": limit} if limit > 0 else pair


def kept(published: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the BrokerLoadData figures to store for the next run."""
    figures = {name: figure(published.get(name)) for name in _PUBLISHED}
    pairs = {field: _mapping(published[field]) for field in _USAGE if field in published}
    usage: dict[str, JsonValue] = {
        field: {part: figure(pair.get(part)) for part in ("usage", "limit")} for field, pair in pairs.items()
    }
    return {**usage, **figures}


def is_current(
    published: Mapping[str, JsonValue], stats: Mapping[str, Mapping[str, float]], threshold_percent: float
) -> bool:
    """Return False if the broker must have published newer load data than this.

    Brokers publish when message rate or throughput has changed by more than loadBalancerReportUpdateThresholdPercentage
    (BrokerLoadDataReporter.needBrokerDataUpdate).

    Args:
        published: BrokerLoadData.
        stats: the broker's current statistics by bundle.
        threshold_percent: value of loadBalancerReportUpdateThresholdPercentage.
    """
    for names in (RATES[:2], RATES[2:]):
        then = sum(figure(published.get(name)) or 0.0 for name in names)
        now = sum(bundle[name] for bundle in stats.values() for name in names)
        if then != now and not abs(now - then) * 100 <= threshold_percent * then:
            return False
    return True


def report(
    broker: str,
    *,
    load: Mapping[str, JsonValue],
    throughput_average: JsonValue,
    stats: Mapping[str, Mapping[str, float]],
    top: Sequence[str] = (),
) -> dict[str, JsonValue]:
    """Return the broker's load report, without its version and start time.

    Args:
        load: resources and `weightedMaxEMA`, from BrokerLoadData or `load_now`.
        throughput_average: moving average of the broker's throughput, in bytes/s; None if unknown.
        top: the broker's top bundles, in the published order.
    """
    ranks = {bundle: rank for rank, bundle in enumerate(top)}
    return {
        "brokerId": broker,
        **{field: load.get(field) for field in _USAGE},
        **{name: sum(entry[name] for entry in stats.values()) for name in RATES},
        **{total: sum(entry[name] for entry in stats.values()) for total, name in _SUMS.items()},
        "numBundles": len(stats),
        "weightedMaxEMA": load.get("weightedMaxEMA"),
        "msgThroughputEMA": throughput_average,
        "lastStats": {name: {**entry, "topRank": ranks.get(name)} for name, entry in stats.items()},
    }


def _mapping(value: object) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | dict) else 0
