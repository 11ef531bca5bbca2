"""What a broker under the extensible load manager says about itself, as a load report (LocalBrokerData).

So the rows of the snapshot are made by the same functions as elsewhere. Two keys are added to the report,
`weightedMaxEMA` and `msgThroughputEMA`, and `topRank` to the statistics of its top bundles.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.load_report import figure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")

_USAGE = {
    "cpu": "brk_lb_cpu_usage",
    "memory": "brk_lb_memory_usage",
    "directMemory": "brk_lb_directMemory_usage",
    "bandwidthIn": "brk_lb_bandwidth_in_usage",
    "bandwidthOut": "brk_lb_bandwidth_out_usage",
}
_SUMS = {"numTopics": "topics", "numProducers": "producerCount", "numConsumers": "consumerCount"}


def bundle_stats(topics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Statistics of a broker's bundles (NamespaceBundleStats), summed up from those of its topics.

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


def _sum(topics: Iterable[Mapping[str, Any]], count: int) -> dict[str, Any]:
    total: dict[str, Any] = dict.fromkeys(RATES, 0.0) | {"topics": count, "producerCount": 0, "consumerCount": 0}
    for topic in topics:
        for name in RATES:
            rate = figure(topic.get(name))
            total[name] += math.nan if rate is None else rate
        total["producerCount"] += _length(topic.get("publishers"))
        subscriptions = _mapping(topic.get("subscriptions")).values()
        total["consumerCount"] += sum(_length(_mapping(each).get("consumers")) for each in subscriptions)
    return total


def load_now(metrics: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> dict[str, Any] | None:
    """A broker's load at this moment: brokers compute it anew when they are asked (BrokerLoadData.toMetrics).

    Metrics give percents. Limits are those that the broker published, 100 as long as it was not heard.

    Args:
        metrics: answer of `broker-stats/metrics`.
        published: BrokerLoadData as heard last; empty when it never was.

    Returns:
        Resources and `weightedMaxEMA`; None when the load manager has no such metrics.
    """
    percents = _metrics(metrics, "brk_lb_cpu_usage")
    if percents is None:
        return None
    load: dict[str, Any] = {field: _usage(percents.get(name), published.get(field)) for field, name in _USAGE.items()}
    average = _metrics(metrics, "brk_lb_resource_usage", feature="max_ema") or {}
    return load | {"weightedMaxEMA": average.get("brk_lb_resource_usage")}


def other_host(metrics: Sequence[Mapping[str, Any]], broker: str) -> str:
    """The host that answered in the broker's place; empty when it was the broker's own, or is not said.

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
    """Whether statistics are another broker's: they are of several bundles, and the broker owns others only.

    They are up to `statsUpdateFrequencyInSecs` old. A bundle may have moved since, also in exchange for another one,
    and all of them when the broker is drained. Bundles of heartbeats, whose names hold the broker's port, never move.
    """
    if any(":" in bundle for bundle in {*stats} & {*owned}):
        return False
    theirs, mine = ({bundle for bundle in found if ":" not in bundle} for found in (stats, owned))
    return len(theirs) > 1 and bool(mine) and mine.isdisjoint(theirs)


def started_at(metrics: Sequence[Mapping[str, Any]]) -> Any:
    """When the broker's process started, ms since 1970; None when its metrics do not say."""
    return (_metrics(metrics, "jvm_start_time") or {}).get("jvm_start_time")


def _metrics(metrics: Sequence[Mapping[str, Any]], name: str, **dimensions: str) -> Mapping[str, Any] | None:
    """The group of metrics that holds this one."""
    for group in metrics:
        found, labels = _mapping(group.get("metrics")), _mapping(group.get("dimensions"))
        if name in found and dimensions.items() <= labels.items():
            return found
    return None


def _usage(percent: object, published: object) -> Mapping[str, Any]:
    pair = _mapping(published)
    limit = figure(pair.get("limit"))
    if limit is None:
        return {"usage": percent, "limit": 100.0}
    share = figure(percent)
    # Without a limit there is no percentage either; -1 of -1 is Pulsar's sign for a resource that is not measured.
    return {"usage": None if share is None else share / 100 * limit, "limit": limit} if limit > 0 else pair


def is_current(published: Mapping[str, Any], stats: Mapping[str, Mapping[str, Any]], threshold_percent: float) -> bool:
    """Whether what a broker published may still be the last that it did: its rates have not changed enough since.

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
    load: Mapping[str, Any],
    throughput_average: object,
    stats: Mapping[str, Mapping[str, Any]],
    top: Sequence[str] = (),
) -> dict[str, Any]:
    """The load report that the broker would give, without its version and its start.

    Args:
        broker: brokerId.
        load: resources and `weightedMaxEMA`, as BrokerLoadData or from `load_now`.
        throughput_average: moving average of its throughput, bytes/s; None when it is not known.
        stats: its bundles.
        top: its top bundles, in the order in which it published them.
    """
    ranks = {bundle: rank for rank, bundle in enumerate(top)}
    entries = {name: {**entry, "topRank": ranks.get(name)} for name, entry in stats.items()}
    return {
        "brokerId": broker,
        **{field: load.get(field) for field in _USAGE},
        **{name: sum(entry[name] for entry in stats.values()) for name in RATES},
        **{total: sum(entry[name] for entry in stats.values()) for total, name in _SUMS.items()},
        "numBundles": len(stats),
        "weightedMaxEMA": load.get("weightedMaxEMA"),
        "msgThroughputEMA": throughput_average,
        "lastStats": entries,
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | dict) else 0
