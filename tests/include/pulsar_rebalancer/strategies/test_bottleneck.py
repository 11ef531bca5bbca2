from typing import Any

import pytest
from tests.vectors.rows import broker, brokers_of

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.state import LearnedValues
from pulsar_rebalancer.strategies.scoring import LASTING_SAMPLES, bottleneck_of, learned_before_sample

CPU, MEMORY, NETWORK = "cpu", "direct_memory", "bandwidth_out"


def used(name: str, cpu: float = 0, memory: float = 0, inward: float = 0, outward: float = 0, **more: Any) -> Any:
    usage = {MEMORY: memory, "bandwidth_in": inward, NETWORK: outward}
    rows = {
        f"{resource}_{part}": value
        for resource, of in usage.items()
        for part, value in (("usage", of), ("limit", 100.0))
    }
    return broker(name, cpu) | rows | more


SETTINGS = Settings(direct_memory_weight=1)
"""By default, direct memory is no part of the score."""


def of(*rows: Any, settings: Settings = SETTINGS) -> str:
    return bottleneck_of(brokers_of(rows), settings)


def after(known: LearnedValues, resource: str, *, counts: bool = True) -> LearnedValues:
    names = {CPU: "cpu", MEMORY: "memory", NETWORK: "outward"}
    return learned_before_sample(known, brokers_of([used("a", **{names[resource]: 50.0})]), SETTINGS, is_counted=counts)


def test_a_bottleneck_must_last_and_takes_what_was_learned_with_it():
    known = LearnedValues(samples=50, points=0.1, idle=2.0)
    for number in range(1, LASTING_SAMPLES):
        known = after(known, NETWORK)
        assert (known.samples, known.bottleneck, known.others) == (50, CPU, number)
    assert after(known, CPU) == LearnedValues(samples=50, points=0.1, idle=2.0)
    assert after(known, NETWORK) == LearnedValues(bottleneck=NETWORK)


@pytest.mark.parametrize("samples", [0, 50])
def test_a_sample_that_does_not_count_only_says_where_to_begin(samples):
    known = LearnedValues(samples=samples, others=LASTING_SAMPLES - 1 if samples else 0)
    assert after(known, MEMORY, counts=False) == (known if samples else LearnedValues(bottleneck=MEMORY))
