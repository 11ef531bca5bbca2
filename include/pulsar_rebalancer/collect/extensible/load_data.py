"""Make a load report (LocalBrokerData) of what a broker under the extensible load manager says about itself.

So the rows of the snapshot are made by the same functions as elsewhere. Two keys are added to the report,
`weightedMaxEMA` and `msgThroughputEMA`, and `topRank` to the statistics of its top bundles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer.collect.load_report import figure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

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
    """Return statistics of a broker's bundles (NamespaceBundleStats), summed up from those of its topics.

    The size of a bundle's cache is not among them.

    Args:
        topics: answer of `broker-stats/topics`: namespace, hash range, domain, topic.

    Returns:
        Bundle to its statistics, for bundles with at least one loaded topic.
    """
    found = {}
    for namespace, ranges in topics.items():
        for hash_range, domains in _mapping(ranges).items():
            loaded = [topic for domain in _mapping(domains).values() for topic in _mapping(domain).values()]
            if loaded:
                found[f"{namespace}/{hash_range}"] = _sum(map(_mapping, loaded), len(loaded))
    return found


def _sum(topics: Iterable[Mapping[str, JsonValue]], count: int) -> dict[str, float]:
    total: dict[str, float] = dict.fromkeys(RATES, 0.0) | {"topics": count, "producerCount": 0, "consumerCount": 0}
    for topic in topics:
        for name in RATES:
            rate = figure(topic.get(name))
            total[name] += math.nan if rate is None else rate
        total["producerCount"] += _length(topic.get("publishers"))
        subscriptions = _mapping(topic.get("subscriptions")).values()
        total["consumerCount"] += sum(_length(_mapping(each).get("consumers")) for each in subscriptions)
    return total


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the metrics of a broker say about its load.

    Attributes:
        percents: usage by resource, as LocalBrokerData names them; None when the load manager has no such metrics.
        load_average: moving average of its load (`weightedMaxEMA`), 1 is 100 percent; None when it is not told.
        started_at_ms: when its process started, ms since 1970; None when it is not told.
    """

    percents: Mapping[str, float | None] | None
    load_average: float | None
    started_at_ms: float | None


def read_metrics(metrics: Sequence[Mapping[str, JsonValue]]) -> Metrics:
    """Return what the answer of `broker-stats/metrics` says: percents, computed when brokers are asked.

    (BrokerLoadData.toMetrics.)
    """
    percents = _group(metrics, "brk_lb_cpu_usage")
    average = _group(metrics, "brk_lb_resource_usage", feature="max_ema") or {}
    return Metrics(
        None if percents is None else {field: figure(percents.get(name)) for field, name in _USAGE.items()},
        figure(average.get("brk_lb_resource_usage")),
        figure((_group(metrics, "jvm_start_time") or {}).get("jvm_start_time")),
    )


def load_now(metrics: Metrics, published: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """Return a broker's load at this moment, with the limits that it published; 100 as long as none were received.

    Args:
        metrics: percents of its resources.
        published: BrokerLoadData as received last; empty when it never was.

    Returns:
        Resources and `weightedMaxEMA`; None when the load manager has no such metrics.
    """
    if metrics.percents is None:
        return None
    load = {field: _usage(share, published.get(field)) for field, share in metrics.percents.items()}
    return {**load, "weightedMaxEMA": metrics.load_average}


def other_host(metrics: Sequence[Mapping[str, JsonValue]], broker: str) -> str:
    """Return the host that answered in the broker's place; empty when it was the broker's own, or is not said.

    Metrics of the load manager name the advertised address, which is the host of brokerIds as well
    (ExtensibleLoadManagerImpl.getMetrics). Brokers on one host cannot be told apart.
    """
    labels = (_mapping(group.get("dimensions")) for group in metrics)
    named = next((each.get("broker") for each in labels if each.get("metric") == "loadBalancing"), None)
    if not isinstance(named, str) or _plain(named) == _plain(broker.rpartition(":")[0]):
        return ""
    return named


def _plain(host: str) -> str:
    return host.lower().strip("[]").removesuffix(".")


def are_of_another(stats: Collection[str], owned: Collection[str]) -> bool:
    """Return whether statistics are another broker's: they are of several bundles, and the broker owns others only.

    They are up to `statsUpdateFrequencyInSecs` old. A bundle may have moved since, also in exchange for another one,
    and all of them when the broker is drained. Bundles of heartbeats, whose names hold the broker's port, never move.
    """
    if any(":" in bundle for bundle in {*stats} & {*owned}):
        return False
    theirs, mine = ({bundle for bundle in found if ":" not in bundle} for found in (stats, owned))
    return len(theirs) > 1 and bool(mine) and mine.isdisjoint(theirs)


def _group(metrics: Sequence[Mapping[str, JsonValue]], name: str, **dimensions: str) -> Mapping[str, JsonValue] | None:
    """Return the group of metrics that holds this one."""
    for group in metrics:
        found, labels = _mapping(group.get("metrics")), _mapping(group.get("dimensions"))
        if name in found and dimensions.items() <= labels.items():
            return found
    return None


def _usage(share: float | None, published: object) -> dict[str, JsonValue]:
    pair = _mapping(published)
    limit = figure(pair.get("limit"))
    if limit is None:
        return {"usage": share, "limit": 100.0}
    # Without a limit there is no percentage either; -1 of -1 is Pulsar's sign for a resource that is not measured.
    return {"usage": None if share is None else share / 100 * limit, "limit": limit} if limit > 0 else pair


def kept(published: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return what is kept of BrokerLoadData between runs: the figures that are used."""
    figures = {name: figure(published.get(name)) for name in _PUBLISHED}
    pairs = {field: _mapping(published[field]) for field in _USAGE if field in published}
    usage: dict[str, JsonValue] = {
        field: {part: figure(pair.get(part)) for part in ("usage", "limit")} for field, pair in pairs.items()
    }
    return {**usage, **figures}


def is_current(
    published: Mapping[str, JsonValue], stats: Mapping[str, Mapping[str, float]], threshold_percent: float
) -> bool:
    """Return whether what a broker published may be the last that it did: its rates have not changed enough since.

    Brokers publish when message rate or throughput has changed by more than
    loadBalancerReportUpdateThresholdPercentage (BrokerLoadDataReporter.needBrokerDataUpdate).

    Args:
        published: BrokerLoadData.
        stats: the broker's bundles now.
        threshold_percent: that setting.
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
    """Return the load report that the broker would give, without its version and its start.

    Args:
        broker: brokerId.
        load: resources and `weightedMaxEMA`, as BrokerLoadData or from `load_now`.
        throughput_average: moving average of its throughput, bytes/s; None when it is not known.
        stats: its bundles.
        top: its top bundles, in the order in which it published them.
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
