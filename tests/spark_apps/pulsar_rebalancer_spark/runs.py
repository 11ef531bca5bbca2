from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.vectors.rows import bundles_of

from pulsar_rebalancer.config.clusters_file import RunParams, RunSettings
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import stays
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.run import bundle_columns
from pulsar_rebalancer.run.bundle_columns import Bundles
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, CLUSTER, TRAFFIC, BrokerSample, broker_samples, write
from pulsar_rebalancer.state import DecisionState, MovesState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import run_left_out_reasons

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def tables(cluster: str, brokers: int, bundles_per_broker: int, seed: int = 0) -> dict[str, pa.Table]:
    """A cluster whose brokers' CPU follows their traffic; the later a broker the busier."""
    random = np.random.default_rng(seed)
    names = np.array([f"broker-{n:05}.pulsar:8080" for n in range(brokers)])
    share = np.repeat(np.linspace(0.1, 1.0, brokers), bundles_per_broker)
    rate = np.round(random.exponential(400.0, brokers * bundles_per_broker) * share, 1)
    count = brokers * bundles_per_broker
    columns: dict[str, Any] = {
        "cluster": np.full(count, cluster),
        "broker": np.repeat(names, bundles_per_broker),
        "bundle": [f"tenant/ns-{n // 64:05}/0x{n % 64 << 26:08x}_0x{(n % 64 + 1) << 26:08x}" for n in range(count)],
        "msg_rate_in": rate,
        "msg_rate_out": rate,
        "msg_throughput_in": rate * 1024,
        "msg_throughput_out": rate * 1024,
        **{name: np.ones(count, dtype="int64") for name in ("topics", "producers", "consumers", "owners")},
        "cache_size": np.zeros(count, dtype="int64"),
        "top_rank": pa.nulls(count, pa.int64()),
        "policy": pa.nulls(count, pa.string()),
    }
    sums = rate.reshape(brokers, bundles_per_broker).sum(axis=1)
    rows = [
        {
            "cluster": cluster,
            "broker": name,
            "collected_at": NOW,
            "listings": 1,
            "last_update": NOW,
            "cpu_usage": float(sums[n] / sums.max() * 90),
            "cpu_limit": 100.0,
            "msg_rate_in": float(sums[n]),
            "msg_rate_out": float(sums[n]),
            "msg_throughput_in": float(sums[n] * 1024),
            "msg_throughput_out": float(sums[n] * 1024),
            "bundles": bundles_per_broker,
        }
        for n, name in enumerate(names.tolist())
    ]
    return {
        "cluster": pa.Table.from_pylist([{"cluster": cluster, "collected_at": NOW}], schema=CLUSTER),
        "brokers": pa.Table.from_pylist(rows, schema=BROKERS),
        "bundles": pa.table(columns).select(BUNDLES.names).cast(BUNDLES),
    }


def sample(given: RunInput, previous: Iterable[dict[str, Any]] = ()) -> tuple[list[BrokerSample], Bundles]:
    """Brokers and bundles of a run as strategies see them, `previous` being the means before it."""
    brokers = (given.folder / "input" / "brokers.parquet").read_table().to_pylist()
    bundles = (given.folder / "input" / "bundles.parquet").read_table().to_pylist()
    refused = set(given.validation.quarantine_reasons)
    found = {
        row["bundle"]: row
        for row in bundle_columns.update_means([r for r in bundles if r["bundle"] not in refused], previous)
    }
    names = pa.array([row["bundle"] for row in bundles], pa.string())
    reasons = stays.stay_reasons(names, stays.BundleFacts.of_run(given, given.settings)).to_pylist()
    for row, reason in zip(bundles, reasons, strict=True):
        mean = found.get(row["bundle"], dict.fromkeys(TRAFFIC, 0.0))
        row["msg_rate"] = mean["msg_rate_in"] + mean["msg_rate_out"]
        row["msg_throughput"] = mean["msg_throughput_in"] + mean["msg_throughput_out"]
        row["long_term_msg_rate"] = mean.get("long_term_msg_rate")
        row["reason"] = reason
    return broker_samples(brokers, run_left_out_reasons(given)), bundles_of(bundles)


def make(
    root: Path | str,
    content: dict[str, pa.Table],
    *,
    cluster: str = "east",
    state: DecisionState | None = None,
    moves: MovesState | None = None,
    validation: Validation | None = None,
    params: RunParams | None = None,
    policies: Policies | None = None,
    at: datetime = NOW,
    **settings: Any,
) -> StoragePath:
    run = ClusterStorage(str(root), cluster).new_run_folder(at)
    write(run, content)
    RunRequest(
        cluster=cluster,
        airflow_run_id=f"manual__{at.isoformat()}",
        params=params or RunParams(),
        resolved=RunSettings(settings=Settings(**settings), origins={}),
        collected_at=at,
    ).write(run)
    StateBefore(decision=state or DecisionState(), moves=moves or MovesState()).write(run)
    (policies or Policies()).write(run)
    (validation or Validation()).write(run)
    return run


def shuffle(run: StoragePath) -> None:
    random = np.random.default_rng(1)
    for name in ("brokers", "bundles"):
        file = run / "input" / f"{name}.parquet"
        table = file.read_table()
        file.write_table(table.take(random.permutation(table.num_rows)))
