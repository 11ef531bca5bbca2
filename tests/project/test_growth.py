"""What a run does grows with its cluster, not with the square of it: CPU time at four times the size.

Of this process alone, so that what else the machine does hardly counts.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lab.benchmarks import clusters
from lab.benchmarks.collect import slow_brokers
from lab.benchmarks.collect_once import once
from tests.vectors.rows import decided_by

from pulsar_rebalancer.config.field_types import Placement, SplitAlgorithm, Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import plan_files, roll_plan
from pulsar_rebalancer.decide.planning import Plan
from pulsar_rebalancer.decide.run_input import RunBundles, RunInput
from pulsar_rebalancer.decide.sources.strategy import StrategyInput
from pulsar_rebalancer.decide.split_planning import Cut, where_to_cut
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles, BundleSample
from pulsar_rebalancer.run.snapshot import Candidate, Snapshot, TopicLoad
from pulsar_rebalancer.run.tables import Measure, broker_samples
from pulsar_rebalancer.state.state_documents import Learned
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.learning import Sums, learn
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample
from pulsar_rebalancer.strategies.shedders.avg_shedder import shed
from pulsar_rebalancer.strategies.shedders.registry import left_out_of
from pulsar_rebalancer.strategies.strategy_state import KeptState, ShedderState
from pulsar_rebalancer_airflow.validation.suites import judged_frames, shares_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_rebalancer.strategies.sample import Decision

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
        listed = run.brokers_without(left_out_of(run))
        held = run.table("bundles")
        for measure in ("msg_rate", "msg_throughput"):
            held = held.append_column(measure, pc.add(held[f"{measure}_in"], held[f"{measure}_out"]))
        held = held.append_column("long_term_msg_rate", held["msg_rate"])
        held = held.append_column("load_now", held["msg_rate"]).append_column("load_later", held["msg_rate"])
        held = held.append_column("reason", pa.nulls(held.num_rows, pa.string())).select(COLUMNS.names)
        return lambda: decided(run, listed, held)

    assert growth(prepared, 500) < MOST


def decided(run: RunInput, listed: Any, held: pa.Table) -> None:
    policies = run.policies
    if run.settings.strategy == Strategy.TRANSFER:
        # It would try the coldest broker, which is reserved, again and again.
        policies = Policies()
    rates = held.group_by("broker").aggregate([("msg_rate", "sum")]).to_pylist()
    sums = {row["broker"]: Sums(*(row["msg_rate_sum"],) * 5) for row in rates}
    lesson = learn(Learned(), listed, sums, [], run.settings, 1.0)
    given = StrategyInput(run.settings, listed, Bundles(held), run.counting, policies=policies, lesson=lesson)
    found = decided_by(given)
    # UniformLoadShedder sheds from one broker in a run.
    fewest = 0 if run.settings.strategy == Strategy.UNIFORM else len(listed) / 8
    assert sum(move.taken for move in found.moves) > fewest


def test_what_caps_leave_and_the_files_of_a_plan_grow_with_it(tmp_path):
    def prepared(brokers: int) -> Callable[[], Any]:
        root = str(tmp_path / str(brokers))
        made = clusters.make(root, brokers, 10, max_bundles_per_broker=4, max_bundles_per_run=brokers)
        run = RunInput.read(made.uri)
        without_bundles = Bundles(COLUMNS.empty_table())
        sample = ClusterSample(run.brokers_without({}), without_bundles, run.settings, counting=run.counting)
        decisions = shed(sample, ShedderState()).decisions
        walked = [candidate(pair, number) for pair in decisions if pair.target for number in range(10)]

        def written() -> None:
            moves = caps.apply(walked, run.settings, run.policies.groups, [])
            traffic = {move.source: 1e9 for move in moves}
            plan = plan_files.write_run(run, Plan(decisions, moves, KeptState(), traffic=traffic))
            assert plan.bundles_taken > brokers / 4

        return written

    assert growth(prepared, 1000) < MOST


def candidate(pair: Decision, number: int) -> CandidateMove:
    held = BundleSample(pair.source, f"t/n{number}-{pair.pair}/0x00000000_0xffffffff", msg_rate=9.0, msg_throughput=9.0)
    reason = Reason.OVER_REMAINING if number % 2 else Reason.TAKEN
    measure = pair.measure or Measure.RATE
    given: Any = {"pair": pair.pair, "rank": number, "measure": measure, "reason": reason}
    return CandidateMove.of(held, destination=pair.destination, **given)


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


def test_walks_over_the_bundles_of_a_run_grow_with_them(tmp_path):
    """Nothing but these walks: next to a whole decision, one that is quadratic would not show before a million."""

    def prepared(brokers: int) -> Callable[[], Any]:
        root = str(tmp_path / str(brokers))
        run = RunInput.read(clusters.make(root, brokers, 8).uri)
        rows = run.table("bundles")
        means = rows.append_column("long_term_msg_rate", rows["msg_rate_in"])

        def walked() -> None:
            run.new_means.write_table(means)
            bundles = RunBundles(run, lambda: run.new_means)
            found = [bundle for broker in run.brokers for bundle in bundles.of(broker.broker)]
            assert len(found) == len(bundles.owners()) == sum(bundles.served().values()) == 8 * brokers
            assert len(bundles.long_term_msg_rates()) == brokers
            assert bundles.find(found[-1].broker, found[-1].bundle) == found[-1]

        return walked

    assert growth(prepared, 2500) < MOST


def test_a_dry_run_of_a_roll_reads_the_bundles_once(tmp_path):
    """Four times the brokers that restart, of the same cluster, take far less than four times as long."""
    sample = Snapshot(clusters.make(str(tmp_path), 500, 400))
    order = sorted(sample.started)

    def prepared(brokers: int) -> Callable[[], Any]:
        return lambda: roll_plan.turns(sample, order[:brokers])

    assert growth(prepared, 2, most=2.5) < 2.5


def test_what_is_judged_grows_with_its_cluster(tmp_path):
    def prepared(brokers: int) -> Callable[[], Any]:
        root = str(tmp_path / str(brokers))
        run = clusters.make(root, brokers, 100)
        settings = RunInput.read(run.uri).settings
        left_out: list[Any] = Snapshot(run).table("bundles")["bundle"].to_pylist()[::10]
        return lambda: shares_of(left_out, judged_frames(run, settings))

    assert growth(prepared, 400) < MOST


# One cut takes so little that it needs more topics to be measured.
@pytest.mark.parametrize(("single", "size"), [(True, 20_000), (False, 2000)], ids=["extensible", "modular"])
def test_where_a_bundle_is_cut_by_its_flow_grows_with_its_topics(single, size):
    # Each topic carries more than half of what a part may.
    settings = Settings(max_bundle_msg_rate=100, max_namespace_bundles=10**6)

    def prepared(topics: int) -> Callable[[], Any]:
        loads = tuple(TopicLoad(n * (2**32 // topics), 60.0 + n % 7) for n in range(topics))
        bounds = (0, 2**32 - 1)
        large = Candidate(bundle="t/n/0x00000000_0xffffffff", bounds=bounds, topics=loads)
        found = where_to_cut(large, SplitAlgorithm.FLOW, settings, single=single)
        assert isinstance(found, Cut)
        assert len(found.positions) == (1 if single else topics - 1)
        return lambda: where_to_cut(large, SplitAlgorithm.FLOW, settings, single=single)

    assert growth(prepared, size) < MOST


def test_a_sample_grows_with_its_cluster():
    def seconds(brokers: int) -> float:
        with slow_brokers(brokers, 20 * brokers, 0.0) as (ports, token):
            asyncio.run(once(ports[0], token))
            return min(cpu_seconds(lambda: asyncio.run(once(ports[0], token))) for _ in range(3))

    assert seconds(400) / seconds(100) < MOST
