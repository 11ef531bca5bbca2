"""What a run learns is what the replay's columns learn, sample by sample; uncounted samples teach nothing."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.config.clusters_file import RunParams
from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.run_plan import learn_from_run
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.columns import NOBODY, CostColumns, Floats, Roster
from pulsar_rebalancer.run import plan
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.tables import COSTS, MEANS, Measure
from pulsar_rebalancer.state import DecisionState, LearnedValues, MovesState, StrategyState, Unload, accept_state
from pulsar_rebalancer.strategies import scoring
from pulsar_rebalancer.strategies.sample import RecentMove
from pulsar_rebalancer.strategies.scoring import UNIT_DIVISORS
from pulsar_rebalancer_spark import rebalance
from pulsar_rebalancer_spark.rebalance import decide_run

SAMPLES, SATURATED, RESTARTED = 12, 8, 5
"""Number of samples, the first of those whose bottleneck is the network, and that before which a broker restarts."""

PAUSED, PAUSE = 7, 10
"""The sample before which no sample is taken for some minutes, and for how many."""

FORCED = RunParams(force="hot broker")


def test_costs_and_state_after_each_sample(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "LASTING_SAMPLES", 2)
    content = runs.tables("east", 4, 24)
    brokers, bundles = (content[name].to_pylist() for name in ("brokers", "bundles"))
    roster = Roster([row["broker"] for row in brokers], [row["bundle"] for row in bundles])
    columns, known, state, random = CostColumns(roster), LearnedValues(), DecisionState(), np.random.default_rng(3)
    usual = np.array([row["msg_rate_in"] for row in bundles])
    true_cost, size = random.lognormal(0, 0.7, len(bundles)), random.lognormal(7, 1, len(bundles))
    corrected = 0
    for number in range(SAMPLES):
        minute = number + (PAUSE if number >= PAUSED else 0)
        at = runs.NOW + timedelta(minutes=minute)
        # A bundle that comes with the third sample, and one that goes with the fifth.
        owner = np.array([roster.broker_at[row["broker"]] for row in bundles])
        owner[0] = owner[0] if number >= 2 else NOBODY
        owner[1] = owner[1] if number < 4 else NOBODY
        rate = usual * random.lognormal(0, 0.4, len(bundles))
        for row, messages in zip(bundles, rate.tolist(), strict=True):
            row |= {"msg_rate_in": messages, "msg_rate_out": messages}
        for row, sent in zip(bundles, (rate * size).tolist(), strict=True):
            row |= {"msg_throughput_in": sent, "msg_throughput_out": sent}
        load = np.bincount(owner[owner != NOBODY], weights=(rate * true_cost)[owner != NOBODY], minlength=4)
        for row, cores, usage in zip(brokers, (4, 4, 8, 2), load.tolist(), strict=True):
            row |= {"cpu_usage": 2 + usage / load.max() * 60, "cpu_limit": 100.0 * cores}
            row |= {"bandwidth_out_usage": (number >= SATURATED) * usage, "bandwidth_out_limit": load.max()}
        started = runs.NOW + timedelta(minutes=RESTARTED if number >= RESTARTED else 0)
        brokers[0]["started_at"] = started - timedelta(minutes=1)
        seen = [row for row, on in zip(bundles, owner.tolist(), strict=True) if on != NOBODY]
        moved = Unload(at=at - timedelta(minutes=1), plan_id="p", source="elsewhere:1", destination=roster.brokers[3])
        # A move that was not carried out pauses nothing.
        failed = moved.model_copy(update={"source": roster.brokers[0], "outcome": Reason.TIMEOUT})
        moved = moved.model_copy(update={"outcome": Reason.MOVED})
        moves = MovesState(unloads={seen[-1]["bundle"]: moved, seen[-2]["bundle"]: failed})
        tables = content | {
            "brokers": pa.Table.from_pylist(brokers, schema=content["brokers"].schema),
            "bundles": pa.Table.from_pylist(seen, schema=content["bundles"].schema),
        }
        for params in [FORCED, None] if number == 5 else [None]:
            folder = runs.make(tmp_path, tables, state=state, moves=moves, at=at, params=params, strategy="GainShedder")
            given = RunInput.read(folder.uri)
            decide_run(lambda: spark, given)
            after = plan.read_plan_state(folder)
            if params is FORCED:
                assert after.strategy_state == state.strategy_state
                assert after.means == state.means
        state = after
        learning = columns.learn_from_sample(
            known,
            owner,
            carried(2 * rate, size),
            brokers=given.brokers,
            recent_moves=[RecentMove("elsewhere:1", roster.brokers[3], 1)],
            settings=given.settings,
            minute=minute,
            is_counted=True,
        )
        known = learning.learned
        network = number > SATURATED
        assert known.bottleneck == ("bandwidth_out" if network else "cpu")
        assert known.samples == (number - SATURATED if network else number + 1)
        corrected += any(any(correction) for correction in learning.correction_by_broker.values())
        stored = StrategyState.parse({}, state.strategy_state).shedder.learned
        assert stored.points == pytest.approx(known.points, rel=1e-4)
        assert (stored.samples, stored.quiet) == (known.samples, known.quiet)
        for name, values in known.brokers.items():
            assert stored.brokers[name][:-1] == pytest.approx(values[:-1], rel=1e-3, abs=1e-3)
            assert stored.brokers[name].started == values.started
        rows = {row["bundle"]: row for row in (given.state_folder / state.costs_file).read_table().to_pylist()}
        for bundle, on, of_bundle in zip(roster.bundles, owner.tolist(), zip(*columns.costs, strict=True), strict=True):
            if on == NOBODY:
                assert bundle not in rows
            else:
                assert [rows[bundle][name] for name in COSTS] == pytest.approx(of_bundle, rel=1e-3)
    assert corrected >= 4
    assert np.nanmax(np.abs(columns.costs.cost - 1)) > 0.02
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()

    # Values that validation refused change nothing, whatever they are.
    refused = seen[-1]["bundle"]
    seen[-1] |= dict.fromkeys(("msg_rate_in", "msg_rate_out"), float("nan"))
    finding = Finding(reason=Reason.BAD_VALUE, subject=refused)
    validation = Validation(findings=(finding,))
    content |= {"brokers": tables["brokers"], "bundles": pa.Table.from_pylist(seen, schema=content["bundles"].schema)}
    at += timedelta(minutes=1)
    folder = runs.make(tmp_path, content, state=state, at=at, validation=validation, strategy="GainShedder")
    given = RunInput.read(folder.uri)
    summary = decide_run(lambda: spark, given)
    last = StrategyState.parse({}, plan.read_plan_state(folder).strategy_state).shedder.learned
    rate[-1] = columns.costs.quick_rate[-1] * UNIT_DIVISORS[Measure.THROUGHPUT] / size[-1] / 2
    last_sample: Any = {"brokers": given.brokers, "recent_moves": [], "settings": given.settings, "minute": minute + 1}
    expected = columns.learn_from_sample(
        known, owner, carried(2 * rate, size), **last_sample, is_counted=True
    ).learned.points
    assert last.points == pytest.approx(expected, rel=1e-4)
    again = {row["bundle"]: row for row in given.new_costs_file.read_table().to_pylist()}
    assert [again[refused][name] for name in COSTS] == [rows[refused][name] for name in COSTS]

    # Neither order nor partitions of the input change the plan.
    sums = learn_from_run(given).learning_result.sums
    runs.shuffle(folder)
    assert learn_from_run(RunInput.read(folder.uri)).learning_result.sums == sums
    monkeypatch.setattr(rebalance, "BUNDLES_PER_TASK", 10)
    given.new_means_file.delete()
    given.new_costs_file.delete()
    assert decide_run(lambda: spark, RunInput.read(folder.uri)) == summary

    # If nothing can be learned, the run fails.
    damaged = RunInput.read(folder.uri)
    (folder / "input" / "bundles.parquet").write_bytes(b"damaged")
    with pytest.raises(SnapshotError, match="file_damaged"):
        decide_run(lambda: spark, damaged)


def carried(rate: Floats, size: Floats) -> Floats:
    """The load of bundles with these rates, in and out, and sizes of messages."""
    return np.array([rate / 2, rate / 2, rate * size / 2, rate * size / 2])


def test_hits_and_means_go_on_from_avg_shedder_and_back_and_nothing_else(spark, tmp_path):
    state, found = DecisionState(), []
    chosen = (Strategy.AVG, Strategy.GAIN, Strategy.GAIN, Strategy.AVG, Strategy.UNIFORM)
    for number, strategy in enumerate(chosen):
        at = runs.NOW + timedelta(minutes=number)
        content = runs.tables("east", 4, 24, seed=number)
        folder = runs.make(tmp_path, content, state=state, at=at, strategy=strategy, hit_count_low=9, hit_count_high=9)
        given = RunInput.read(folder.uri)
        summary = decide_run(lambda: spark, given)
        recorded = accept_state(state, plan.read_plan_state(folder))
        assert recorded is not None
        state = recorded
        means = (given.state_folder / state.means).read_table()
        found.append((summary.counting, max((hit.low for hit in state.hits.values()), default=0)))
        assert set(means["samples"].to_pylist()) == {number + 1}
        assert means.column_names == MEANS.names
        assert (given.state_folder / state.costs_file).exists() is (strategy is Strategy.GAIN)
        learned = StrategyState.parse({}, state.strategy_state).shedder.learned
        assert learned.samples == (number if strategy is Strategy.GAIN else 0)
        if strategy is Strategy.AVG and number == 0:
            as_avg_shedder(spark, tmp_path, state)
    assert found == [("counted", 1), ("counted", 2), ("counted", 3), ("counted", 4), ("gap", 0)]


def as_avg_shedder(spark: SparkSession, root: Path, state: DecisionState) -> None:
    """The sample after this state, if direct memory decides the scores: GainShedder plans what AvgShedder would."""
    content = runs.tables("east", 4, 24, seed=1)
    rows = content["brokers"].to_pylist()
    for row in rows:
        row |= {"cpu_usage": 1.0, "direct_memory_usage": row["cpu_usage"], "direct_memory_limit": 100.0}
    content |= {"brokers": pa.Table.from_pylist(rows, schema=content["brokers"].schema)}
    settings: dict[str, Any] = {
        "direct_memory_weight": 1,
        "hit_count_low": 2,
        "hit_count_high": 2,
        "min_unload_message": 0,
    }
    plans = []
    for strategy in (Strategy.AVG, Strategy.GAIN):
        at = runs.NOW + timedelta(minutes=1)
        folder = runs.make(root, content, state=state, at=at, strategy=strategy, **settings)
        summary = decide_run(lambda: spark, RunInput.read(folder.uri))
        assert ("[memory_decides]" in summary.sentence) is (strategy is Strategy.GAIN)
        plans.append((folder / "plan" / "moves.parquet").read_table().to_pylist())
    assert plans[0] == plans[1]
    assert any(move["taken"] for move in plans[0])
    learned_state = plan.read_plan_state(folder).strategy_state
    assert StrategyState.parse({}, learned_state).shedder.learned.bottleneck == "direct_memory"
