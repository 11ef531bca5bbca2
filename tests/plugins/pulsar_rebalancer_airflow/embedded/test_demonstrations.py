"""`make run STRATEGY=…` without its Airflow and Spark: every shedder balances the simulated cluster."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import pytest
from pydantic import SecretStr

from pulsar_rebalancer.admin import AdminConnection, PulsarAdmin
from pulsar_rebalancer.collect.collector import Earlier, Trigger, collect, save
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import pipeline, plan_output
from pulsar_rebalancer.decide.run_bundles import RunBundles
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import plan
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.state_before import StateBefore
from pulsar_rebalancer.run.tables import MEANS, table
from pulsar_rebalancer.state.state_documents import MovesState, Unload
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.strategies import means
from pulsar_rebalancer_airflow.embedded import __main__ as make_run
from pulsar_rebalancer_airflow.embedded import simulated_cluster
from pulsar_rebalancer_airflow.embedded.run_line import is_balanced
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.sampling import Timing
from pulsar_simulator.scenario import spec
from pulsar_simulator.serve import running

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.run.plan import Summary

MOST_RUNS = 50


class Demonstration(NamedTuple):
    """What `make run` starts for a strategy."""

    cluster: Cluster
    entry: ClusterEntry


def demonstration(strategy: str) -> Demonstration:
    given = make_run._parser().parse_args(["--strategy", strategy])
    with mock.patch.object(simulated_cluster, "start") as start:
        name, values, _ = make_run._simulated_cluster(given, mock.Mock())
    of_cluster = {"timing": Timing(stats_period=1, host_check_period=1), **start.call_args.kwargs}
    entry: dict[str, Any] = dict(values)
    return Demonstration(Cluster(spec(**of_cluster)), ClusterEntry(name=name, given=entry, settings=Settings(**entry)))


async def decided(shown: Demonstration, storage: ClusterStorage, admin: PulsarAdmin, before: StateBefore) -> RunInput:
    """Collects and decides one run."""
    now = datetime.fromtimestamp(shown.cluster.clock.now(), UTC)
    folder = storage.new_run(now)
    earlier = Earlier(folder=storage.state, before=before)
    save(await collect(admin, shown.entry, Trigger(now, "scheduled"), earlier), folder)
    Validation().write(folder)
    run = RunInput.read(storage.root, folder.uri)

    known = run.known_means.read_table().to_pylist() if run.known_means else []
    run.new_means.write_table(table(means.update(run.table("bundles").to_pylist(), known), MEANS))
    plan_output.write(run, pipeline.decide(run.context, run.brokers, RunBundles(run, lambda: run.new_means)))
    return run


def moved(shown: Demonstration, run: RunInput, summary: Summary) -> dict[str, Unload]:
    """Carries the plan out."""
    now = datetime.fromtimestamp(shown.cluster.clock.now(), UTC)
    done = {}
    for move in plan.verify(run.folder, summary).moves:
        shown.cluster.unload(move.bundle, move.destination)
        shown.cluster.lookup(shown.cluster.topology.topics(shown.cluster.topology.index(move.bundle))[0])
        assert shown.cluster.owner(move.bundle) == move.destination
        outcome = {"source": move.source, "destination": move.destination, "outcome": Reason.MOVED}
        done[move.bundle] = Unload(at=now, plan_id=run.folder.name, **outcome)
    return done


@pytest.mark.parametrize("strategy", Strategy)
def test_every_demonstration_moves_bundles_and_ends_balanced(strategy: Strategy, tmp_path: Path) -> None:
    shown = demonstration(strategy)
    storage = ClusterStorage(str(tmp_path), shown.entry.name)

    async def until_balanced() -> list[Summary]:
        summaries: list[Summary] = []
        before = StateBefore()
        with running(shown.cluster) as served:
            connection = AdminConnection(seeds=(served.urls[0],), token=SecretStr(served.token))
            async with PulsarAdmin(connection) as admin:
                while len(summaries) < MOST_RUNS and not (summaries and is_balanced(summaries[-1])):
                    run = await decided(shown, storage, admin, before)
                    summaries.append(plan.Summary.read(run.folder))
                    unloads = before.moves.unloads | moved(shown, run, summaries[-1])
                    before = StateBefore(decision=plan.read_state(run.folder), moves=MovesState(unloads=unloads))
                    shown.cluster.advance(shown.entry.settings.interval_seconds)
        return summaries

    summaries = asyncio.run(until_balanced())

    assert is_balanced(summaries[-1]), [summary.sentence for summary in summaries]
    assert sum(summary.bundles_taken for summary in summaries) > 0
    assert summaries[-1].score_range < summaries[0].score_range
