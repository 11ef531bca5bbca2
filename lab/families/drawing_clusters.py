"""Draw a simulated cluster from a family and a seed. Values are rounded, so that every machine draws the same."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lab.experiments.building import BASE_LOAD
from pulsar_simulator.load import assign_bundles
from pulsar_simulator.minutes import workload
from pulsar_simulator.minutes.machines import BrokerColumns, ClusterRules, Event, EventKind, RunSpec
from pulsar_simulator.minutes.workload import MINUTES_PER_DAY, BundleColumns, OnOffTopics, Workload, random_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.families.family import Family
    from pulsar_simulator.load import Cost, Flags, Floats, Ints

MESSAGE_BYTES = 1024.0
KINDS = ("daily", "drift", "shifts", "bursts", "pauses", "jobs", "weeks", "arrivals")
"""Kinds of load; each has its own random stream."""

_LAGGING, _CLUSTER, _CORES, _SLOW, _SIZES, _COSTS, _RESTARTS, _SCALINGS, _SERIES = range(99, 108)  # a stream each
_KBIT = 25e6  # of a NIC: never the most used resource here
_DIGITS = 9  # exp and cos of two machines may differ in the last of 16


def draw(family: Family, seed: int, *, direct: bool) -> RunSpec:
    """Return the cluster that a seed draws from a family.

    Args:
        direct: True if the cluster places bundles like the extensible load manager.
    """
    random = random_stream(seed, _CLUSTER)
    at_start = int(random.integers(*family.brokers.count, endpoint=True))
    load = float(random.uniform(*family.brokers.load))
    started = np.arange(at_start + family.changes.spare) < at_start
    brokers = _brokers(family, seed, len(started))
    rules = ClusterRules(assigns_at_once=direct, **family.reports.model_dump())
    wanted = (load - BASE_LOAD) / 100 * brokers.cpu_limit * started
    bundles = _bundles(family, seed, at_start, rules.cost, wanted.sum())
    stable = max(1, at_start - family.changes.spare)
    series = np.hstack([_series(family, number, seed, at_start) for number in range(len(family.topics))])
    return RunSpec(
        brokers=brokers,
        workload=Workload(bundles, tuple(_lagging(family, seed, at_start)), seed=seed, series=series.round(_DIGITS)),
        # As an operator would who knows cores and messages, but neither slow machines nor costs.
        initial_owner=assign_bundles(bundles.msg_rate_in, wanted),
        is_started=started,
        rules=rules,
        events=tuple(sorted((*_restarts(family, seed, stable), *_scalings(family, seed, started, stable)))),
        seed=seed,
    )


def _brokers(family: Family, seed: int, count: int) -> BrokerColumns:
    machines = family.brokers
    limit = 100 * random_stream(seed, _CORES).choice(machines.cores, count)
    random = random_stream(seed, _SLOW)
    slow = random.permutation(count) < round(machines.slow * count)
    return BrokerColumns(
        names=tuple(f"broker-{number:04d}:8080" for number in range(1, count + 1)),
        cpu_limit=limit,
        nic=np.full(count, _KBIT),
        base_cpu=BASE_LOAD / 100 * limit,
        slowness=np.where(slow, random.uniform(*machines.slowness, count).round(_DIGITS), 1.0),
    )


def _bundles(family: Family, seed: int, brokers: int, cost: Cost, cpu: float) -> BundleColumns:
    """Return the bundles, with traffic that costs `cpu` percent of one core altogether."""
    names: list[str] = []
    rates: list[Floats] = []
    costs: list[Floats] = []
    counts = [topics.per_broker * brokers for topics in family.topics]
    shares = sum(topics.share for topics in family.topics)
    for number, (topics, count) in enumerate(zip(family.topics, counts, strict=True)):
        edges = [round(edge) for edge in np.linspace(0, 0xFFFFFFFF, count + 1)]
        names += [f"family/load-{number:02d}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(edges)]
        random = random_stream(seed, _SIZES, number)
        lognormal = np.exp(topics.size_spread * random.standard_normal(count))
        sizes = lognormal if topics.tail is None else 1 + random.pareto(topics.tail, count)
        relative = np.exp(topics.cost_spread * random_stream(seed, _COSTS, number).standard_normal(count))
        of_message = 2 * 100 * (cost.per_message + cost.per_byte * MESSAGE_BYTES)  # published and delivered
        rates.append(topics.share / shares * cpu / of_message * sizes / (sizes * relative).sum())
        costs.append(relative)

    def of_each(name: str) -> Floats:
        return np.repeat([float(getattr(topics, name)) for topics in family.topics], counts)

    nothing = np.zeros(len(names))
    return BundleColumns(
        names=tuple(names),
        msg_rate_in=np.concatenate(rates).round(3),
        msg_size=nothing + MESSAGE_BYTES,
        fan_out=nothing + 1,
        cost=np.concatenate(costs).round(_DIGITS),
        clients=of_each("clients").astype(np.int64),
        noise=of_each("noise"),
        daily=nothing,
        peak=nothing,
        trend=nothing,
    )


def _series(family: Family, number: int, seed: int, brokers: int) -> Floats:
    """Return the factors on the traffic of one kind of topics."""
    topics = family.topics[number]
    tenants = -(-topics.per_broker * brokers // topics.tenant)
    factors = np.ones((family.minutes, tenants))
    for kind, name in enumerate(KINDS):
        settings = getattr(topics, name)
        if settings is not None:
            stream = random_stream(seed, _SERIES + kind, number)
            factors *= getattr(workload, name)(stream, family.minutes, tenants, **settings.model_dump())
    return factors[:, np.arange(topics.per_broker * brokers) // topics.tenant]


def _lagging(family: Family, seed: int, brokers: int) -> Iterator[OnOffTopics]:
    """Let the consumers of each tenant fall behind, each with its own period."""
    first = 0
    for number, topics in enumerate(family.topics):
        random, count = random_stream(seed, _LAGGING, number), topics.per_broker * brokers
        for start in range(first, first + count, topics.tenant):
            if lagging := topics.lagging:
                reading, away = (int(random.integers(*of, endpoint=True)) for of in (lagging.reading, lagging.away))
                bundles, begun = np.arange(start, min(start + topics.tenant, first + count)), random.integers(1 << 20)
                yield OnOffTopics(bundles, reading, away, consume_only=True, begun=int(begun) % (reading + away))
        first += count


def _moments(random: np.random.Generator, family: Family, per_day: float) -> Ints:
    """Return the minutes of events that happen independently of each other, none in the first hour."""
    count = random.poisson(per_day * family.minutes / MINUTES_PER_DAY)
    return np.unique(random.integers(min(60, family.minutes - 1), family.minutes, count))


def _restarts(family: Family, seed: int, stable: int) -> Iterator[Event]:
    """Restart brokers that scaling never takes away, one at a time, or all of them in turn."""
    random, back = random_stream(seed, _RESTARTS), 0
    for minute in _moments(random, family, family.changes.restarts_per_day).tolist():
        away, broker = int(random.integers(*family.changes.away, endpoint=True)), int(random.integers(stable))
        if minute > back:
            turn = family.changes.in_turn
            for each in (broker,) if turn is None else range(stable):
                back = minute + away
                yield Event(minute, each, EventKind.STOP)
                yield Event(back, each, EventKind.START)
                minute = back + (turn or 0)


def _scalings(family: Family, seed: int, started: Flags, stable: int) -> Iterator[Event]:
    """Start or stop one of the brokers that are not stable, whichever is possible."""
    random, there = random_stream(seed, _SCALINGS), started.copy()
    for minute in _moments(random, family, family.changes.scalings_per_day).tolist():
        broker = int(random.integers(stable, len(started)))
        there[broker] = not there[broker]
        yield Event(minute, broker, EventKind.START if there[broker] else EventKind.STOP)
