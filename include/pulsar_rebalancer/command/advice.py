"""What keeps a cluster from being balanced, each with its evidence and a command that mends it."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from pulsar_rebalancer.collect.broker_settings import Runtimes
from pulsar_rebalancer.collect.collector import Sample
from pulsar_rebalancer.collect.split_candidates import total_rate
from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.decide.split_algorithms import BundleLoad, split_condition
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_in_bundle, namespace_of, range_of
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.pulsar.answers import split_topic
from pulsar_rebalancer.pulsar.client import shedding_is_on
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.findings import exceeds_twice_fair_share
from pulsar_rebalancer.run.plan import Summary, candidate_rows, read_decisions, read_moves
from pulsar_rebalancer.run.request import Finding
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import number_of, one_line

TOPICS_TIMEOUT_S = 20.0
_MAX_NAMED = 4
_MAX_LISTED = 5
"""Maximum number of findings listed per kind."""

_REASONS_FOR_RUNS = {Reason.BUILTIN_SHEDDING_ON}
"""Reasons that matter only to runs, so an inspection does not list them."""

_SET_COMMAND = "pulsar-admin brokers update-dynamic-config --config {} --value {}"
_FIXES = {
    "even_distribution": _SET_COMMAND.format("loadBalancerDistributeBundlesEvenlyEnabled", "false"),
    "max_unload_percentage": _SET_COMMAND.format("maxUnloadPercentage", 0.5),
}
"""Commands that set a recommended value."""

_BUNDLE_PATTERN = re.compile(r"[^\s/]+/[^\s/]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}")


class Advice(NamedTuple):
    what: str
    evidence: str
    fix: str
    reason: str = ""


class LoadedTopic(NamedTuple):
    """A loaded topic with its traffic, in and out, in msg/s and bytes/s."""

    name: str
    bundle: str
    broker: str
    msg_rate: float
    msg_throughput: float


class LoadedTopics(NamedTuple):
    topics: Sequence[LoadedTopic]
    unread_brokers: Sequence[str]


def load_balancer_classes(runtimes: Runtimes) -> dict[str, str]:
    runtime = runtimes.leader_config
    names = {
        "manager": "loadManagerClassName",
        "shedder": "loadBalancerLoadSheddingStrategy",
        "placement": "loadBalancerLoadPlacementStrategy",
    }
    classes = {kind: one_line(runtime.get(name, "").rpartition(".")[2], 100) for kind, name in names.items()}
    return classes | {"shedding": "on" if any(map(shedding_is_on, runtimes.configs.values())) else "off"}


async def read_topics(admin: PulsarAdmin, sample: Sample) -> LoadedTopics:
    brokers = [row["broker"] for row in sample.input_tables["brokers"].select(["broker", "error"]).to_pylist()]
    loaded: list[LoadedTopic] = []
    unread = set(brokers)
    try:
        async with asyncio.timeout(TOPICS_TIMEOUT_S):
            for broker in brokers:  # one long answer at a time
                try:
                    loaded += _loaded_topics(broker, await admin.topic_stats(broker))
                    unread.discard(broker)
                except AdminError:
                    continue
    except TimeoutError:
        pass
    return LoadedTopics(loaded, sorted(unread))


def _loaded_topics(broker: str, stats: Mapping[str, object]) -> Iterator[LoadedTopic]:
    for namespace, ranges in stats.items():
        for hash_range, domains in ranges.items() if isinstance(ranges, dict) else ():
            for topics in domains.values() if isinstance(domains, dict) else ():
                for name, load in topics.items() if isinstance(topics, dict) else ():
                    values = total_rate(load, "msgRate"), total_rate(load, "msgThroughput")
                    yield LoadedTopic(one_line(name, 300), f"{namespace}/{hash_range}", broker, *values)


def all_advice(runtimes: Runtimes, topics: LoadedTopics, runs: Sequence[StoragePath]) -> list[Advice]:
    """Return what is wrong, the gravest first; `runs` decided the same sample as if all hits were reached."""
    brokers = Snapshot(runs[0]).read_table("brokers").num_rows
    found = [*_validation_advice(runs), *strategy_class_advice(runtimes)]
    found += [each for run in runs for each in _large_bundle_advice(run, topics.topics)]
    found += islice(crowded_partition_advice(topics.topics, brokers), _MAX_LISTED)
    if topics.unread_brokers:
        named = ", ".join(topics.unread_brokers[:_MAX_NAMED])
        found.append(Advice("Topics of some brokers were not read.", named, "Inspect again at a quieter time."))
    return list(dict.fromkeys(found))


def _validation_advice(runs: Iterable[StoragePath]) -> Iterator[Advice]:
    evidence: dict[Reason, dict[str, str]] = {}
    for finding in (each for run in runs for each in Snapshot(run).validation.findings):
        detail = finding.detail if finding.subject in finding.detail else f"{finding.subject}: {finding.detail}"
        evidence.setdefault(finding.reason, {})[one_line(detail, 200)] = _fix_command(finding)
    for reason in sorted(evidence.keys() - _REASONS_FOR_RUNS, key=list(Reason).index):
        named = list(evidence[reason])[:_MAX_NAMED]
        more = f"; and {len(evidence[reason]) - _MAX_NAMED} more" if len(evidence[reason]) > _MAX_NAMED else ""
        commands = dict.fromkeys(evidence[reason][each] for each in named)
        fix = " ".join(filter(None, [reason.action, *commands]))
        yield Advice(reason.meaning, "; ".join(named) + more, fix, reason)


def _fix_command(finding: Finding) -> str:
    bundle = _BUNDLE_PATTERN.search(finding.detail)
    if finding.reason is Reason.FEW_BUNDLES and bundle:
        return _split_command(bundle[0])
    if finding.reason is not Reason.NOT_RECOMMENDED:
        return ""
    return _unload_command(bundle[0]) if bundle else next((_FIXES[key] for key in _FIXES if key in finding.detail), "")


def strategy_class_advice(runtimes: Runtimes) -> Iterator[Advice]:
    named = load_balancer_classes(runtimes)
    if named["manager"] == "ModularLoadManagerImpl" and (named["shedder"] == Placement.AVG) != (
        named["placement"] == Placement.AVG
    ):
        yield Advice(
            f"{Placement.AVG} chooses destinations only if it is both the shedder and the placement strategy.",
            f"shedder {named['shedder']}, placement {named['placement']}",
            "Set loadBalancerLoadSheddingStrategy and loadBalancerLoadPlacementStrategy in broker.conf to the same "
            "class, and restart the brokers.",
        )


def _large_bundle_advice(folder: StoragePath, topics: Iterable[LoadedTopic]) -> Iterator[Advice]:
    summary = Summary.read_or_none(folder)
    if summary is None:
        return
    settings = summary.resolved.settings
    for sentence in summary.splits_told:
        named = _BUNDLE_PATTERN.search(sentence)
        command = _split_command(named[0]) if named else ""
        yield Advice("A bundle is too large.", sentence, command)
    targets = {
        row["source"]: (Measure(row["measure"]), row["target"])
        for row in read_decisions(folder)
        if row["reason"] == Reason.NO_FITTING_BUNDLE and row["target"] is not None
    }
    large = []
    for topic in topics:
        alone = BundleLoad(topic.bundle, topic.broker, 1, 0, topic.msg_rate, topic.msg_throughput)
        measure, target = targets.get(topic.broker, (Measure.RATE, math.inf))
        if split_condition(alone, settings) is not None or getattr(topic, measure) > target:
            large.append(topic)
    for topic in sorted(large, key=lambda each: (-each.msg_throughput, each.name))[:_MAX_LISTED]:
        yield Advice(
            "One topic is so large that no split makes its bundle small enough.",
            f"{topic.name}: {topic.msg_rate:,.0f} msg/s, {topic.msg_throughput:,.0f} bytes/s, on {topic.broker}",
            _partition_advice(topic.name),
            Reason.NO_POSITION,
        )


def _partition_advice(topic: str) -> str:
    base, _, number = topic.rpartition("-partition-")
    if number.isdecimal() and base:
        return f"pulsar-admin topics update-partitioned-topic {base} --partitions N"
    return "Spread the topic's traffic over the partitions of a new topic: pulsar-admin topics create-partitioned-topic"


def _split_command(bundle: str) -> str:
    return f"pulsar-admin namespaces split-bundle {namespace_of(bundle)} --bundle {range_of(bundle)}"


async def find_topic(admin: PulsarAdmin, topic: str, topics: Sequence[LoadedTopic], run: StoragePath) -> dict[str, str]:
    _, tenant, local, _ = split_topic(topic)
    bounds = await admin.bundles.boundaries(f"{tenant}/{local}")
    ranges = (f"{tenant}/{local}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(bounds))
    bundle = next(name for name in ranges if is_in_bundle(topic, name))
    broker = next(iter(Snapshot(run).owners([bundle]).get(bundle, ())), "")
    load = next((f"{t.msg_rate:,.0f} msg/s, {t.msg_throughput:,.0f} bytes/s" for t in topics if t.name == topic), "")
    return {"topic": topic, "bundle": bundle, "broker": broker, "load": load, "why": _bundle_fate(run, bundle, broker)}


def _bundle_fate(run: StoragePath, bundle: str, broker: str) -> str:
    if not broker:
        return f"stays: {Reason.UNKNOWN_NAME.meaning}"
    if Summary.read_or_none(run) is None:
        return f"stays: {Reason.BLOCKED.meaning}"
    if move := next((each for each in read_moves(run) if each.bundle == bundle), None):
        return f"would move to {move.destination}"
    candidate = [Reason(row["reason"]) for row in candidate_rows(run) if row["bundle"] == bundle]
    judged = [row for row in read_decisions(run) if broker in (row["source"], row["destination"])]
    if not candidate and judged:
        return f"stays [{judged[0]['reason']}]: {judged[0]['explanation']}"
    reason = candidate[0] if candidate else Reason.UNKNOWN_NAME
    return f"stays [{reason}]: {reason.meaning}"


def crowded_partition_advice(topics: Iterable[LoadedTopic], brokers: int) -> Iterator[Advice]:
    partitions: dict[str, list[LoadedTopic]] = {}
    for topic in topics:
        base, _, number = topic.name.rpartition("-partition-")
        if number.isdecimal():
            partitions.setdefault(base, []).append(topic)
    for base, parts in partitions.items():
        broker, held = Counter(part.broker for part in parts).most_common(1)[0]
        if exceeds_twice_fair_share(held, len(parts), brokers):
            largest = max((part for part in parts if part.broker == broker), key=lambda part: part.msg_throughput)
            evidence = f"{base}: {held} of {number_of(len(parts), 'partition')} on {broker}"
            yield Advice("One broker has too many partitions of a topic.", evidence, _unload_command(largest.bundle))


def _unload_command(bundle: str) -> str:
    command = f"pulsar-admin namespaces unload {namespace_of(bundle)} --bundle {range_of(bundle)}"
    return f"{command} --destinationBroker HOST:PORT"
