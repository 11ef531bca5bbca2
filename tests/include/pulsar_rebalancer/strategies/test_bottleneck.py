"""Which resource is the bottleneck, and when another takes its place."""

from __future__ import annotations

from typing import Any

import pytest
from tests.vectors.rows import broker, brokers_of

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state.learned import Learned
from pulsar_rebalancer.strategies.bottleneck import LASTING, bottleneck_of, continued, measure_of

CPU, MEMORY, NETWORK = "cpu", "direct_memory", "bandwidth_out"


def used(name: str, cpu: float = 0, memory: float = 0, inward: float = 0, outward: float = 0, **more: Any) -> Any:
    """A broker with these percentages."""
    usage = {MEMORY: memory, "bandwidth_in": inward, NETWORK: outward}
    rows = {
        f"{resource}_{part}": figure
        for resource, of in usage.items()
        for part, figure in (("usage", of), ("limit", 100.0))
    }
    return broker(name, cpu) | rows | more


SETTINGS = Settings(direct_memory_weight=1)
"""By default, direct memory is no part of the score."""


def of(*rows: Any, settings: Settings = SETTINGS) -> str:
    return bottleneck_of(brokers_of(rows), settings)


def test_the_scores_that_a_resource_decides_count_not_the_brokers():
    # One hot broker says more about the load than three idle ones about their memory.
    idle = [used(name, cpu=2, memory=20) for name in "bcd"]
    assert of(used("a", cpu=90, memory=20), *idle) == CPU
    assert of(used("a", cpu=50, memory=20), *idle) == MEMORY
    assert of(used("a", cpu=50, memory=20), *idle, settings=Settings()) == CPU
    assert of(used("a", cpu=50, memory=20), *[row | {"left_out": Reason.REPORT_MISSING} for row in idle]) == CPU
    assert of(*(broker(name, 0) for name in "ab")) == CPU


def test_both_directions_of_the_network_are_one_resource():
    rows = used("a", cpu=60), used("b", inward=40), used("c", outward=30)
    assert of(*rows) == NETWORK
    assert [measure_of(name) for name in (CPU, MEMORY, NETWORK)] == [Measure.RATE, Measure.RATE, Measure.THROUGHPUT]


def after(known: Learned, resource: str, *, counts: bool = True) -> Learned:
    names = {CPU: "cpu", MEMORY: "memory", NETWORK: "outward"}
    return continued(known, brokers_of([used("a", **{names[resource]: 50.0})]), SETTINGS, counts=counts)


def test_a_bottleneck_must_last_and_takes_what_was_learned_with_it():
    known = Learned(samples=50, points=0.1, idle=2.0)
    for number in range(1, LASTING):
        known = after(known, NETWORK)
        assert (known.samples, known.bottleneck, known.others) == (50, CPU, number)
    assert after(known, CPU) == Learned(samples=50, points=0.1, idle=2.0)
    assert after(known, NETWORK) == Learned(bottleneck=NETWORK)


def test_resources_that_alternate_change_nothing():
    known = Learned(samples=50)
    for resource in [NETWORK, CPU] * LASTING:
        known = after(known, resource)
    assert known == Learned(samples=50)


@pytest.mark.parametrize("samples", [0, 50])
def test_a_sample_that_does_not_count_only_says_where_to_begin(samples):
    known = Learned(samples=samples, others=LASTING - 1 if samples else 0)
    assert after(known, MEMORY, counts=False) == (known if samples else Learned(bottleneck=MEMORY))
