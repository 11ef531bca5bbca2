"""UniformLoadShedder against Pulsar's own answers and its upstream test cases."""

from __future__ import annotations

import pytest
from tests.vectors import histories
from tests.vectors.rows import MIB, broker, bundle, check, completed, reasons, sample, taken, whatever_the_order

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.shedders.uniform_load_shedder import shed

NOTHING = ShedderState()


@pytest.mark.parametrize(
    "history", histories.read("UniformLoadShedder"), ids=lambda history: f"{history.edge}-{history.name}"
)
def test_decides_as_pulsars_own_class(history):
    for step in history.steps:
        given = history.sample(step)
        result = shed(given, NOTHING)
        check(given, result)
        assert histories.unload_of(result.moves) == step.expected["unload"]
        assert result.kept == NOTHING


def held(owner, count, rate=0, throughput=0):
    return [bundle(owner, f"t/{owner}/{n:02}", rate=rate, throughput=throughput) for n in range(count)]


class TestUpstreamCases:
    """The cases of Pulsar's UniformLoadShedderTest."""

    RATES = (50e3, 60e3, 70e3, 10e3, 20e3)
    THROUGHPUTS = (50, 60, 70, 80, 10)

    @pytest.mark.parametrize(("difference", "ratio", "source"), [(0.5, 0, "b2"), (0, 2, "b3"), (50, 2, "b2")])
    def test_the_message_rate_decides_before_the_throughput(self, difference, ratio, source):
        pairs = list(zip(self.RATES, self.THROUGHPUTS, strict=True))
        brokers = [broker(f"b{n}", 9, bundles=5, rate=r, throughput=t * MIB) for n, (r, t) in enumerate(pairs)]
        bundles = [row for n, (r, t) in enumerate(pairs) for row in held(f"b{n}", 5, r / 5, t * MIB / 5)]
        settings = Settings(rate_difference=difference, throughput_ratio=ratio, max_unload_bundles=1)
        result = shed(sample(brokers, bundles, settings), NOTHING)
        assert [row.source for row in result.decisions if row.reason == "fired"] == [source]
        assert [move.reason for move in result.moves] == ["taken", *["cap_shedding"] * 4]

    @pytest.mark.parametrize(("rate", "throughput"), [(100, 0), (0, 2048)])
    def test_little_traffic_is_halved_as_well(self, rate, throughput):
        brokers = [broker("b1", 9, bundles=5, rate=5 * rate, throughput=5 * throughput), broker("b2", 9)]
        settings = Settings(min_unload_message=0, min_unload_throughput=0)
        result = shed(sample(brokers, held("b1", 5, rate, throughput), settings), NOTHING)
        assert taken(result) == ["t/b1/00", "t/b1/01"]
        assert result.decisions[0].target == (249 if rate else 5119)


@pytest.mark.parametrize(
    ("rate", "bundles", "reason", "explanation"),
    [
        (
            9000,
            5,
            "fired",
            "message rate 9,000 msg/s is 800.0 % above the least of 1,000 msg/s, more than 50 %: "
            "4,000 msg/s must leave. Taken: 2 bundles with 3,600 msg/s. Passed over: over_remaining 3.",
        ),
        (
            9000,
            1,
            "single_bundle",
            "message rate 9,000 msg/s is 800.0 % above the least of 1,000 msg/s, more than 50 %: "
            "4,000 msg/s must leave, but its single bundle stays",
        ),
        (
            2000,
            5,
            "below_minimum",
            "message rate 2,000 msg/s is 100.0 % above the least of 1,000 msg/s, more than 50 %: "
            "500 msg/s must leave, less than the minimum of 1,000 msg/s",
        ),
        (
            1200,
            5,
            "below_threshold",
            "message rate 1,200 msg/s is 20.0 % above the least of 1,000 msg/s, not more than 50 %",
        ),
    ],
)
def test_the_busiest_broker_is_told_why_it_sheds_or_not(rate, bundles, reason, explanation):
    brokers = [broker("b1", 9, bundles=bundles, rate=rate), broker("b2", 9, rate=1000, bundles=3)]
    result = shed(sample(brokers, held("b1", bundles, rate / bundles)), NOTHING)
    assert reasons(result) == {"b1": reason, "b2": "not_busiest"}
    assert completed(result)[0].explanation == explanation
    assert (result.decisions[1].value, result.decisions[1].bound) == (1000, rate)


@pytest.mark.parametrize(("least", "value"), [(0, 9900), (0.5, 19900)])
def test_an_idle_broker_counts_as_carrying_one(least, value):
    given = sample([broker("b1", 9, rate=100), broker("b2", 9, rate=least)], [])
    assert shed(given, NOTHING).decisions[0].value == value


def test_a_broker_left_out_is_neither_the_busiest_nor_the_idlest():
    brokers = [
        broker("b1", 9, bundles=9, rate=99000, left_out="broker_quarantined"),
        broker("b2", 9, bundles=9, rate=1200),
        broker("b3", 9, bundles=9, rate=1000),
        broker("b4", 9, left_out="broker_excluded"),
    ]
    result = shed(sample(brokers, []), NOTHING)
    assert reasons(result) == {
        "b1": "broker_quarantined",
        "b2": "below_threshold",
        "b3": "not_busiest",
        "b4": "broker_excluded",
    }


def test_names_break_ties_whatever_the_order_of_the_rows():
    brokers = [broker(f"b{n}", 9, bundles=9, rate=9000 if n else 0) for n in range(4)]
    bundles = [row for n in range(1, 4) for row in held(f"b{n}", 9, 1000)]
    result = whatever_the_order(lambda *rows: shed(sample(*rows), NOTHING), brokers, bundles)
    assert taken(result) == [f"t/b1/{n:02}" for n in range(4)]
