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
from pulsar_rebalancer.collect.collector import Collected
from pulsar_rebalancer.collect.split_candidates import carried
from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.decide.split_algorithms import LoadedBundle, condition_of
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import SYSTEM_NAMESPACE, is_in_bundle, namespace_of, range_of
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.pulsar.answers import split_topic
from pulsar_rebalancer.pulsar.client import shedding_is_on
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary, candidate_rows, read_decisions, read_moves
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import Measure, Row
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import number_of, one_line

SECONDS_FOR_TOPICS = 20.0
_NAMED = 4
_MOST = 5
"""Maximum number of findings of a kind."""

_OF_THE_REBALANCER = {Reason.BUILTIN_SHEDDING_ON}
"""Findings that concern only runs, not the cluster."""

_SET = "pulsar-admin brokers update-dynamic-config --config {} --value {}"
_FIXES = {
    "even_distribution": _SET.format("loadBalancerDistributeBundlesEvenlyEnabled", "false"),
    "max_unload_percentage": _SET.format("maxUnloadPercentage", 0.5),
}
"""Commands for settings that are not recommended."""

_BUNDLE = re.compile(r"[^\s/]+/[^\s/]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}")


class Advice(NamedTuple):
    what: str
    evidence: str
    fix: str
    reason: str = ""


class Topic(NamedTuple):
    """A loaded topic with its traffic, in and out, in msg/s and bytes/s."""

    name: str
    bundle: str
    broker: str
    msg_rate: float
    msg_throughput: float


class Topics(NamedTuple):
    loaded: Sequence[Topic]
    unread: Sequence[str]


def configured(runtimes: Runtimes) -> dict[str, str]:
    runtime = runtimes.of_leader
    names = {
        "manager": "loadManagerClassName",
        "shedder": "loadBalancerLoadSheddingStrategy",
        "placement": "loadBalancerLoadPlacementStrategy",
    }
    classes = {kind: one_line(runtime.get(name, "").rpartition(".")[2], 100) for kind, name in names.items()}
    return classes | {"shedding": "on" if any(map(shedding_is_on, runtimes.by_broker.values())) else "off"}


async def read_topics(admin: PulsarAdmin, sample: Collected) -> Topics:
    brokers = [row["broker"] for row in sample.tables["brokers"].select(["broker", "error"]).to_pylist()]
    loaded: list[Topic] = []
    unread = set(brokers)
    try:
        async with asyncio.timeout(SECONDS_FOR_TOPICS):
            for broker in brokers:  # one long answer at a time
                try:
                    loaded += _topics(broker, await admin.topic_stats(broker))
                    unread.discard(broker)
                except AdminError:
                    continue
    except TimeoutError:
        pass
    return Topics(loaded, sorted(unread))


def _topics(broker: str, stats: Mapping[str, object]) -> Iterator[Topic]:
    for namespace, ranges in stats.items():
        for hash_range, domains in ranges.items() if isinstance(ranges, dict) else ():
            for topics in domains.values() if isinstance(domains, dict) else ():
                for name, load in topics.items() if isinstance(topics, dict) else ():
                    values = carried(load, "msgRate"), carried(load, "msgThroughput")
                    yield Topic(one_line(name, 300), f"{namespace}/{hash_range}", broker, *values)


async def findings(admin: PulsarAdmin, runtimes: Runtimes, topics: Topics, runs: Sequence[StoragePath]) -> list[Advice]:
    """Return what is wrong, the gravest first; `runs` decided the same sample as if all hits were reached."""
    first = Snapshot(runs[0])
    brokers, bundles = first.table("brokers").num_rows, _bundles(first)
    found = [*_of_validation(runs), *of_classes(runtimes)]
    found += [each for run in runs for each in _stuck(run, topics.loaded)]
    found += await _few_bundles(admin, bundles, brokers)
    found += islice(crowded_partitions(topics.loaded, brokers), _MOST)
    found += crowded_system(bundles, brokers)
    if topics.unread:
        named = ", ".join(topics.unread[:_NAMED])
        found.append(Advice("Topics of some brokers were not read.", named, "Look at them again when they are idle."))
    return list(dict.fromkeys(found))


