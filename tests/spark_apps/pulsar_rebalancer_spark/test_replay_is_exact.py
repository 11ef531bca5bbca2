from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.balancer import Balancer, IndexedMove
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.columns import LOADS, NOBODY
from pulsar_rebalancer.replay.minute import Minute
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.snapshots import record
from pulsar_rebalancer.replay.variants import Variant
from pulsar_rebalancer.run import plan
from pulsar_rebalancer.run.tables import AVERAGES, BROKERS, BUNDLES, CLUSTER, RESOURCES, TRAFFIC
from pulsar_rebalancer.state import DecisionState, MovesState, Unload
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_spark.rebalance import decide_run

MINUTES, EACH = 6, 24
BROKERIDS = [f"{letter}.pulsar:8080" for letter in "abcdef"]
# All of the same hash range: at most sixteen of them move in one run while a broker is old.
NAMES = [f"tenant/ns-{n:03}/0x00000000_0xffffffff" for n in range(EACH * len(BROKERIDS))]
POLICIES = Policies(
    isolation=(IsolationPolicy(name="p", namespaces=("tenant/ns-00[0-3]",), primary=(r"f\.pulsar",)),),
    groups={"tenant/ns-010": "g", "tenant/ns-011": "g", "tenant/ns-040": "g"},
    without_persistent=(BROKERIDS[1],),
)
EAGER = {"low_threshold": 5, "high_threshold": 15, "hit_count_low": 2, "hit_count_high": 1, "grace_period_minutes": 3}
SMALL = {"min_unload_message": 0, "min_unload_throughput": 0, "max_unload_percentage": 0.9}


