"""What a run does grows with its cluster, not with the square of it: CPU time at four times the size.

Of this process alone, so that what else the machine does hardly counts.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lab.benchmarks import clusters
from tests.vectors.rows import decided_by

from pulsar_rebalancer.config.field_types import Placement, Strategy
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.sources.strategy import StrategyInput
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.run.bundle_columns import SAMPLE_SCHEMA, Bundles
from pulsar_rebalancer.state import LearnedValues
from pulsar_rebalancer.strategies.learning import BundleSums, learn
from pulsar_rebalancer.strategies.shedders.registry import run_left_out_reasons

pytestmark = pytest.mark.system

TIMES = 4
MOST = 7
"""Four times the size may take so many times as long: in itself it is four and a half at most, and nears sixteen when
something is quadratic."""


def cpu_seconds(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def growth(prepared: Callable[[int], Callable[[], Any]], size: int, most: float = MOST) -> float:
    """Return how many times as long the larger size takes, by the best of two runs each; more if that is too much."""
    works = [prepared(each) for each in (size, TIMES * size)]
    best = [math.inf, math.inf]
    for turn in range(8):
        best = [min(seconds, cpu_seconds(work)) for seconds, work in zip(best, works, strict=True)]
        if turn and best[1] < most * best[0]:
            break
    return best[1] / best[0]


ALL_SHED = {
    Strategy.THRESHOLD: {"average_threshold": 1, "min_unload_bundle_throughput": 0},
    # Of all brokers, not of three.
    Strategy.TRANSFER: clusters.EAGER_TRANSFER | {"target_std": 0.01, "max_brokers_per_run": 10**6},
}


@pytest.mark.parametrize(
    ("strategy", "own"),
    [
        *((strategy, {}) for strategy in Strategy),
        *((Strategy.THRESHOLD, {"placement": placement}) for placement in Placement),
        (Strategy.THRESHOLD, {"placement": Placement.LEAST_RATE, "even_distribution": True}),
    ],
)
def test_a_strategy_grows_with_its_cluster(strategy, own, tmp_path):
    def prepared(brokers: int) -> Callable[[], Any]:
        root = str(tmp_path / str(brokers))
        settings = ALL_SHED.get(strategy, {}) | own
        made = clusters.make(root, brokers, 10, strategy=strategy, **settings)
        run = RunInput.read(made.uri)
        listed = run.read_broker_samples(run_left_out_reasons(run))
        held = run.read_table("bundles")
        for measure in ("msg_rate", "msg_throughput"):
            held = held.append_column(measure, pc.add(held[f"{measure}_in"], held[f"{measure}_out"]))
        held = held.append_column("long_term_msg_rate", held["msg_rate"])
        held = held.append_column("load", held["msg_rate"])
        held = held.append_column("reason", pa.nulls(held.num_rows, pa.string())).select(SAMPLE_SCHEMA.names)
        return lambda: decided(run, listed, held)

    assert growth(prepared, 500) < MOST


def decided(run: RunInput, listed: Any, held: pa.Table) -> None:
    policies = run.policies
    if run.settings.strategy == Strategy.TRANSFER:
        # It would try the coldest broker, which is reserved, again and again.
        policies = Policies()
    rates = held.group_by("broker").aggregate([("msg_rate", "sum")]).to_pylist()
    sums = {row["broker"]: BundleSums(*(row["msg_rate_sum"],) * 5) for row in rates}
    learning = learn(LearnedValues(), listed, sums, [], run.settings, 1.0)
    given = StrategyInput(run.settings, listed, Bundles(held), run.hit_rules, policies=policies, learning=learning)
    found = decided_by(given)
    # UniformLoadShedder sheds from one broker in a run.
    fewest = 0 if run.settings.strategy == Strategy.UNIFORM else len(listed) / 8
    assert sum(move.is_taken for move in found.moves) > fewest
