"""Build a simulated cluster from a scenario and a seed."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from pulsar_simulator.load import NOBODY, Cost, Floats, Ints, assign_bundles
from pulsar_simulator.minutes.machines import BrokerColumns, ClusterRules, CpuSpike, Event, EventKind, RunSpec
from pulsar_simulator.minutes.workload import BundleColumns, OnOffTopics, Spike, Workload, random_stream

if TYPE_CHECKING:
    from lab.experiments.scenario import Scenario

MIB = 1 << 20
BASE_LOAD = 1.5
"""CPU of a broker without traffic, percent of its own."""

_KBIT_PER_GBIT = 1e6

_SIZES, _COSTS, _PEAKS, _OWNERS, _SPIKES = range(5)  # one random stream each, and for each group of bundles


def build(scenario: Scenario, seed: int, *, direct: bool) -> RunSpec:
    """Return the specification of the scenario's cluster.

    Args:
        seed: seed for all random values.
        direct: True if the cluster places bundles like the extensible load manager.
    """
    brokers = _brokers(scenario)
    bundles = _bundles(scenario, seed)
    costs = scenario.unload_cost.model_dump()
    rules = ClusterRules(assigns_at_once=direct, busy_cpu=scenario.busy_cpu, **scenario.reports.model_dump(), **costs)
    started = np.array(_of_each(scenario, "started"), dtype=bool)
    owner, bundles = _placed(scenario, seed, brokers, bundles, rules.cost, started)
    return RunSpec(
        brokers=brokers,
        workload=Workload(bundles, _on_off(scenario), _traffic_spikes(scenario, seed, len(bundles.names)), seed),
        initial_owner=owner,
        is_started=started,
        rules=rules,
        events=_events(scenario),
        cpu_spikes=tuple(
            CpuSpike(each.minute, each.minutes, each.broker - 1, each.load / 100 * brokers.cpu_limit[each.broker - 1])
            for each in scenario.cpu_spikes
        ),
        seed=seed,
    )


def _of_each(scenario: Scenario, name: str) -> list[float]:
    """Return a value of the groups, one entry per broker."""
    return list(chain.from_iterable([getattr(group, name)] * group.count for group in scenario.brokers))


def _brokers(scenario: Scenario) -> BrokerColumns:
    limit = 100 * np.array(_of_each(scenario, "cores"))
    other = np.array(_of_each(scenario, "other_load"))
    return BrokerColumns(
        # Names in the order of the numbers: ties are decided by name.
        names=tuple(f"broker-{number:04d}:8080" for number in range(1, len(limit) + 1)),
        cpu_limit=limit,
        nic=_KBIT_PER_GBIT * np.array(_of_each(scenario, "nic_gbit")),
        base_cpu=(BASE_LOAD + other) / 100 * limit,
    )


def _bundles(scenario: Scenario, seed: int) -> BundleColumns:
    names: list[str] = []
    columns: dict[str, list[Floats]] = {
        name: [] for name in ("msg_rate_in", "msg_size", "fan_out", "cost", "noise", "daily", "peak", "trend")
    }
    clients: list[int] = []
    for number, group in enumerate(scenario.bundles):
        width = 0x100000000 // group.count
        names += [
            f"experiment/load-{number:02d}/0x{i * width:08x}_0x{min((i + 1) * width, 0xFFFFFFFF):08x}"
            for i in range(group.count)
        ]
        sizes = np.exp(group.spread * random_stream(seed, _SIZES, number).standard_normal(group.count))
        costs = np.exp(group.cost_spread * random_stream(seed, _COSTS, number).standard_normal(group.count))
        peak = 12 + group.peak_spread_hours * random_stream(seed, _PEAKS, number).uniform(-1, 1, group.count)
        rate = group.throughput_mib * MIB / group.message_bytes * sizes / sizes.sum()
        found = {"msg_rate_in": rate, "cost": costs}
        for name, value in (("msg_size", group.message_bytes), ("peak", peak)):
            found[name] = np.full(group.count, value, dtype=np.float64)
        for name in ("fan_out", "noise", "daily", "trend"):
            found[name] = np.full(group.count, getattr(group, name), dtype=np.float64)
        for name, column in found.items():
            columns[name].append(column)
        clients += [group.clients] * group.count
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return BundleColumns(names=tuple(names), clients=np.array(clients, dtype=np.int64), **joined)


def _placed(
    scenario: Scenario,
    seed: int,
    brokers: BrokerColumns,
    bundles: BundleColumns,
    cost: Cost,
    started: np.ndarray,
) -> tuple[Ints, BundleColumns]:
    """Return the owners at the start, and the bundles, scaled where the brokers' load is given."""
    count, there = len(bundles.names), np.flatnonzero(started)
    if scenario.placed == "placement":
        return np.full(count, NOBODY, dtype=np.int64), bundles
    if scenario.placed == "even":
        return there[np.arange(count) % len(there)].astype(np.int64), bundles
    if scenario.placed == "random":
        return random_stream(seed, _OWNERS).choice(there, count).astype(np.int64), bundles
    wanted = (np.array(scenario.load) / 100 * brokers.cpu_limit - brokers.base_cpu).clip(0)
    messages = bundles.msg_rate_in * (1 + bundles.fan_out)
    carried = 100 * bundles.cost * messages * (cost.per_message + cost.per_byte * bundles.msg_size)
    owner = assign_bundles(carried, wanted)
    has = np.bincount(owner, weights=carried, minlength=len(wanted))
    factor = np.divide(wanted, has, out=np.zeros_like(wanted), where=has > 0)
    columns = {name: getattr(bundles, name) for name in bundles.__dataclass_fields__}
    return owner, BundleColumns(**columns | {"msg_rate_in": bundles.msg_rate_in * factor[owner]})


def _on_off(scenario: Scenario) -> tuple[OnOffTopics, ...]:
    found, first = [], 0
    for group in scenario.bundles:
        if group.on_off is not None:
            members = np.arange(first, first + group.count)
            found.append(OnOffTopics(members, group.on_off.on, group.on_off.off, group.on_off.consume_only))
        first += group.count
    return tuple(found)


def _traffic_spikes(scenario: Scenario, seed: int, count: int) -> tuple[Spike, ...]:
    return tuple(
        Spike(
            random_stream(seed, _SPIKES, number).permutation(count)[: round(spike.share * count)],
            spike.minute,
            spike.minutes,
            spike.factor,
        )
        for number, spike in enumerate(scenario.traffic_spikes)
    )


def _events(scenario: Scenario) -> tuple[Event, ...]:
    return tuple(
        Event(change.minute, number - 1, happening)
        for change in scenario.changes
        for numbers, happening in ((change.stop, EventKind.STOP), (change.start, EventKind.START))
        for number in numbers
    )
