"""Placements against answers of Pulsar itself; those of LeastLongTermMessageRate go through the pipeline."""

import pytest
from tests.vectors import histories, placements
from tests.vectors.rows import decided, sample

from pulsar_rebalancer.state import HitCount, PlacementState
from pulsar_rebalancer.strategies.placement import (
    ExtensibleLeastResourceUsageWithWeight,
    LeastResourceUsageWithWeight,
    make_selector,
)


def steps(placement):
    for history in placements.read(placement):
        for number, step in enumerate(history.steps):
            yield f"{history.name} step {number}", number, sample(step.brokers, [], history.settings), step


def test_avg_shedder():
    """The plans are those of its run over the same step; a bundle without one may be drawn to any candidate."""
    checked, name = 0, "AvgShedderPlace-5.0.1"
    for asking, shedding in zip(placements.read(name), histories.read(name), strict=True):
        hits: dict[str, HitCount] = {}
        for number, (step, before) in enumerate(zip(asking.steps, shedding.steps, strict=True)):
            given, where = shedding.sample(before), f"{asking.name} step {number}"
            result = decided(given, hits)
            hits = histories.with_the_departed(shedding.settings, before, hits, result.decisions, result.hits)
            planned = {move.bundle: move.destination for move in result.moves if move.is_taken}
            chooser = make_selector(given, PlacementState())
            for ask in step.asks:
                assert planned.get(ask.bundle) == ask.planned, where
                if ask.planned is None:
                    assert sorted(chooser.eligible_brokers(ask.bundle, ask.candidates)) == ask.eligible, where
                checked += 1
    assert checked == 743


def test_least_resource_usage_with_weight():
    checked, averages = 0, dict[str, float]()
    for where, number, given, step in steps("LeastResourceUsageWithWeight"):
        before = averages = averages if number else {}
        chooser = LeastResourceUsageWithWeight(given, PlacementState(averages=before))
        for ask in step.asks:
            assert sorted(chooser.eligible_brokers(ask.bundle, ask.candidates)) == ask.eligible, where
            # Pulsar keeps brokers that are gone until it is told so, which the histories never do.
            averages = {**before, **chooser.placement_state().averages}
            assert averages == pytest.approx(ask.ema, abs=1e-9, rel=0), where
            checked += 1
    assert checked == 476


def test_extensible_least_resource_usage_with_weight():
    checked = 0
    for where, _, given, step in steps("ExtensibleLeastResourceUsageWithWeight"):
        load = {broker.broker: broker.load_average for broker in given.brokers}
        assert load == pytest.approx(step.load, abs=1e-9, rel=0), where
        chooser = ExtensibleLeastResourceUsageWithWeight(given)
        for ask in step.asks:
            assert sorted(chooser.eligible_brokers(ask.bundle, ask.candidates)) == ask.eligible, where
            checked += 1
    assert checked == 475
