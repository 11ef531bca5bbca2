"""The other shedders through the application: from a run's folder to a plan whose moves all have a destination."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.config.clusters_file import RunParams
from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.run import plan
from pulsar_rebalancer_spark import bundle_means, rebalance
from pulsar_rebalancer_spark.rebalance import decide_run

SHEDDING: dict[Strategy, dict[str, Any]] = {
    Strategy.THRESHOLD: {"min_unload_bundle_throughput": 0, "history_percentage": 0.5},
    Strategy.OVERLOAD: {"overloaded_threshold": 60},
    Strategy.UNIFORM: {"min_unload_message": 0},
    Strategy.TRANSFER: {"target_std": 0.05, "hit_count_transfer": 0},
}


def decided(spark, root, run):
    return decide_run(lambda: spark, RunInput.read(run.uri))


@pytest.mark.parametrize("strategy", SHEDDING)
def test_every_move_has_a_destination_whatever_the_order_of_the_input_and_its_partitions(
    spark, tmp_path, strategy, monkeypatch
):
    run = runs.make(tmp_path, runs.tables("east", 6, 20), strategy=strategy, **SHEDDING[strategy])
    summary = decided(spark, tmp_path, run)
    moves = plan.verified_actions(run, summary).moves
    assert len(moves) == summary.bundles_taken > 0
    assert all(move.destination not in ("", move.source) for move in moves)
    # Those that come back in a swap are told apart.
    assert sum(map(int, re.findall(r"(\d+) bundles? with", summary.sentence))) == summary.bundles_taken
    assert summary.brokers == 6
    decisions = (run / "plan" / "decisions.parquet").read_table().to_pylist()
    assert {row["source"] for row in decisions} | {row["destination"] for row in decisions} >= {
        f"broker-{n:05}.pulsar:8080" for n in range(6)
    }
    assert all(row["explanation"] and row["reason"] for row in decisions)
    # The hottest broker gets rid of something, if loads follow traffic.
    assert summary.predicted_max < summary.score_max
    runs.shuffle(run)
    monkeypatch.setattr(rebalance, "BUNDLES_PER_TASK", 50)
    assert decided(spark, tmp_path, run) == summary


def test_executors_write_only_below_the_state_and_leave_nothing_of_a_sample_that_does_not_count(
    spark, tmp_path, monkeypatch
):
    """A deployment lets them write nowhere else."""
    written, write = [], bundle_means.write_frame

    def noted(frame, file):
        written.append(file.uri)
        write(frame, file)

    monkeypatch.setattr(bundle_means, "write_frame", noted)
    content, settings = runs.tables("east", 6, 20), SHEDDING[Strategy.OVERLOAD]
    for params in (RunParams(), RunParams(force="hot broker")):
        run = runs.make(tmp_path, content, params=params, strategy=Strategy.OVERLOAD, **settings)
        assert decided(spark, tmp_path, run).bundles_taken
    assert [Path(file).parent for file in written] == [tmp_path / "east" / "state"] * 2
    assert written[0] != written[1]
    assert [file.name for file in (tmp_path / "east" / "state").iterdir()] == [Path(written[0]).name]
