"""The DAG, run by Airflow, balances real brokers."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from tests.pulsar.admin import Admin
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import DAG_ID, Run, assert_carried_out, load_broker_zero, rebalancer
from tests.pulsar.simulated import Course, bundles_of, scores_of, simulated
from tests.pulsar.throttling import await_host_samples, throttle

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pulsar.conftest import ClusterFactory
    from tests.pulsar.distribution import Distribution

    from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow

RATE = 3500.0
"""Unbatched messages a second in total. By machine and TLS, 15 to 35 % of such a broker; an idle one shows 3 to 6 %."""
INTERVAL_SECONDS = 60
"""The brokers' host interval: each run sees a new sample."""
LOW_THRESHOLD = 8
"""Half of the smallest gap that was seen, and far above the noise between idle brokers."""
HITS = 2
CALM_RUNS = HITS
"""So many runs in a row without a move: hits would have been enough for another one. Others may come before."""
MOST_RUNS = 40


def next_run(airflow: LocalAirflow, seen: list[str]) -> Run:
    """Return the next scheduled run, once it has ended."""
    for run in airflow.ended_runs(DAG_ID):
        if run["dag_run_id"] not in seen:
            seen.append(run["dag_run_id"])
            return Run(airflow, run)
    raise AssertionError("the stream of runs ended")


def sampled_anew(runs: list[Run]) -> bool:
    """Whether every broker has taken two host samples since the first run: one is of the time before its moves too."""
    usages = [run.cpu_usages for run in runs]
    return all(sum(1 for _ in groupby(seen[broker] for seen in usages)) > 2 for broker in usages[0])


def test_hits_are_counted_then_half_the_difference_moves_until_there_is_nothing_to_move(
    pulsar_424: Distribution, clusters: ClusterFactory, tmp_path: Path
) -> None:
    """Over TLS and with token authentication, from the first hit to the calm after the moves."""
    cluster = clusters(pulsar_424, cgroups=True, auth=True, tls=True, plain=False)
    settings = {
        "mode": "auto",
        "interval_seconds": INTERVAL_SECONDS,
        "low_threshold": LOW_THRESHOLD,
        "high_threshold": 100,
        "hit_count_low": HITS,
        "min_unload_message": 100,
        "state_max_gap": 7,
        "max_unload_percentage": 0.5,
        "grace_period_minutes": 1,
        "unload_timeout_seconds": 90,
    }
    with Admin(cluster) as admin:
        topics = load_broker_zero(admin, ["tests/load"], 16)
        rates = dict.fromkeys(topics.values(), RATE / len(topics))
        with Load(cluster, rates, tmp_path / "load.log", batching=False) as load:
            load.start()
            throttle(cluster, admin)
            await_host_samples(admin, 1)
            with rebalancer(cluster, tmp_path / "airflow", settings) as airflow:
                seen: list[str] = []
                moved: list[int] = []
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

                # Every broker has looked at its CPU again, and soon nothing moves any more. The range is smaller then,
                # and not before: the third broker is idle until its own pair fires, and a JVM has to warm up.
                later = [fired]
                while not sampled_anew(later):
                    later.append(next_run(airflow, seen))
                    assert later[-1].state == "success", later[-1].tasks
                    assert_carried_out(later[-1], admin)
                moved += [run.summary.bundles_taken for run in later if run.summary.bundles_taken]
                calm: list[Run] = []
                for _ in range(MOST_RUNS):
                    run = next_run(airflow, seen)
                    assert run.state == "success", run.tasks
                    assert_carried_out(run, admin)
                    calm = [*calm, run] if not run.summary.bundles_taken else []
                    moved += [run.summary.bundles_taken] if run.summary.bundles_taken else []
                    if len(calm) == CALM_RUNS:
                        break
                assert len(calm) == CALM_RUNS, f"range {run.summary.score_range} after {MOST_RUNS} runs"
                assert calm[-1].summary.score_range < fired.summary.score_range
                bundles = bundles_of(calm[-1], "tests/load")
                real = Course(len(counted), moved, bundles, scores_of(fired), scores_of(calm[-1]))
            report = load.report()
    assert report.keys() == rates.keys()
    for counts in report.values():
        assert counts.errors == 0
        assert counts.acked == counts.sent > 0

    # The simulated cluster, begun as this one was, goes the same way; docs/simulation.md compares the figures.
    again = simulated(fired, "tests/load", settings, MOST_RUNS)
    print(f"real {json.dumps(real._asdict())}\nsimulated {json.dumps(again._asdict())}")
    assert again.before[0] == pytest.approx(real.before[0], abs=1)
    assert again.waited == HITS - 1
    assert again.moved
    assert again.after[0] - again.after[-1] < again.before[0] - again.before[-1]
