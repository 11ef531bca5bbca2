"""The other shedders through the application: from a run's folder to a plan whose moves all have a destination."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.spark_apps import runs

from pulsar_rebalancer import plan
from pulsar_rebalancer.settings import Strategy
from pulsar_rebalancer_spark.rebalance import decide
from pulsar_rebalancer_spark.run_input import RunInput

SHEDDING = {
    Strategy.THRESHOLD: {"min_unload_bundle_throughput": 0, "history_percentage": 0.5},
    Strategy.OVERLOAD: {"overloaded_threshold": 60},
    Strategy.UNIFORM: {"min_unload_message": 0},
    Strategy.TRANSFER: {"target_std": 0.05, "hit_count_transfer": 0},
}


def decided(spark, root, run):
    return decide(spark, RunInput.read(str(root), run.uri))


@pytest.mark.parametrize("strategy", SHEDDING)
def test_every_move_has_a_destination_and_a_wave(spark, tmp_path, strategy):
    run = runs.make(tmp_path, runs.tables("east", 6, 20), strategy=strategy, **SHEDDING[strategy])
    summary = decided(spark, tmp_path, run)
    moves = plan.verify(run, summary)
    assert len(moves) == summary.bundles_taken > 0
    assert all(move.destination not in ("", move.source) for move in moves)
    assert summary.sentence
    assert summary.brokers == 6
    decisions = (run / "plan" / "decisions.parquet").read_table().to_pylist()
    assert {row["source"] for row in decisions} | {row["destination"] for row in decisions} >= {
        f"broker-{n:05}.pulsar:8080" for n in range(6)
    }
    assert all(row["explanation"] and row["reason"] for row in decisions)
    # The hottest broker gets rid of something, if loads follow traffic.
    assert summary.predicted_max < summary.score_max
    assert decided(spark, tmp_path, run) == summary


def test_averages_go_from_run_to_run_and_start_anew_with_another_strategy(spark, tmp_path):
    settings = {"strategy": Strategy.THRESHOLD, "history_percentage": 0.5}
    state, averages = None, []
    for number, seed in enumerate((1, 2)):
        at = runs.NOW + timedelta(seconds=60 * number)
        run = runs.make(tmp_path, runs.tables("east", 4, 10, seed=seed), state=state, at=at, **settings)
        decided(spark, tmp_path, run)
        state = plan.read_state(run)
        averages.append(state.kept["shedder"]["averages"]["broker-00001.pulsar:8080"])
    alone = runs.make(tmp_path, runs.tables("east", 4, 10, seed=2), **settings)
    decided(spark, tmp_path, alone)
    sample = plan.read_state(alone).kept["shedder"]["averages"]["broker-00001.pulsar:8080"]
    assert averages[1] == pytest.approx((averages[0] + sample) / 2)
    at = runs.NOW + timedelta(seconds=120)
    other = runs.make(tmp_path, runs.tables("east", 4, 10), state=state, at=at, strategy=Strategy.TRANSFER)
    assert decided(spark, tmp_path, other).counting == "strategy_changed"
    assert "averages" not in plan.read_state(other).kept["shedder"]
    soon = runs.make(tmp_path, runs.tables("east", 4, 10), state=state, at=at - timedelta(seconds=50), **settings)
    assert decided(spark, tmp_path, soon).counting == "too_soon"
    assert plan.read_state(soon).kept == state.kept