def _bundles(run: Snapshot) -> list[Row]:
    columns = ["bundle", "broker", "topics", "msg_throughput_in", "msg_throughput_out"]
    rows = run.table("bundles", columns).to_pylist()
    for row in rows:
        row["traffic"] = max(0.0, (row["msg_throughput_in"] or 0.0) + (row["msg_throughput_out"] or 0.0))
    return rows


def _of_validation(runs: Iterable[StoragePath]) -> Iterator[Advice]:
    evidence: dict[Reason, dict[str, None]] = {}
    for finding in (each for run in runs for each in Snapshot(run).validation.findings):
        detail = finding.detail if finding.subject in finding.detail else f"{finding.subject}: {finding.detail}"
        evidence.setdefault(finding.reason, {})[one_line(detail, 200)] = None
    for reason in sorted(evidence.keys() - _OF_THE_REBALANCER, key=list(Reason).index):
        named = list(evidence[reason])
        more = f"; and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        commands = _FIXES if reason is Reason.NOT_RECOMMENDED else {}
        fix = " ".join([reason.action, *(commands[name] for name in commands if any(name in each for each in named))])
        yield Advice(reason.meaning, "; ".join(named[:_NAMED]) + more, fix.strip(), reason)


def of_classes(runtimes: Runtimes) -> Iterator[Advice]:
    named = configured(runtimes)
    if named["manager"] == "ModularLoadManagerImpl" and (named["shedder"] == Placement.AVG) != (
        named["placement"] == Placement.AVG
    ):
        yield Advice(
            f"{Placement.AVG} names destinations only if it is both shedder and placement.",
            f"shedder {named['shedder']}, placement {named['placement']}",
            "Set loadBalancerLoadSheddingStrategy and loadBalancerLoadPlacementStrategy in broker.conf to the same "
            "class, and restart the brokers.",
        )
    managers = Counter(each.get("loadManagerClassName", "") for each in runtimes.by_broker.values())
    if len(managers) > 1:
        counted = ", ".join(f"{one_line(name.rpartition('.')[2], 100)} x{count}" for name, count in managers.items())
        yield Advice("Two load managers balance at once.", counted, "Set one loadManagerClassName on all brokers.")


def _stuck(folder: StoragePath, topics: Iterable[Topic]) -> Iterator[Advice]:
    summary = Summary.known(folder)
    if summary is None:
        return
    settings = summary.resolved.settings
    for told in summary.splits_told:
        named = _BUNDLE.search(told)
        command = _split(named[0]) if named else ""
        yield Advice("A bundle is too large.", told, command)
    targets = {
        row["source"]: (Measure(row["measure"]), row["target"])
        for row in read_decisions(folder)
        if row["reason"] == Reason.NO_FITTING_BUNDLE and row["target"] is not None
    }
    large = []
    for topic in topics:
        alone = LoadedBundle(topic.bundle, topic.broker, 1, 0, topic.msg_rate, topic.msg_throughput)
        measure, target = targets.get(topic.broker, (Measure.RATE, math.inf))
        if condition_of(alone, settings) is not None or getattr(topic, measure) > target:
            large.append(topic)
    for topic in sorted(large, key=lambda each: (-each.msg_throughput, each.name))[:_MOST]:
        yield Advice(
            "One topic fills a bundle, so no split makes it small enough.",
            f"{topic.name}: {topic.msg_rate:,.0f} msg/s, {topic.msg_throughput:,.0f} bytes/s, on {topic.broker}",
            _more_partitions(topic.name),
            Reason.NO_POSITION,
        )


def _more_partitions(topic: str) -> str:
    base, _, number = topic.rpartition("-partition-")
    if number.isdecimal() and base:
        return f"pulsar-admin topics update-partitioned-topic {base} --partitions N"
    return "Spread its traffic over the partitions of a new topic: pulsar-admin topics create-partitioned-topic"


def _split(bundle: str) -> str:
    return f"pulsar-admin namespaces split-bundle {namespace_of(bundle)} --bundle {range_of(bundle)}"


