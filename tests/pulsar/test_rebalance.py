"""The DAG, run by Airflow, balances real brokers, as the simulated cluster predicts."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.pulsar.admin import Admin
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.costs import fitted, settled_cpu
from tests.pulsar.distribution import Distribution
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import DAG_ID, Run, assert_carried_out, load_broker_zero, rebalancer, unpause
from tests.pulsar.simulated import Course, bundles_of, misses, predicted, scores_of
from tests.pulsar.throttling import QUOTA_US, await_host_samples, await_quotas, await_two_samples, set_quotas

from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow

HELD = (11, 5, 0)
"""Bundles of each broker at first: half the difference is five and a half bundles. Five leave, then none fits."""
BUNDLES = sum(HELD)
TRIED_RATE = 60.0  # messages a second of a bundle, from whose cost its rate is computed
GAP = 25  # points between the loaded broker and the idle one, half of which is moved
INTERVAL_SECONDS = 60  # the brokers' host interval: each run sees a new sample
LOW_THRESHOLD = 10
"""Far from the gap that is to be evened out, and from what is left of it: a busy machine makes messages dearer."""
HITS = 2
CALM_RUNS = HITS  # runs in a row without a move, after which there were hits enough for another one
MOST_RUNS = 40
SETTINGS: dict[str, Any] = {
    "mode": "auto",
    "interval_seconds": INTERVAL_SECONDS,
    "low_threshold": LOW_THRESHOLD,
    "high_threshold": 100,
    "hit_count_low": HITS,
    "min_unload_message": 10,
    "state_max_gap": 7,
    "max_unload_percentage": 0.5,
    "grace_period_minutes": 1,
    "move_timeout_seconds": 90,
}


def next_run(airflow: LocalAirflow, seen: list[str]) -> Run:
    """Return the next scheduled run, once it has ended."""
    for run in airflow.ended_runs(DAG_ID):
        if run["dag_run_id"] not in seen:
            seen.append(run["dag_run_id"])
            tasks = {task["task_id"]: task["state"] for task in airflow.tasks(DAG_ID, run["dag_run_id"])}
            return Run(run["state"], tasks, airflow.xcom(DAG_ID, run["dag_run_id"], "collect"))
    raise AssertionError("the stream of runs ended")


def sampled_anew(runs: list[Run]) -> bool:
    """Whether every broker has taken two host samples since the first run: one is of the time before its moves too."""
    usages = [run.cpu_usages for run in runs]
    return all(sum(1 for _ in groupby(seen[broker] for seen in usages)) > 2 for broker in usages[0])


def rate_for_gap(cluster: PulsarCluster) -> float:
    """The messages a second of a bundle that make `GAP`, once brokers that carry `TRIED_RATE` have warmed up."""
    hot, _, idle = settled_cpu(cluster, len(cluster.broker_ids))
    return TRIED_RATE * GAP / (100 * (hot - idle) / (QUOTA_US / 1000))


def test_hits_are_counted_then_half_the_difference_moves_until_there_is_nothing_to_move(
    pulsar_424: Distribution, clusters: ClusterFactory, tmp_path: Path
) -> None:
    """Over TLS and with token authentication, from the first hit to the calm after the moves."""
    cluster = clusters(pulsar_424, cgroups=True, auth=True, tls=True, plain=False)
    with Admin(cluster) as admin:
        topics = load_broker_zero(admin, ["tests/load"], BUNDLES)
        for bundle, topic in list(topics.items())[HELD[0] :]:
            admin.move("tests/load", bundle.rpartition("/")[2], topic, 1)
        tried = dict.fromkeys(topics.values(), TRIED_RATE)
        with Load(cluster, tried, tmp_path / "load.log", batching=False, steady=True) as load:
            load.start()
            set_quotas(cluster)
            # Airflow starts while the brokers take their first host sample.
            with rebalancer(cluster, tmp_path / "airflow", SETTINGS) as airflow:
                rate = rate_for_gap(cluster)
                await_quotas(admin)
                load.change(dict.fromkeys(tried, rate))
                # The first sample is also of the time before; it counts as a hit at most.
                await_host_samples(admin, 1)
                await_two_samples(admin)
                unpause(airflow)
                seen: list[str] = []
                before: list[Run] = []
                while not before or not before[-1].summary.bundles_taken:
                    run = next_run(airflow, seen)
                    assert run.state == "success", run.tasks
                    before.append(run)
                fired = before.pop()
                assert_carried_out(fired, admin)

                # The required number of hits came first, and each run said how many there were.
                assert max(fired.summary.hits) == HITS
                counted = [max(run.summary.hits) for run in before if run.summary.pairs_over]
                assert counted == sorted(counted)
                assert set(range(1, HITS)) <= set(counted)
                assert not any(run.outcome.moves for run in before)

                assert {move.source for move in fired.moves} == {cluster.broker_ids[0]}

                # Every broker has looked at its CPU again since the last move, and nothing moves any more.
                moves, since = [fired], [fired]
                for _ in range(MOST_RUNS):
                    run = next_run(airflow, seen)
                    assert run.state == "success", run.tasks
                    assert_carried_out(run, admin)
                    if run.summary.bundles_taken:
                        moves, since = [*moves, run], []
                    since.append(run)
                    if len(since) > CALM_RUNS and sampled_anew(since):
                        break
                assert len(since) > CALM_RUNS, f"range {run.summary.score_range} after {MOST_RUNS} runs"
                assert sampled_anew(since)
                assert run.summary.score_range < fired.summary.score_range
                real = Course(
                    waited=len(counted),
                    lasted=(moves[-1].summary.collected_at - fired.summary.collected_at).total_seconds() / 60,
                    moved=[run.summary.bundles_taken for run in moves],
                    bundles=bundles_of(run, "tests/load"),
                    before=scores_of(fired),
                    after=scores_of(run),
                )
                print(f"real {json.dumps(real._asdict())}")
                owners = [admin.owner(bundle) for bundle in topics]
                carried = [rate * held for held in (*HELD, *map(owners.count, cluster.broker_ids))]
            report = load.report()
    assert report.keys() == tried.keys()
    for counts in report.values():
        assert counts.errors == 0
        assert counts.acked == counts.sent > 0

    # With the costs that these samples show, the simulated cluster predicts the course (docs/simulation.md has limits).
    costs = fitted(carried, [each.cpu_usages[broker] for each in (fired, run) for broker in cluster.broker_ids])
    prediction = predicted(costs, QUOTA_US / 1000, rate, HELD, SETTINGS, MOST_RUNS)
    print(f"{rate * BUNDLES:.0f} messages a second, {costs}, predicted {json.dumps(prediction._asdict())}")
    assert not misses(prediction, real)
