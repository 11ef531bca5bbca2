"""Where Pulsar's algorithms cut: the examples of its documentation, its classes' rounding, and when they do nothing."""

import pytest

from pulsar_rebalancer.config.field_types import SplitAlgorithm
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.split_algorithms import split_positions
from pulsar_rebalancer.names import HashRange
from pulsar_rebalancer.run.snapshot import TopicLoad

HALF = HashRange(0, 0x80000000)
SIX = [
    TopicLoad(position, 100.0 * n, 10.0 * n * 1048576)
    for n, position in enumerate((0x10000000, 0x15000000, 0x24000000, 0x39000000, 0x58000000, 0x76000000), 1)
]
"""The topics of the documentation's example of the flow algorithm."""


def limits(rate, mib, difference=10.0):
    changes = {"max_bundle_msg_rate": rate, "max_bundle_bandwidth": mib, "flow_difference": difference}
    return Settings().model_copy(update=changes)


def at(*positions):
    return [TopicLoad(position, 1.0) for position in positions]


@pytest.mark.parametrize(
    ("topics", "cut"),
    [
        # The documentation's picture names 0x50000000; the class takes the middle of 0x35000000 and 0x65000000.
        pytest.param(at(0x10000000, 0x20000000, 0x35000000, 0x65000000, 0x70000000, 0x75000000), (0x4D000000,), id="6"),
        pytest.param(at(30, 10, 20), (15,), id="odd number, any order: one topic below, two above"),
        pytest.param(at(10, 13), (11,), id="rounded down"),
        pytest.param(at(10, 10), (10,), id="same hash"),
        pytest.param(at(10), (), id="one topic"),
        pytest.param([], (), id="no topic"),
    ],
)
def test_topic_count_equally_divide(topics, cut):
    assert split_positions(SplitAlgorithm.TOPIC_COUNT, HALF, topics, limits(1, 1)) == cut


@pytest.mark.parametrize(
    ("topics", "bounds", "cut"),
    [
        # Of the documentation, whose own values average hexadecimal digits as decimal ones: (0x15000000 + 0x24000000)
        # / 2 is 0x1c800000. The class adds one to each.
        pytest.param(SIX, limits(450, 200), (0x1C800001, 0x2E800001, 0x48800001, 0x67000001), id="by rate"),
        pytest.param(SIX, limits(1900, 90), (0x2E800001, 0x67000001), id="by throughput: 40 + 50 just fit"),
        pytest.param(SIX, limits(1100, 1000), (0x48800001,), id="one cut: 500 + 600 just fit"),
        pytest.param(SIX, limits(1909, 1000), (0x67000001,), id="just over 10 percent above the limit"),
        pytest.param(SIX, limits(1910, 1000), (), id="less than 10 percent above the limit"),
        pytest.param(SIX, limits(1910, 1000, 9.0), (0x67000001,), id="another difference"),
        pytest.param(
            [TopicLoad(10, 60.0), TopicLoad(15), TopicLoad(21, 60.0)],
            limits(100, 1),
            (16,),
            id="idle ones are left out",
        ),
        pytest.param([TopicLoad(10, 500.0), TopicLoad(20)], limits(100, 1), (), id="one busy topic"),
        pytest.param([TopicLoad(10, 60.0), TopicLoad(11, 60.0)], limits(100, 1), (11,), id="neighbours"),
        pytest.param(
            [TopicLoad(10, 0.0, 3.0 * 1048576), TopicLoad(20, 0.0, 3.0 * 1048576)], limits(100, 4), (16,), id="no rate"
        ),
    ],
)
def test_flow_or_qps_equally_divide(topics, bounds, cut):
    assert split_positions(SplitAlgorithm.FLOW, HALF, list(reversed(topics)), bounds) == cut