async def _few_bundles(admin: PulsarAdmin, bundles: Sequence[Row], brokers: int) -> list[Advice]:
    """Return advice about namespaces that carry more than a broker's fair share, on fewer bundles than brokers."""
    traffic: Counter[str] = Counter()
    for row in bundles:
        traffic[namespace_of(row["bundle"])] += row["traffic"]
    found, whole = [], sum(traffic.values())
    for namespace, carries in traffic.items():
        if carries * brokers <= whole:
            continue
        try:
            count = len(await admin.bundles.bounds(namespace)) - 1
        except AdminError:
            continue
        if count < brokers:
            own = (row for row in bundles if namespace_of(row["bundle"]) == namespace)
            largest = max(own, key=lambda row: (row["traffic"], row["bundle"]))
            evidence = f"{namespace}: {number_of(count, 'bundle')}, {number_of(brokers, 'broker')}"
            evidence += f", {carries / whole:.0%} of the traffic"
            fix = _split(largest["bundle"])
            found.append(Advice("A namespace has fewer bundles than there are brokers.", evidence, fix))
    return found


async def place_of(admin: PulsarAdmin, topic: str, topics: Sequence[Topic], run: StoragePath) -> dict[str, str]:
    _, tenant, local, _ = split_topic(topic)
    bounds = await admin.bundles.bounds(f"{tenant}/{local}")
    ranges = (f"{tenant}/{local}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(bounds))
    bundle = next(name for name in ranges if is_in_bundle(topic, name))
    broker = next(iter(Snapshot(run).owners([bundle]).get(bundle, ())), "")
    load = next((f"{t.msg_rate:,.0f} msg/s, {t.msg_throughput:,.0f} bytes/s" for t in topics if t.name == topic), "")
    return {"topic": topic, "bundle": bundle, "broker": broker, "load": load, "why": _why(run, bundle, broker)}


def _why(run: StoragePath, bundle: str, broker: str) -> str:
    if not broker:
        return f"stays: {Reason.UNKNOWN_NAME.meaning}"
    if Summary.known(run) is None:
        return f"stays: {Reason.BLOCKED.meaning}"
    if move := next((each for each in read_moves(run) if each.bundle == bundle), None):
        return f"would move to {move.destination}"
    candidate = [Reason(row["reason"]) for row in candidate_rows(run) if row["bundle"] == bundle]
    judged = [row for row in read_decisions(run) if broker in (row["source"], row["destination"])]
    if not candidate and judged:
        return f"stays [{judged[0]['reason']}]: {judged[0]['explanation']}"
    reason = candidate[0] if candidate else Reason.UNKNOWN_NAME
    return f"stays [{reason}]: {reason.meaning}"


def _is_crowded(held: int, whole: int, brokers: int) -> bool:
    return held > 2 * math.ceil(whole / max(brokers, 1))


def crowded_partitions(topics: Iterable[Topic], brokers: int) -> Iterator[Advice]:
    partitions: dict[str, list[Topic]] = {}
    for topic in topics:
        base, _, number = topic.name.rpartition("-partition-")
        if number.isdecimal():
            partitions.setdefault(base, []).append(topic)
    for base, parts in partitions.items():
        broker, held = Counter(part.broker for part in parts).most_common(1)[0]
        if _is_crowded(held, len(parts), brokers):
            largest = max((part for part in parts if part.broker == broker), key=lambda part: part.msg_throughput)
            evidence = f"{base}: {held} of {number_of(len(parts), 'partition')} on {broker}"
            yield Advice("Partitions of a topic are crowded on a broker.", evidence, _unload(largest.bundle))


def crowded_system(bundles: Iterable[Row], brokers: int) -> Iterator[Advice]:
    system = [row for row in bundles if namespace_of(row["bundle"]) == SYSTEM_NAMESPACE]
    broker, held = next(iter(Counter(row["broker"] for row in system).most_common(1)), ("", 0))
    if _is_crowded(held, len(system), brokers):
        bundle = next(row["bundle"] for row in system if row["broker"] == broker)
        evidence = f"{held} of {number_of(len(system), 'bundle')} on {broker}"
        yield Advice(f"Bundles of {SYSTEM_NAMESPACE} are crowded on a broker.", evidence, _unload(bundle))


def _unload(bundle: str) -> str:
    command = f"pulsar-admin namespaces unload {namespace_of(bundle)} --bundle {range_of(bundle)}"
    return f"{command} --destinationBroker HOST:PORT"
