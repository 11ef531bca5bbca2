"""OverloadShedder against Pulsar's own answers and its upstream test cases."""

from __future__ import annotations

import pytest
from tests.vectors import histories
from tests.vectors.rows import MIB, broker, bundle, check, completed, reasons, sample

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.shedders.overload_shedder import shed

NOTHING = ShedderState()
BROKERS = (broker("b1", 99.9, bundles=10, throughput=110 * MIB), broker("b2", 0, bundles=10))


@pytest.mark.parametrize(
    "history", histories.read("OverloadShedder"), ids=lambda history: f"{history.edge}-{history.name}"
)
def test_decides_as_pulsars_own_class(history):
    for step in history.steps:
        given = history.sample(step)
        result = shed(given, NOTHING)
        check(given, result)
        assert histories.unload_of(result.moves) == step.expected["unload"]
        assert result.kept == NOTHING


def held(recent=()):
    preset = dict.fromkeys(recent, "recently_unloaded")
    return [bundle("b1", f"t/n/{n}", throughput=2 * n * MIB, reason=preset.get(n)) for n in range(1, 11)]


@pytest.mark.parametrize(("recent", "expected"), [((), ["t/n/10", "t/n/9"]), ((10, 9), ["t/n/8", "t/n/7"])])
def test_upstream_cases(recent, expected):
    result = shed(sample(BROKERS, held(recent)), NOTHING)
    assert histories.unload_of(result.moves) == {"b1": expected}
    assert result.decisions[0].target == pytest.approx(21.89 * MIB, abs=1e-5 * MIB)


def test_every_broker_is_told_why_it_sheds_or_not():
    brokers = [*BROKERS, broker("b3", 88, bundles=0), broker("b4", 99, left_out="broker_excluded")]
    result = shed(sample(brokers, held()), NOTHING)
    assert reasons(result) == {
        "b1": "fired",
        "b3": "single_bundle",
        "b2": "not_overloaded",
        "b4": "broker_excluded",
    }
    assert [row.explanation for row in completed(result)[:3]] == [
        "load 99.9% reaches 85.0%: 21.89 MiB/s must leave. Taken: 2 bundles with 38.00 MiB/s. "
        "Passed over: target_reached 8.",
        "load 88.0% reaches 85.0%: 0.00 MiB/s must leave, but it has no bundle",
        "load 0.0%, below 85.0%",
    ]
    assert result.sentence == "2 of 3 brokers have a load of 85% or more"


def test_weights_decide_what_counts_as_load():
    assert shed(sample(BROKERS, held(), Settings(cpu_weight=0)), NOTHING).moves == []


def test_nothing_more_is_taken_once_the_target_is_reached():
    bundles = [bundle("b1", "t/n/1", throughput=75), bundle("b1", "t/n/2", throughput=25)]
    given = sample([broker("b1", 100, bundles=2, throughput=100)], bundles, Settings(overloaded_threshold=30))
    assert [(move.bundle, move.reason) for move in shed(given, NOTHING).moves] == [
        ("t/n/1", "taken"),
        ("t/n/2", "target_reached"),
    ]
