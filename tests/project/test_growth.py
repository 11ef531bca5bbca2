"""What a run does grows with its cluster, not with the square of it: CPU time at four times the size.

Of this process alone, so that what else the machine does hardly counts.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks import clusters
from benchmarks.collect import slow_brokers
from benchmarks.collect_once import once

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.strategies import pipeline
from pulsar_rebalancer.strategies.bundles import COLUMNS, Bundles
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.rows import broker_samples
from pulsar_rebalancer.strategies.sample import ClusterSample
from pulsar_rebalancer.strategies.shedders.avg_shedder import shed
from pulsar_rebalancer_airflow.validation.frames import judged_frames, shares_of
from pulsar_rebalancer_spark.run_input import RunInput

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 4
MOST = 10
"""Four times the size may take so many times as long; it is sixteen when something is quadratic."""


def cpu_seconds(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def growth(prepared: Callable[[int], Callable[[], Any]], size: int) -> float:
    """How many times as long the larger size takes; each the better of two."""
    small, large = (prepared(each) for each in (size, TIMES * size))
    return min(cpu_seconds(large) for _ in range(2)) / min(cpu_seconds(small) for _ in range(2))


@pytest.mark.parametrize("strategy", [Strategy.AVG, Strategy.OVERLOAD, Strategy.UNIFORM])
def test_a_strategy_grows_with_its_cluster(strategy, tmp_path):
    def prepared(brokers: int) -> Callable[[], Any]:
        root = str(tmp_path / str(brokers))
        run = RunInput.read(root, clusters.make(root, brokers, 10, strategy=strategy).uri)
        listed = broker_samples(tables.read(run.folder, "brokers").to_pylist(), run.left_out)
        held = tables.read(run.folder, "bundles")
        for measure in ("msg_rate", "msg_throughput"):
            held = held.append_column(measure, pc.add(held[f"{measure}_in"], held[f"{measure}_out"]))
        held = held.append_column("long_term_msg_rate", held["msg_rate"])
        held = held.append_column("reason", pa.nulls(held.num_rows, pa.string())).select(COLUMNS.names)
        if strategy is Strategy.AVG:
            return lambda: avg_shedder(run, listed, held)
        return lambda: pipeline.decide(run.context, listed, Bundles(held))

    assert growth(prepared, 500) < MOST


def avg_shedder(run: RunInput, listed: Any, held: pa.Table) -> None:
    sample = ClusterSample(listed, Bundles(held), run.settings, counting=run.counting)
    rules = PolicyFilter(run.policies, listed, sample.bundles, run.settings)
    found = shed(replace(sample, forbids=rules.forbids), ShedderState())
    assert any(move.taken for move in found.moves)


def test_questions_to_policies_take_as_long_in_a_large_cluster(tmp_path):
    def prepared(brokers: int) -> Callable[[], Any]:
        names = [f"b{n}:1" for n in range(brokers)]
        bundles = [f"t/n{n}/0x00000000_0xffffffff" for n in range(brokers)]
        held = [{"broker": name, "bundle": bundle} for name, bundle in zip(names, bundles, strict=True)]
        groups = {namespace_of(bundle): f"g{n // 8}" for n, bundle in enumerate(bundles)}
        listed = broker_samples([{"broker": name} for name in names], {})
        table = Bundles(pa.Table.from_pylist(held, schema=COLUMNS))
        rules = PolicyFilter(Policies(groups=groups), listed, table, Settings())
        questions = list(zip(bundles, names, [*names[1:], names[0]], strict=True))
        return lambda: [rules.forbids(*question) for question in questions]

    assert growth(prepared, 500) < MOST


def test_what_is_judged_grows_with_its_cluster(tmp_path):
    def prepared(brokers: int) -> Callable[[], Any]:
        root = str(tmp_path / str(brokers))
        run = clusters.make(root, brokers, 100)
        settings = RunInput.read(root, run.uri).settings
        left_out = tables.read(run, "bundles")["bundle"].to_pylist()[::10]
        return lambda: shares_of(left_out, judged_frames(run, settings))

    assert growth(prepared, 400) < MOST


def test_a_sample_grows_with_its_cluster():
    def seconds(brokers: int) -> float:
        with slow_brokers(brokers, 20 * brokers, 0.0) as (ports, token):
            asyncio.run(once(ports[0], token))
            return cpu_seconds(lambda: asyncio.run(once(ports[0], token)))

    assert seconds(400) / seconds(100) < MOST
