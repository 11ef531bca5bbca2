"""Runs of clusters of any size, as collect and validate leave them: seeded, and written in seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.config.clusters_file import RunSettings
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import BROKERS, BUNDLE_COSTS, BUNDLES, CLUSTER, COSTS, MEANS, RATES, TRAFFIC, write
from pulsar_rebalancer.state import (
    NOTHING_LEARNED,
    DecisionState,
    LearnedBroker,
    LearnedValues,
    MovesState,
    ShedderState,
    StrategyState,
    Unload,
)
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.shedders.registry import profile_of

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.path import StoragePath

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAME = "bench"
VERSION = "4.0.8"
"""Of all brokers."""

_PER_NAMESPACE = 64
_EVERY = 100
"""Of this number, one broker is reserved, one namespace is in an anti-affinity group, one bundle is new."""

POLICIES = (IsolationPolicy(name="reserved", namespaces=("tenant/reserved-.*",), primary=("reserved-.*",)),)

# Every pair fires on its first sample, and both caps bite.
FIRING = {
    "hit_count_low": 1,
    "hit_count_high": 1,
    "min_unload_message": 0,
    "max_bundles_per_broker": 12,
    "overloaded_threshold": 75,
}

EAGER_TRANSFER = {"hit_count_transfer": 0, "shedding_delay_seconds": 0}
"""Without them TransferShedder only counts a hit, and waits after a broker was unloaded."""


def make(root: str, brokers: int, bundles_each: int, *, seed: int = 1, **settings: Any) -> StoragePath:
    """Write a run whose brokers are hot and cold by turns, with means of the run before, policies and caps.

    Args:
        root: storage root.
        brokers: number of brokers.
        bundles_each: number of bundles per broker.
        seed: seed for the traffic.
        settings: in addition to `FIRING`.

    Returns:
        The run's folder, ready to be decided.
    """
    random = np.random.default_rng(seed)
    storage = ClusterStorage(root, NAME)
    run = storage.new_run_folder(NOW)
    reserved = max(2, brokers // _EVERY)
    held = _bundles(random, brokers, bundles_each, reserved)
    write(
        run,
        {"cluster": _cluster(brokers, held.num_rows), "brokers": _brokers(held, brokers, reserved), "bundles": held},
    )
    means = _means(random, held)
    chosen = Settings.model_validate(FIRING | {"max_bundles_per_run": 6 * brokers} | settings)
    learned = NOTHING_LEARNED
    if profile_of(chosen).learns:
        learned = _learned(brokers, each=bundles_each)
        (storage.state / "costs-1-bench.parquet").write_table(_costs(random, means))
    (storage.state / "means-1-bench.parquet").write_table(means)
    RunRequest(
        cluster=NAME, airflow_run_id="benchmark", resolved=RunSettings(settings=chosen, origins={}), collected_at=NOW
    ).write(run)
    before = NOW - timedelta(seconds=chosen.interval_seconds)
    decision = DecisionState(
        seq=1,
        counted_at=before,
        strategy=chosen.strategy,
        means="means-1-bench.parquet",
        strategy_state=StrategyState(ShedderState(learned=learned)).document(),
    )
    moves = MovesState(unloads={name: _unload(before) for name in held["bundle"].to_pylist()[::5000]})
    StateBefore(decision=decision, moves=moves).write(run)
    _policies(held).write(run)
    Validation().write(run)
    return run


def _names(brokers: int, reserved: int) -> list[str]:
    first = [f"reserved-{n:05}.pulsar:8080" for n in range(reserved)]
    return first + [f"broker-{n:05}.pulsar:8080" for n in range(brokers - reserved)]


def _shares(brokers: int) -> np.ndarray[Any, Any]:
    """Return the load of every broker, 1 is the hottest: hot and cold ones by turns, so that every pair differs."""
    spread = np.linspace(0, 0.3, brokers)
    return np.where(np.arange(brokers) % 2, 0.7 + spread, 0.1 + spread)


def _bundles(random: np.random.Generator, brokers: int, each: int, reserved: int) -> pa.Table:
    """Return the bundles; those of a namespace lie anywhere among the shared or among the reserved brokers."""
    count = brokers * each
    owner = np.repeat(np.arange(brokers), each)
    owner[: reserved * each] = random.permutation(owner[: reserved * each])
    owner[reserved * each :] = random.permutation(owner[reserved * each :])
    last_reserved = reserved * each
    kinds = ["reserved" if first < last_reserved else "shared" for first in range(0, count, _PER_NAMESPACE)]
    ranges = [f"0x{n << 26:08x}_0x{min((n + 1) << 26, 0xFFFFFFFF):08x}" for n in range(_PER_NAMESPACE)]
    rate = np.round(random.exponential(400.0, count) * _shares(brokers)[owner], 1)
    ones = np.ones(count, dtype="int64")
    names = [f"tenant/{kind}-{n:05}/{each}" for n, kind in enumerate(kinds) for each in ranges][:count]
    policy = np.repeat(np.array([_policy(n, kind) for n, kind in enumerate(kinds)], dtype=object), _PER_NAMESPACE)
    columns: dict[str, Any] = {
        "cluster": np.full(count, NAME),
        "broker": pa.array(_names(brokers, reserved), pa.string()).take(owner),
        "bundle": pa.array(names, pa.string()),
        **{name: rate if "rate" in name else rate * 1024 for name in TRAFFIC},
        **dict.fromkeys(("topics", "producers", "consumers", "owners"), ones),
        "cache_size": np.zeros(count, dtype="int64"),
        "top_rank": pa.nulls(count, pa.int64()),
        "policy": pa.array(policy[:count], pa.string()),
    }
    return pa.table([columns[name] for name in BUNDLES.names], schema=BUNDLES)


def _policy(namespace: int, kind: str) -> str | None:
    if kind == "reserved":
        return "isolation"
    return "anti_affinity" if namespace % _EVERY == _EVERY // 2 else None


def _policies(held: pa.Table) -> Policies:
    """Return the isolation policy, and groups of eight namespaces each."""
    rows = held.select(["bundle", "policy"]).filter(pc.is_valid(held["policy"])).to_pylist()
    namespaces = sorted({namespace_of(row["bundle"]) for row in rows if row["policy"] == "anti_affinity"})
    groups = {name: f"group-{number // 8}" for number, name in enumerate(namespaces)}
    return Policies(isolation=POLICIES, groups=groups)


def _brokers(held: pa.Table, brokers: int, reserved: int) -> pa.Table:
    """Return the brokers: their traffic is that of their bundles, the hottest uses nine tenths of its CPU."""
    names, shares = _names(brokers, reserved), _shares(brokers)
    sums = held.select(["broker", *TRAFFIC]).group_by("broker").aggregate([(name, "sum") for name in TRAFFIC])
    of_broker = {row["broker"]: row for row in sums.to_pylist()}
    rows = [
        {
            "cluster": NAME,
            "broker": name,
            "collected_at": NOW,
            "listings": 1,
            "last_update": NOW,
            "report_age_seconds": 10.0,
            "started_at": NOW - timedelta(days=1),
            "host_samples": 1440.0,
            "reserved_by": "reserved" if number < reserved else None,
            "cpu_usage": float(shares[number] * 720),
            "cpu_limit": 800.0,
            **{f"{memory}_{part}": 1024.0 * size for memory in ("memory", "direct_memory") for part, size in _SIZES},
            **{f"bandwidth_{way}_{part}": 1e5 * size for way in ("in", "out") for part, size in _SIZES},
            **{measure: of_broker[name][f"{measure}_sum"] for measure in TRAFFIC},
            **dict.fromkeys(("topics", "bundles", "producers", "consumers"), held.num_rows // brokers),
            "version": VERSION,
        }
        for number, name in enumerate(names)
    ]
    return pa.Table.from_pylist(rows, schema=BROKERS)


_SIZES = (("usage", 1.0), ("limit", 16.0))


def _cluster(brokers: int, bundles: int) -> pa.Table:
    row = {
        "cluster": NAME,
        "collected_at": NOW,
        "leader": "broker-00000.pulsar:8080",
        "leader_read": True,
        "load_manager": "ModularLoadManagerImpl",
        "brokers_listed": brokers,
        "brokers_reported": brokers,
        "bundles": bundles,
        "builtin_shedding": False,
        "even_distribution": False,
        "settings_in_disagreement": "",
        "policies_readable": True,
    }
    return pa.Table.from_pylist([row], schema=CLUSTER)


def _means(random: np.random.Generator, held: pa.Table) -> pa.Table:
    """Return the means of the run before; one bundle of a hundred was not there."""
    known = held.filter(pa.array(np.arange(held.num_rows) % _EVERY != 0))
    change = random.uniform(0.8, 1.2, known.num_rows)
    columns: dict[str, Any] = {name: known[name] for name in ("cluster", "bundle")}
    columns |= {name: known[name].to_numpy() * change for name in TRAFFIC}
    columns["samples"] = random.integers(1, 30, known.num_rows)
    for measure in ("msg_rate", "msg_throughput"):
        columns[f"long_term_{measure}"] = columns[f"{measure}_in"] + columns[f"{measure}_out"]
    return pa.table([columns[name] for name in MEANS.names], schema=MEANS)


def _costs(random: np.random.Generator, means: pa.Table) -> pa.Table:
    """Return what was learned about the bundles of the means."""
    rate = means["msg_rate_in"].to_numpy() + means["msg_rate_out"].to_numpy()
    columns: dict[str, Any] = {name: rate * random.uniform(0.8, 1.2, len(rate)) for name in RATES}
    columns |= {"cost": random.lognormal(0, 0.3, len(rate)), "cost_variance": np.full(len(rate), 0.1)}
    columns["samples"] = means["samples"].to_numpy()
    values = [pa.array(columns[name], pa.float32()) for name in COSTS]
    return pa.table([means["bundle"], *values], schema=BUNDLE_COSTS)


def _learned(brokers: int, each: int) -> LearnedValues:
    """Return what was learned about the brokers."""
    names, shares = _names(brokers, max(2, brokers // _EVERY)), _shares(brokers).tolist()
    of_brokers = {name: LearnedBroker(99, 0.0, 90 * share) for name, share in zip(names, shares, strict=True)}
    return LearnedValues(99, 90 / (2 * 400.0 * each), 2.0, brokers=of_brokers)


def _unload(at: datetime) -> Unload:
    return Unload(at=at, plan_id="before", source="broker-00001.pulsar:8080", destination="broker-00002.pulsar:8080")
