"""Every placement against Pulsar's own answers, ask by ask."""

from __future__ import annotations

import pytest
from tests.vectors import placements

from pulsar_rebalancer.strategies.placement.avg import AvgPlacement, Plan
from pulsar_rebalancer.strategies.placement.least_long_term_message_rate import LeastLongTermMessageRate
from pulsar_rebalancer.strategies.placement.least_resource_usage_with_weight import (
    ExtensibleLeastResourceUsageWithWeight,
    LeastResourceUsageWithWeight,
)
from pulsar_rebalancer.strategies.placement.selector import overloaded
from pulsar_rebalancer.strategies.view import View


def steps(placement):
    for history in placements.read(placement):
        for number, step in enumerate(history.steps):
            view = View(history.name, step.brokers, [], history.settings)
            yield f"{history.name} step {number}", number, view, step


def test_avg_shedder():
    checked = 0
    for where, _, view, step in steps("AvgShedderPlace-5.0.1"):
        plans = {bundle: Plan(step.source[bundle], broker) for bundle, broker in step.dest.items()}
        chooser = AvgPlacement(plans, overloaded(view))
        for ask in step.asks:
            assert step.dest.get(ask.bundle) == ask.planned, where
            assert sorted(chooser.eligible(ask.bundle, ask.candidates)) == ask.eligible, where
            checked += 1
    assert checked == 743


def test_least_long_term_message_rate():
    checked = 0
    for where, _, view, step in steps("LeastLongTermMessageRate"):
        chooser = LeastLongTermMessageRate(step.rates, step.of_bundle, overloaded(view))
        for broker, bundles in step.preallocated.items():
            for bundle in bundles:
                chooser.placed(bundle, broker)
        for ask in step.asks:
            assert sorted(chooser.eligible(ask.bundle, ask.candidates)) == ask.eligible, where
            checked += 1
    assert checked == 454


def test_least_resource_usage_with_weight():
    checked, averages = 0, {}
    for where, number, view, step in steps("LeastResourceUsageWithWeight"):
        before = averages = averages if number else {}
        chooser = LeastResourceUsageWithWeight(view, {"averages": before})
        for ask in step.asks:
            assert sorted(chooser.eligible(ask.bundle, ask.candidates)) == ask.eligible, where
            # Pulsar keeps brokers that are gone until it is told so, which the histories never do.
            averages = before | chooser.document()["averages"]
            assert averages == pytest.approx(ask.ema, abs=1e-9, rel=0), where
            checked += 1
    assert checked == 476


def test_extensible_least_resource_usage_with_weight():
    checked = 0
    for where, _, view, step in steps("ExtensibleLeastResourceUsageWithWeight"):
        load = {row["broker"]: row["load_average"] for row in view.brokers}
        assert load == pytest.approx(step.load, abs=1e-9, rel=0), where
        chooser = ExtensibleLeastResourceUsageWithWeight(view)
        for ask in step.asks:
            assert sorted(chooser.eligible(ask.bundle, ask.candidates)) == ask.eligible, where
            checked += 1
    assert checked == 475
