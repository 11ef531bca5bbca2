"""A second strategy that decides on every counted sample: as if it were the strategy, and without any effect."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests import outside_shedder
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.config.resolution import RunParams
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.run import plan
from pulsar_rebalancer.show.page.bundle_costs import bundle_costs, learned_in
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE
from pulsar_rebalancer_spark.rebalance import decide

AVG, GAIN = {"strategy": "AvgShedder"}, {"strategy": "GainShedder"}
WITH_SHADOW = AVG | {"shadow": "GainShedder"}
CONTENT = [runs.tables("east", 4, 10, seed=number) for number in range(3)]


def decided(spark, root, number, state, params=None, **settings):
    """The run's folder, its summary and the state after it."""
    at = runs.NOW + timedelta(minutes=number)
    run = runs.make(root, CONTENT[number], state=state, at=at, params=params, **settings)
    summary = decide(lambda: spark, RunInput.read(run.uri))
    return run, summary, plan.read_state(run)


def test_it_decides_as_if_it_were_the_strategy_and_changes_nothing(spark, tmp_path):
    roots = {name: tmp_path / name for name in ("both", "avg", "gain")}
    states = dict.fromkeys(roots, DecisionState())
    taken = []
    for number in range(2):
        settings = {"both": WITH_SHADOW, "avg": AVG, "gain": GAIN}
        found = {name: decided(spark, roots[name], number, states[name], **settings[name]) for name in roots}
        (both, summary, state), (avg, alone, avg_state), (_, gain, gain_state) = found.values()
        states = {name: after for name, (_, _, after) in found.items()}

        assert plan.taken_candidates(both) == plan.taken_candidates(avg)
        assert (summary.sentence, summary.hits, alone.shadow) == (alone.sentence, alone.hits, None)
        assert (state.hits, state.kept, state.samples) == (avg_state.hits, avg_state.kept, avg_state.samples)

        assert summary.shadow is not None
        assert summary.shadow.strategy == "GainShedder"
        assert summary.shadow.sentence == gain.sentence
        assert summary.shadow.bundles_taken == gain.bundles_taken
        assert summary.shadow.predicted_range == pytest.approx(gain.predicted_range)
        assert (state.shadow.hits, state.shadow.samples) == (gain_state.hits, gain_state.samples)
        assert state.shadow.kept == gain_state.kept
        taken.append((summary.bundles_taken, summary.shadow.bundles_taken))
    # Both strategies act in this scene, and not in the same way.
    assert all(map(sum, zip(*taken, strict=True)))
    assert any(own != other for own, other in taken)
    assert "shadow" not in (avg / "plan" / "state.json").read_json()

    # The page shows what the shadow has learned.
    hottest, now = "broker-00003.pulsar:8080", runs.NOW + timedelta(minutes=2)
    costs = {name: bundle_costs(ClusterStorage(str(root), "east"), hottest, now) for name, root in roots.items()}
    assert len(costs["both"]) == 10
    assert list(costs["both"]) == sorted(costs["both"], key=lambda cost: -cost.now)
    assert costs["both"] == costs["gain"]
    assert costs["avg"] == ()
    learned = learned_in(states["both"])
    assert learned is not None
    explained = sum(cost.now for cost in costs["both"]) + learned.idle
    assert explained == pytest.approx(learned.brokers[hottest].score, rel=0.3)

    # A forced run teaches the shadow nothing.
    _, forced, after = decided(spark, roots["both"], 2, states["both"], RunParams(force="hot broker"), **WITH_SHADOW)
    assert (forced.shadow, after.shadow) == (None, states["both"].shadow)

    # Once the shadow is the strategy, it goes on from what it knows, and the other one is the shadow.
    swapped = GAIN | {"shadow": "AvgShedder"}
    _, first, after = decided(spark, roots["both"], 2, states["both"], **swapped)
    _, alone, gain_after = decided(spark, roots["gain"], 2, states["gain"], **GAIN)
    assert first.counting == alone.counting == "counted"
    assert (after.hits, after.kept) == (gain_after.hits, gain_after.kept)
    _, _, avg_after = decided(spark, roots["avg"], 2, states["avg"], **AVG)
    assert after.shadow.hits == avg_after.hits


def test_a_shadow_that_fails_costs_only_its_own_plan(spark, tmp_path, monkeypatch):
    monkeypatch.setenv(STRATEGIES_VARIABLE, outside_shedder.PATH)
    monkeypatch.setattr(outside_shedder, "score", lambda *_: 1 / 0)
    shadow = AVG | {"shadow": outside_shedder.PATH, "shadow_settings": {"gap": 40}}
    run, summary, state = decided(spark, tmp_path / "both", 0, DecisionState(), **shadow)
    other, alone, _ = decided(spark, tmp_path / "avg", 0, DecisionState(), **AVG)
    assert plan.read_decisions(run) == plan.read_decisions(other)
    assert summary.sentence == alone.sentence
    assert summary.shadow is not None
    assert summary.shadow.error == "ZeroDivisionError: division by zero"
    assert state.shadow == DecisionState().shadow


def test_costs_that_only_the_shadow_reads_fail_only_the_shadow(spark, tmp_path):
    _, _, first = decided(spark, tmp_path, 0, DecisionState(), **WITH_SHADOW)
    costs = ClusterStorage(str(tmp_path), "east").state / first.costs
    costs.write_bytes(b"damaged")
    _, summary, second = decided(spark, tmp_path, 1, first, **WITH_SHADOW)
    assert summary.counting == "counted"
    assert summary.shadow is not None
    assert "file_damaged" in summary.shadow.error
    assert second.shadow == first.shadow.without_hits() != first.shadow
    # Learning starts again.
    _, summary, third = decided(spark, tmp_path, 2, second, **WITH_SHADOW)
    assert summary.shadow is not None
    assert summary.shadow.error == ""
    learned = [learned_in(state) for state in (first, third)]
    assert [found.samples for found in learned if found] == [1, 1]
