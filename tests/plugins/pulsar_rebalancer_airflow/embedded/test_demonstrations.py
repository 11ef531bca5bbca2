"""`make run STRATEGY=…` without its Airflow and Spark: every shedder balances the simulated cluster."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from pydantic import SecretStr

from pulsar_rebalancer.collect.collector import EarlierData, RunTrigger, collect_sample, write_sample
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import plan_files
from pulsar_rebalancer.decide.run_input import RunBundles, RunInput
from pulsar_rebalancer.decide.run_plan import RunLearning, plan_run
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.columns import NOBODY, CostColumns, Roster
from pulsar_rebalancer.run import bundle_columns, plan
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import MEANS, NO_LOADS, TRAFFIC
from pulsar_rebalancer.state import MovesState, Unload
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.shedders.registry import profile_of
from pulsar_rebalancer_airflow.embedded import __main__ as make_run
from pulsar_rebalancer_airflow.embedded import local_airflow
from pulsar_rebalancer_airflow.embedded.__main__ import is_balanced
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.sampling import Timing
from pulsar_simulator.scenario import spec
from pulsar_simulator.serve import serve

MOST_RUNS = 50


@dataclass
class Demonstration:
    cluster: Cluster
    entry: ClusterEntry
    columns: CostColumns | None = None

    def learn(self, run: RunInput, bundles: list[dict[str, Any]]) -> RunLearning:
        """Learns from a sample, and returns what is known of brokers and of bundles' loads."""
        if self.columns is None:
            self.roster = Roster([broker.broker for broker in run.brokers], [row["bundle"] for row in bundles])
            self.columns = CostColumns(self.roster)
        owner = np.full(len(self.roster.bundles), NOBODY)
        load = np.zeros((len(TRAFFIC), len(self.roster.bundles)))
        for bundle in bundles:
            at = self.roster.bundle_at[bundle["bundle"]]
            owner[at] = self.roster.broker_at[bundle["broker"]]
            load[:, at] = [bundle[value] for value in TRAFFIC]
        learning = self.columns.learn_from_sample(
            run.strategy_state.shedder.learned,
            owner,
            load,
            brokers=run.brokers,
            recent_moves=run.recent_move_by_bundle.values(),
            settings=run.settings,
            minute=run.request.collected_at.timestamp() / 60,
            is_counted=run.hit_rules.counts,
        )
        columns: list[Any] = [self.roster.bundles, self.columns.costs.expected_loads(learning.learned.persistence)]
        return RunLearning(learning, bundle_loads=pa.table(columns, schema=NO_LOADS.schema))


def demonstration(strategy: str) -> Demonstration:
    given = make_run._parser().parse_args(["--strategy", strategy])
    with mock.patch.object(local_airflow, "start_cluster") as start:
        name, values, _ = make_run._start_simulated_cluster(given, mock.Mock())
    of_cluster = {"timing": Timing(stats_period=1, host_check_period=1), **start.call_args.kwargs}
    entry: dict[str, Any] = dict(values)
    return Demonstration(Cluster(spec(**of_cluster)), ClusterEntry(name=name, given=entry, settings=Settings(**entry)))


async def decided(shown: Demonstration, storage: ClusterStorage, admin: PulsarAdmin, before: StateBefore) -> RunInput:
    now = datetime.fromtimestamp(shown.cluster.clock.now(), UTC)
    folder = storage.new_run_folder(now)
    earlier = EarlierData(state_folder=storage.state, state_before=before)
    write_sample(await collect_sample(admin, shown.entry, RunTrigger(now, "scheduled"), earlier), folder)
    Validation().write(folder)
    run = RunInput.read(folder.uri)

    known = run.known_means_file.read_table().to_pylist() if run.known_means_file else []
    bundles = run.read_table("bundles").to_pylist()
    seen = shown.learn(run, bundles) if profile_of(run.settings).learns else RunLearning()
    run.new_means_file.write_table(pa.Table.from_pylist(bundle_columns.update_means(bundles, known), schema=MEANS))
    plan_files.write_run_plan(run, plan_run(run, RunBundles(run, lambda: run.new_means_file, seen.bundle_loads), seen))
    return run


def moved(shown: Demonstration, run: RunInput, summary: Summary) -> dict[str, Unload]:
    now = datetime.fromtimestamp(shown.cluster.clock.now(), UTC)
    done = {}
    for move in plan.verified_actions(run.folder, summary).moves:
        shown.cluster.unload(move.bundle, move.destination)
        shown.cluster.lookup(shown.cluster.topology.topics(shown.cluster.topology.index(move.bundle))[0])
        assert shown.cluster.owner(move.bundle) == move.destination
        outcome = {"source": move.source, "destination": move.destination, "outcome": Reason.MOVED}
        done[move.bundle] = Unload(at=now, plan_id=run.folder.name, **outcome)
    return done


@pytest.mark.parametrize("strategy", Strategy)
def test_every_demonstration_moves_bundles_and_ends_balanced(strategy, tmp_path):
    shown = demonstration(strategy)
    storage = ClusterStorage(str(tmp_path), shown.entry.name)

    async def until_balanced() -> list[Summary]:
        summaries: list[Summary] = []
        before = StateBefore()
        with serve(shown.cluster) as served:
            connection = AdminConnection(seeds=(served.urls[0],), token=SecretStr(served.token))
            async with PulsarAdmin(connection) as admin:
                while len(summaries) < MOST_RUNS and not (summaries and is_balanced(summaries[-1])):
                    run = await decided(shown, storage, admin, before)
                    summaries.append(plan.Summary.read(run.folder))
                    unloads = before.moves.unloads | moved(shown, run, summaries[-1])
                    before = StateBefore(decision=plan.read_plan_state(run.folder), moves=MovesState(unloads=unloads))
                    shown.cluster.advance(shown.entry.settings.interval_seconds)
        return summaries

    summaries = asyncio.run(until_balanced())

    assert is_balanced(summaries[-1]), [summary.sentence for summary in summaries]
    assert sum(summary.bundles_taken for summary in summaries) > 0
    assert summaries[-1].score_range < summaries[0].score_range
