"""Every shedder decides on load reports of real brokers, and policies set on the cluster are obeyed.

The product's parts are called one after the other, as the DAG's tasks call them; the DAG itself is in `test_rebalance`.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.patience import awaited
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.distribution import Distribution
from tests.pulsar.java import CLUSTER_NAME
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import load_broker_zero

from pulsar_rebalancer.carry_out.move_executor import carry_out_moves
from pulsar_rebalancer.collect.collector import RunTrigger, collect_sample, write_sample
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import MoveOutcome
from pulsar_rebalancer.run.plan import Move, Summary, read_moves
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_spark.rebalance import decide_run

QUOTA_US = 30_000
RATE = 3500.0
GAP = 5  # points that broker 0 is hotter than the others, at least: every shedder fires
FREE, ISOLATED, SPREAD = "tests/free", "tests/isolated", ("tests/spread-a", "tests/spread-b")
SYSTEM = "pulsar/system"
SHEDDING: dict[Strategy, dict[str, Any]] = {
    Strategy.AVG: {"low_threshold": 3, "hit_count_low": 1, "hit_count_high": 1},
    Strategy.THRESHOLD: {"average_threshold": 3, "min_unload_bundle_throughput": 0},
    Strategy.OVERLOAD: {"overloaded_threshold": 8},
    Strategy.UNIFORM: {"rate_difference": 10},
    Strategy.TRANSFER: {"target_std": 0.02, "hit_count_transfer": 0, "top_bundles": 16},
    Strategy.GAIN: {"low_threshold": 3, "hit_count_low": 1, "hit_count_high": 1, "strategy_settings": {"min_gain": 0}},
}


@dataclass
class World:
    """A loaded cluster and the product's way to it; at first all loaded bundles are on broker 0.

    Brokers look at their processor once a minute. Runs decide on the tables of the first, `sampled`, until policies
    change: its bundles are back on broker 0 before each run.
    """

    cluster: PulsarCluster
    admin: Admin
    storage: ClusterStorage
    spark: SparkSession
    topics: dict[str, str]
    sampled: dict[str, pa.Table] = field(default_factory=dict)

    def run(self, **settings: Any) -> tuple[Summary, list[Move], list[MoveOutcome]]:
        """Collect, decide and carry out, with a fresh state."""
        given = {"mode": "auto", "min_unload_message": 10, **settings}
        entry = ClusterEntry(name="real", given=given, settings=Settings(**given))
        return asyncio.run(self._run(entry))

    async def _run(self, entry: ClusterEntry) -> tuple[Summary, list[Move], list[MoveOutcome]]:
        now = datetime.now(UTC)
        run = self.storage.new_run_folder(now)
        async with PulsarAdmin(AdminConnection(seeds=(self.cluster.web_url(0),))) as admin:
            collected = await collect_sample(admin, entry, RunTrigger(now, "test"))
            self.sampled = self.sampled or dict(collected.input_tables)
            write_sample(replace(collected, input_tables=self.sampled), run)
            Validation().write(run)
            summary = decide_run(lambda: self.spark, RunInput.read(run.uri))
            moves, outcomes = read_moves(run), []
            for _, wave in groupby(moves, key=lambda move: move.wave):
                outcomes += await carry_out_moves(
                    admin.bundles, list(wave), concurrency=4, timeout_seconds=30, on_outcome=lambda _: None
                )
        # A leader short of CPU can lose a destination at each of three attempts; test_moves counts how often.
        assert {outcome.reason for outcome in outcomes} <= {Reason.MOVED, Reason.ASTRAY}, outcomes
        return summary, moves, outcomes

    def back_to_broker_zero(self) -> None:
        """All loaded bundles on broker 0, with clients; reports from before a move would look as if it had ended."""
        self.await_reports_of_owners()
        for bundle, topic in self.topics.items():
            if self.admin.owner(bundle) != self.cluster.broker_ids[0]:
                namespace, _, bundle_range = bundle.rpartition("/")
                self.admin.move(namespace, bundle_range, topic, 0)
        self.await_reports_of_owners()
        awaited(lambda: self.sampled or self.broker_zero_is_busy(), pause=1)

    def broker_zero_is_busy(self) -> bool:
        """The last sample of the processor, taken once a minute, is of broker 0 under load and of idle others."""
        reports = [self.admin.load_report(broker)["cpu"] for broker in range(3)]
        busy, *idle = (100 * cpu["usage"] / cpu["limit"] for cpu in reports)
        return all(cpu["limit"] == QUOTA_US / 1000 for cpu in reports) and busy > max(2 * max(idle), max(idle) + GAP)

    def await_reports_of_owners(self) -> None:
        """Each owner has reported traffic, if not in the same second, and no other broker does."""
        heard: set[tuple[str, str]] = set()

        def heard_all() -> bool:
            reported = {
                (bundle, broker)
                for number, broker in enumerate(self.cluster.broker_ids)
                for bundle, stats in self.admin.load_report(number)["lastStats"].items()
                if bundle in self.topics and stats["msgRateIn"]
            }
            owned = {(bundle, *self.admin.owners([bundle])) for bundle in self.topics}
            heard.update(reported)
            return reported <= owned <= heard

        awaited(heard_all, pause=1)


@pytest.fixture(scope="module")
def world(
    pulsar_501: Distribution,
    module_clusters: ClusterFactory,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    cluster = module_clusters(pulsar_501, cgroups=True, own_hosts=True)
    folder: Path = tmp_path_factory.mktemp("strategies")
    with Admin(cluster) as admin:
        topics = load_broker_zero(admin, [FREE, ISOLATED, *SPREAD], 4)
        bundle_range, (topic,) = next(iter(topics_in_bundles(SYSTEM, admin.ranges(SYSTEM), 1).items()))
        admin.move(SYSTEM, bundle_range, topic, 0)
        topics[f"{SYSTEM}/{bundle_range}"] = topic
        rates = dict.fromkeys(topics.values(), RATE / len(topics))
        with Load(cluster, rates, folder / "load.log", batching=False) as load:
            load.start()
            for broker in range(3):
                cluster.set_cpu_quota(broker, QUOTA_US)
            yield World(cluster, admin, ClusterStorage(str(folder), "real"), spark, topics)


@pytest.mark.parametrize("strategy", SHEDDING)
def test_decisions_of_each_shedder_are_carried_out(world: World, strategy: Strategy) -> None:
    world.back_to_broker_zero()
    # A placement may draw the bundle's own broker, if that is near the mean.
    ran = awaited(lambda: [run for run in [world.run(strategy=strategy, **SHEDDING[strategy])] if run[1]])
    _, moves, outcomes = ran[0]
    assert {move.source for move in moves} == {world.cluster.broker_ids[0]}
    planned = {move.bundle: move.destination for move, outcome in zip(moves, outcomes, strict=True) if outcome.ok}
    assert planned
    assert {bundle: world.admin.owner(bundle) for bundle in planned} == planned


@pytest.fixture
def policies(world: World) -> Iterator[None]:
    """One namespace for broker 1 alone, two others in an anti-affinity group."""
    path = f"/admin/v2/clusters/{CLUSTER_NAME}/namespaceIsolationPolicies/vip"
    failover = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "100"}}
    brokers = {"primary": [r"127\.0\.0\.2"], "secondary": [], "auto_failover_policy": failover}
    world.admin.call("POST", path, json={"namespaces": [ISOLATED], "unload_scope": "none", **brokers})
    for namespace in SPREAD:
        world.admin.call("POST", f"/admin/v2/namespaces/{namespace}/antiAffinity", json="apart")
    world.sampled = {}
    yield
    world.sampled = {}
    world.admin.call("DELETE", path)
    for namespace in SPREAD:
        world.admin.call("DELETE", f"/admin/v2/namespaces/{namespace}/antiAffinity")


@pytest.mark.usefixtures("policies")
def test_planned_destinations_obey_policies(world: World) -> None:
    world.back_to_broker_zero()
    _, _, shared = world.cluster.broker_ids
    settings = SHEDDING[Strategy.AVG] | {"max_unload_percentage": 1.0, "excluded_namespaces": (FREE,)}
    summary, moves, _ = world.run(strategy=Strategy.AVG, **settings)
    # Broker 1 is set apart, so broker 0 has one partner; of the group one bundle may go there.
    assert [move.destination for move in moves] == [shared], (summary.sentence, summary.bundle_skip_reasons)
    assert moves[0].bundle.startswith(SPREAD)


@pytest.mark.usefixtures("policies")
def test_placement_brings_an_isolated_namespace_home(world: World) -> None:
    world.back_to_broker_zero()
    _, reserved, _ = world.cluster.broker_ids
    settings = SHEDDING[Strategy.OVERLOAD] | {"excluded_namespaces": (FREE, *SPREAD)}
    summary, moves, _ = world.run(strategy=Strategy.OVERLOAD, **settings)
    assert moves, (summary.sentence, summary.bundle_skip_reasons)
    assert {move.destination for move in moves} == {reserved}


def test_system_bundles_move_once_the_setting_is_on(world: World) -> None:
    world.back_to_broker_zero()
    (system,) = (bundle for bundle in world.topics if bundle.startswith(SYSTEM))
    settings = SHEDDING[Strategy.AVG] | {"excluded_namespaces": (FREE, ISOLATED, *SPREAD)}
    summary, moves, _ = world.run(strategy=Strategy.AVG, **settings)
    assert not moves
    assert summary.bundle_skip_reasons.get(Reason.SYSTEM_NAMESPACE), (summary.sentence, summary.bundle_skip_reasons)
    _, moves, outcomes = world.run(strategy=Strategy.AVG, move_system_bundles=True, **settings)
    assert [(end.bundle, end.reason) for end in outcomes] == [(system, Reason.MOVED)]
    assert world.admin.owner(system) == moves[0].destination != world.cluster.broker_ids[0]