def content(number: int, version: str, *, averages: bool) -> dict[str, pa.Table]:
    """A minute as collect leaves it; which brokers are hot changes, and with it who would move back at once."""
    random = np.random.default_rng((7, number))
    owner = np.arange(len(NAMES)) % len(BROKERIDS)
    hot = np.isin(owner, ((0, 1, 5), (2, 3, 5), (4, 2, 0))[number // 2])
    # Whole numbers: a recording keeps what bundles carry as 32-bit floats.
    rate = np.random.default_rng(7).integers(40, 400, len(NAMES)) * np.where(hot, 4, 1) + random.integers(
        0, 9, len(NAMES)
    )
    values = np.array([rate, rate // 2, rate * 512, rate * 256, np.ones(len(NAMES))], dtype=float)
    carried = np.array([np.bincount(owner, weights=row) for row in values])
    own = {"load_average": random.uniform(0.1, 0.9, 6), "throughput_average": carried[2] * 1.1} if averages else {}
    brokers = [
        {"broker": name, "cpu_usage": carried[0, i] / 200, "cpu_limit": 400.0, "version": version}
        | dict(zip(LOADS, carried[:, i].tolist(), strict=True))
        | {column: values[i] for column, values in own.items()}
        for i, name in enumerate(BROKERIDS)
    ]
    bundles = [
        {"broker": BROKERIDS[owner[i]], "bundle": name} | dict(zip(LOADS, values[:, i].tolist(), strict=True))
        for i, name in enumerate(NAMES)
    ]
    return tables(brokers, bundles)


def tables(brokers: list[dict[str, Any]], bundles: list[dict[str, Any]]) -> dict[str, pa.Table]:
    for row in brokers:
        held = sum(bundle["broker"] == row["broker"] for bundle in bundles)
        row |= {"cluster": "east", "listings": 1, "bundles": held, "report_age_seconds": 1.0}
        row |= {"topics": int(row["topics"]), "reserved_by": POLICIES.reserving_policy(row["broker"])}
    for row in bundles:
        row |= {"cluster": "east", "owners": 1, "producers": 1, "consumers": 1, "cache_size": 0}
        row |= {"topics": int(row["topics"]), "policy": POLICIES.policy_kind(namespace_of(row["bundle"]))}
    rows = {"cluster": ([{"cluster": "east"}], CLUSTER), "brokers": (brokers, BROKERS), "bundles": (bundles, BUNDLES)}
    return {name: pa.Table.from_pylist(found, schema=schema) for name, (found, schema) in rows.items()}


def of_minute(minute: Minute) -> dict[str, pa.Table]:
    """A minute of the variant as collect would have left it."""
    of = minute.broker_loads
    brokers = [
        {"broker": name, "version": of.versions[i]}
        | {f"{what}_usage": _number(of.usage[row, i]) for row, what in enumerate(RESOURCES)}
        | {f"{what}_limit": _number(of.limits[row, i]) for row, what in enumerate(RESOURCES)}
        | dict(zip(LOADS, of.traffic[:, i].tolist(), strict=True))
        | ({} if of.averages is None else dict(zip(AVERAGES, of.averages[:, i].tolist(), strict=True)))
        for i, name in enumerate(BROKERIDS)
    ]
    bundles = [
        {"broker": BROKERIDS[minute.owner[i]], "bundle": name, "topics": 1}
        | dict(zip(TRAFFIC, minute.bundle_loads[: len(TRAFFIC), i].tolist(), strict=True))
        for i, name in enumerate(NAMES)
        if minute.owner[i] != NOBODY
    ]
    return tables(brokers, bundles)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


@pytest.mark.parametrize(
    ("strategy", "version", "seen", "more"),
    [
        (Strategy.AVG, "4.0.8", {Reason.CAP_WAVES, Reason.RECENTLY_UNLOADED, Reason.ANTI_AFFINITY}, EAGER),
        (Strategy.UNIFORM, "4.2.4", {Reason.TAKEN}, {"grace_period_minutes": 2}),
        (
            Strategy.TRANSFER,
            "4.2.4",
            {Reason.RECENTLY_UNLOADED},
            {"target_std": 0.05, "hit_count_transfer": 0, "shedding_delay_seconds": 60, "grace_period_minutes": 4},
        ),
    ],
)
def test_every_minute_is_decided_as_a_run_decides_it(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    strategy: Strategy,
    version: str,
    seen: set[Reason],
    more: dict[str, Any],
) -> None:
    settings = SMALL | more | {"strategy": strategy}
    for number in range(MINUTES):
        made = content(number, version, averages=strategy is Strategy.TRANSFER)
        at = runs.NOW + timedelta(minutes=number)
        runs.make(tmp_path / "recorded", made, policies=POLICIES, at=at, **settings)
    storage, target = ClusterStorage(str(tmp_path / "recorded"), "east"), StoragePath(str(tmp_path / "recording"))
    record(storage, Settings(**settings), runs.NOW, runs.NOW + timedelta(minutes=MINUTES), target)
    steps: list[tuple[Minute, list[IndexedMove]]] = []
    judge = Balancer.choose_moves

    def noted(balancer: Balancer, minute: Minute) -> list[IndexedMove]:
        steps.append((minute, judge(balancer, minute)))
        return steps[-1][1]

    monkeypatch.setattr(Balancer, "choose_moves", noted)
    replay(Recording.read(target), [Variant("it", Settings(**settings))], Settings(**settings))

    state, unloads, reasons, moved = DecisionState(), dict[str, Unload](), set[object](), 0
    for number, (minute, moves) in enumerate(steps):
        at = runs.NOW + timedelta(minutes=number)
        run = runs.make(
            tmp_path / "decided",
            of_minute(minute),
            state=state,
            moves=MovesState(unloads=unloads),
            policies=POLICIES,
            at=at,
            **settings,
        )
        summary = decide_run(lambda: spark, RunInput.read(run.uri))
        planned = plan.verified_actions(run, summary).moves
        found = {(NAMES[move.bundle_index], BROKERIDS[move.broker_index]) for move in moves}
        assert found == {(move.bundle, move.destination) for move in planned}, number
        moved += len(found)
        reasons |= set((run / "plan" / "moves.parquet").read_table()["reason"].to_pylist())
        state = plan.read_plan_state(run)
        # A run notes an unload when it is done.
        done = at + timedelta(seconds=20)
        unloads |= {
            move.bundle: Unload(at=done, plan_id=run.name, source=move.source, destination=move.destination)
            for move in planned
        }
    assert len(steps) == MINUTES
    assert moved > MINUTES
    assert seen <= reasons
