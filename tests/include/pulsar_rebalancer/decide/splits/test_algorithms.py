"""Where Pulsar's algorithms cut: the examples of its documentation, its classes' rounding, and when they do nothing."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_rebalancer.config.enums import SplitAlgorithm
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.splits.algorithms import most_even, positions_of, shares_of
from pulsar_rebalancer.names import HashRange
from pulsar_rebalancer.run.topic_loads import TopicLoad

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
    ("hash_range", "cut"),
    [
        pytest.param(HALF, (0x40000000,), id="documentation"),
        pytest.param((0, 0xFFFFFFFF), (0x7FFFFFFF,), id="whole ring, rounded down"),
        pytest.param((0x7FFFFFFF, 0xFFFFFFFF), (0xBFFFFFFF,), id="upper half"),
        pytest.param((10, 13), (11,), id="odd width"),
        pytest.param((10, 12), (11,), id="the narrowest that is cut"),
        pytest.param((10, 11), (), id="one hash wide"),
    ],
)
def test_range_equally_divide(hash_range, cut):
    assert positions_of(SplitAlgorithm.RANGE, HashRange(*hash_range), [], limits(1, 1)) == cut


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
    assert positions_of(SplitAlgorithm.TOPIC_COUNT, HALF, topics, limits(1, 1)) == cut


@pytest.mark.parametrize(
    ("specified", "topics", "cut"),
    [
        pytest.param([0x33000000], at(0x30000000, 0x35000000), (0x33000000,), id="documentation"),
        pytest.param([0x30, 0x20, 0x20], at(1, 2), (0x20, 0x30), id="sorted, each once"),
        pytest.param([0, 0x40000000, 0x50000000], at(1, 2), (), id="bounds and outside"),
        pytest.param([1, 0x3FFFFFFF], at(1, 2), (1, 0x3FFFFFFF), id="next to the bounds"),
        pytest.param([0x33000000], at(0x30000000), (), id="one topic"),
    ],
)
def test_specified_positions_divide(specified, topics, cut):
    hash_range = HashRange(0, 0x40000000)
    assert positions_of(SplitAlgorithm.POSITIONS, hash_range, topics, limits(1, 1), specified) == cut


@pytest.mark.parametrize(
    ("topics", "bounds", "cut"),
    [
        # Of the documentation, whose own figures average hexadecimal digits as decimal ones: (0x15000000 + 0x24000000)
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
    assert positions_of(SplitAlgorithm.FLOW, HALF, list(reversed(topics)), bounds) == cut


@pytest.mark.parametrize(
    ("topics", "positions", "shares"),
    [
        (SIX, (0x24000000,), (300 / 2100, 1800 / 2100)),
        (SIX, (0x24000000, 0x58000000), (300 / 2100, 700 / 2100, 1100 / 2100)),
        ([TopicLoad(1, 0.0, 3.0), TopicLoad(0x50000000, 0.0, 1.0)], (0x40000000,), (0.75, 0.25)),
        (at(), (1, 2), (1 / 3, 1 / 3, 1 / 3)),
        ([TopicLoad(1), TopicLoad(2)], (2,), (0.5, 0.5)),
        ([TopicLoad(1, 1.0), TopicLoad(0x80000000, 1.0)], (2,), (0.5, 0.5)),  # the last range holds its upper bound
    ],
)
def test_each_part_takes_the_share_of_its_topics(topics, positions, shares):
    assert shares_of(HALF, positions, topics) == pytest.approx(shares)


@given(
    topics=st.lists(
        st.builds(TopicLoad, st.integers(0, 40), st.sampled_from((0.0, 0.1, 1 / 3, 0.7)), st.sampled_from((0.0, 1.0)))
    ),
    positions=st.lists(st.integers(1, 39), min_size=1).map(sorted),
)
# As even but for rounding, which decides.
@example([TopicLoad(1, 0.2), TopicLoad(5, 0.2), TopicLoad(9, 0.1), TopicLoad(13, 0.1)], [4, 8, 12])
def test_the_most_even_position_is_that_of_two_parts_that_are_most_alike(topics, positions):
    def apart(position):
        return abs(shares_of(HashRange(0, 40), (position,), topics)[0] - 0.5)

    assert most_even(HashRange(0, 40), positions, topics) == min(positions, key=apart)
