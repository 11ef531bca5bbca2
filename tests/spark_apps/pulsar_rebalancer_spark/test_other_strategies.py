"""The other shedders through the application: from a run's folder to a plan whose moves all have a destination."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark_apps.pulsar_rebalancer_spark import runs
from tests.vectors.rows import decision_of

from pulsar_rebalancer.config.clusters_file import RunParams
from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.run_plan import plan_run
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.run import plan
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.tables import BUNDLES
from pulsar_rebalancer.state.state_documents import MovesState, Unload
from pulsar_rebalancer.strategies.sample import CandidateMove
from pulsar_rebalancer_spark import bundle_means, rebalance
from pulsar_rebalancer_spark.rebalance import decide

SHEDDING: dict[Strategy, dict[str, Any]] = {
    Strategy.THRESHOLD: {"min_unload_bundle_throughput": 0, "history_percentage": 0.5},
    Strategy.OVERLOAD: {"overloaded_threshold": 60},
    Strategy.UNIFORM: {"min_unload_message": 0},
    Strategy.TRANSFER: {"target_std": 0.05, "hit_count_transfer": 0},
}


def decided(spark, root, run):
    return decide(lambda: spark, RunInput.read(run.uri))


@pytest.mark.parametrize("strategy", SHEDDING)
def test_every_move_has_a_destination_whatever_the_order_of_the_input_and_its_partitions(
    spark, tmp_path, strategy, monkeypatch
):
    run = runs.make(tmp_path, runs.tables("east", 6, 20), strategy=strategy, **SHEDDING[strategy])
    summary = decided(spark, tmp_path, run)
    moves = plan.verify(run, summary).moves
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


def test_the_plan_is_the_one_that_rows_give(spark, tmp_path):
    content = runs.tables("east", 6, 20)
    held = content["bundles"].to_pylist()
    # Of the busiest broker, which sheds: one was moved, one's namespace is excluded, one has two owners.
    recent, quarantined = held[-1]["bundle"], held[-2]["bundle"]
    held[-3]["bundle"] = "tenant/kept/0x00000000_0x40000000"
    held[-4] |= {"bundle": "spread/a/0x00000000_0x40000000", "policy": "anti_affinity", "msg_throughput_in": 1e9}
    held[0] |= {"bundle": "spread/b/0x00000000_0x40000000", "policy": "anti_affinity"}
    content["bundles"] = pa.Table.from_pylist(held, schema=BUNDLES)
    unload = Unload(at=runs.NOW - timedelta(minutes=5), plan_id="earlier", source="x", destination="y")
    run = runs.make(
        tmp_path,
        content,
        strategy=Strategy.THRESHOLD,
        moves=MovesState(unloads={recent: unload}),
        validation=Validation(
            findings=(Finding(reason="two_owners", subject=quarantined),),
        ),
        policies=Policies(groups={"spread/a": "g", "spread/b": "g"}),
        excluded_namespaces=("tenant/kept",),
        max_bundles_per_run=3,
        **SHEDDING[Strategy.THRESHOLD],
    )
    summary = decided(spark, tmp_path, run)
    given = RunInput.read(run.uri)
    expected = plan_run(given, runs.sample(given)[1])
    found = (run / "plan" / "moves.parquet").read_table().to_pylist()
    moves = sorted((CandidateMove.of_row(row) for row in found), key=lambda move: (move.pair, move.rank))
    assert moves == expected.moves
    assert {move.reason for move in moves} >= {
        *("taken", "recently_unloaded", "namespace_excluded", "bundle_quarantined", "cap_run"),
    }
    decisions = (run / "plan" / "decisions.parquet").read_table().to_pylist()
    assert [decision_of(row) for row in decisions] == expected.completed
    assert summary.sentence == expected.sentence
    assert expected.kept is not None
    assert plan.read_state(run).kept == expected.kept.document()


@pytest.mark.parametrize("strategy", [Strategy.THRESHOLD, Strategy.TRANSFER])
def test_rates_of_moves_are_short_term_means_whatever_the_strategy_compares(spark, tmp_path, strategy):
    state = None
    for number, seed in enumerate((1, 2)):
        at = runs.NOW + timedelta(seconds=60 * number)
        content = runs.tables("east", 6, 20, seed=seed)
        run = runs.make(tmp_path, content, state=state, at=at, strategy=strategy, **SHEDDING[strategy])
        decided(spark, tmp_path, run)
        state = plan.read_state(run)
    kept = RunInput.read(run.uri).new_means.read_table().to_pylist()
    means = {row["bundle"]: row["msg_rate_in"] + row["msg_rate_out"] for row in kept}
    present = {row["bundle"]: 2 * row["msg_throughput_in"] for row in content["bundles"].to_pylist()}
    moves = (run / "plan" / "moves.parquet").read_table().to_pylist()
    assert {row["bundle"]: row["msg_rate"] for row in moves} == {row["bundle"]: means[row["bundle"]] for row in moves}
    assert all(row["traffic"] == present[row["bundle"]] for row in moves) is (strategy is Strategy.TRANSFER)


def test_executors_write_only_below_the_state_and_leave_nothing_of_a_sample_that_does_not_count(
    spark, tmp_path, monkeypatch
):
    """A deployment lets them write nowhere else."""
    written, write = [], bundle_means.write

    def noted(frame, file):
        written.append(file.uri)
        write(frame, file)

    monkeypatch.setattr(bundle_means, "write", noted)
    content, settings = runs.tables("east", 6, 20), SHEDDING[Strategy.OVERLOAD]
    for params in (RunParams(), RunParams(force="hot broker")):
        run = runs.make(tmp_path, content, params=params, strategy=Strategy.OVERLOAD, **settings)
        assert decided(spark, tmp_path, run).bundles_taken
    assert [Path(file).parent for file in written] == [tmp_path / "east" / "state"] * 2
    assert written[0] != written[1]
    assert [file.name for file in (tmp_path / "east" / "state").iterdir()] == [Path(written[0]).name]


def test_averages_go_from_run_to_run_and_start_anew_with_another_strategy(spark, tmp_path):
    settings: dict[str, Any] = {"strategy": Strategy.THRESHOLD, "history_percentage": 0.5}
    state, averages = None, []
    for number, seed in enumerate((1, 2)):
        at = runs.NOW + timedelta(seconds=60 * number)
        run = runs.make(tmp_path, runs.tables("east", 4, 10, seed=seed), state=state, at=at, **settings)
        decided(spark, tmp_path, run)
        state = plan.read_state(run)
        averages.append(state.kept["shedder"]["loads"]["broker-00001.pulsar:8080"])
    alone = runs.make(tmp_path, runs.tables("east", 4, 10, seed=2), **settings)
    decided(spark, tmp_path, alone)
    sample = plan.read_state(alone).kept["shedder"]["loads"]["broker-00001.pulsar:8080"]
    assert averages[1] == pytest.approx((averages[0] + sample) / 2)
    at = runs.NOW + timedelta(seconds=120)
    other = runs.make(tmp_path, runs.tables("east", 4, 10), state=state, at=at, strategy=Strategy.TRANSFER)
    assert decided(spark, tmp_path, other).counting == "strategy_changed"
    loads = plan.read_state(other).kept["shedder"]["loads"]
    assert loads["broker-00001.pulsar:8080"] != pytest.approx(averages[1])
    soon = runs.make(tmp_path, runs.tables("east", 4, 10), state=state, at=at - timedelta(seconds=50), **settings)
    assert decided(spark, tmp_path, soon).counting == "too_soon"
    assert state is not None
    assert plan.read_state(soon).kept == state.kept
