"""What the vectors cannot show of placements: round robin, the draw, and which one a cluster gets."""

import numpy as np
import pytest
from tests.vectors.rows import sample

from pulsar_rebalancer.config.field_types import Placement, Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.state import PlacementState
from pulsar_rebalancer.strategies.placement import (
    MAX_COUNTER,
    AvgPlacement,
    ExtensibleLeastResourceUsageWithWeight,
    LeastLongTermMessageRate,
    LeastResourceUsageWithWeight,
    RoundRobin,
    candidates_below_average,
    make_selector,
)


def broker(name, *, cpu=0.0, rate=1.0, **columns):
    row = {"broker": name, "left_out": None, "cpu_usage": cpu, "cpu_limit": 100.0, "bundles": 1}
    return row | {"msg_rate_in": rate, "msg_rate_out": 0.0} | columns


def test_round_robin_goes_on_where_it_stopped():
    state = PlacementState()
    for candidates, drawn in [
        ("", ""),
        ("123", "1231231231"),
        ("231", "2312312312"),  # the same brokers: the order they first came in stays
        ("124", "412412"),
        ("24", "2424"),
        ("421", "421"),
    ]:
        chooser = RoundRobin(state)
        found = [chooser.eligible_brokers("t/n/0x0_0x1", list(candidates)) for _ in drawn or "-"]
        assert found == ([[name] for name in drawn] or [[]])
        state = chooser.placement_state()


def test_round_robin_starts_anew_after_the_largest_count():
    chooser = RoundRobin(PlacementState(count=MAX_COUNTER))
    assert chooser.eligible_brokers("t/n/0x0_0x1", ["1", "2", "3"]) == [str(MAX_COUNTER % 3 + 1)]
    assert chooser.placement_state().count == 0


@pytest.mark.parametrize(
    ("settings", "load", "expected"),
    [
        (Settings(), None, AvgPlacement),
        (Settings(strategy=Strategy.UNIFORM), None, LeastLongTermMessageRate),
        (Settings(strategy=Strategy.THRESHOLD, placement=Placement.ROUND_ROBIN), None, RoundRobin),
        (Settings(strategy=Strategy.TRANSFER), None, LeastResourceUsageWithWeight),
        (Settings(strategy=Strategy.TRANSFER), 0.5, ExtensibleLeastResourceUsageWithWeight),
    ],
)
def test_a_cluster_gets_the_placement_that_its_settings_name(settings, load, expected):
    given = sample([broker("a", load_average=load), broker("b")], [], settings)
    assert type(make_selector(given, PlacementState(count=7))) is expected


def test_the_least_rate_is_the_long_term_one_of_what_brokers_report():
    names = ("t/n/0x0_0x1", "t/n/0x1_0x2", "t/n/0x2_0x3")
    rows = [
        {"broker": owner, "bundle": name, "msg_rate": short, "long_term_msg_rate": long}
        for owner, name, short, long in zip("abb", names, (1.0, 40.0, 40.0), (100.0, 30.0, None), strict=True)
    ]
    settings = Settings(strategy=Strategy.UNIFORM)
    # A heartbeat namespace counts for nothing.
    rows.append({"broker": "b", "bundle": "pulsar/b:8080/0x0_0x1", "msg_rate": 99.0})
    given = sample([broker("a"), broker("b")], rows, settings)
    chooser = make_selector(given, PlacementState())
    assert chooser.eligible_brokers("t/n/0x9_0xa", ["a", "b"]) == ["b"]
    chooser.add_placement(given.bundles.find("a", names[0]), "b")
    assert chooser.eligible_brokers("t/n/0x9_0xa", ["a", "b"]) == ["a"]


@pytest.mark.parametrize(
    ("columns", "average"),
    [({}, 0.5), ({"bundles": 0}, 0.6), ({"msg_rate_in": 0.0}, 0.6), ({"msg_rate_in": 0.0, "msg_rate_out": 1.0}, 0.5)],
)
def test_the_past_of_an_idle_broker_is_forgotten(columns, average):
    given = sample([broker("a", cpu=60.0, **columns)], [], Settings(history_percentage=0.5))
    chooser = LeastResourceUsageWithWeight(given, PlacementState(averages={"a": 0.4}))
    chooser.eligible_brokers("t/n/0x0_0x1", ["a"])
    assert chooser.placement_state().averages == pytest.approx({"a": average})


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"a": 0.25, "b": 0.5, "c": 0.75}, "a"),
        ({"a": 0.375, "b": 0.5, "c": 0.75}, "abc"),
        ({"b": 0.25, "c": 0.75}, "b"),
        ({}, "abc"),
    ],
)
def test_the_best_are_below_the_average_by_the_whole_difference(usage, expected):
    values = np.array([usage.get(name, np.nan) for name in "abc"])
    assert list(candidates_below_average("abc", values, 0.25)) == list(expected)


def test_averages_of_brokers_that_are_gone_are_dropped():
    state = PlacementState(averages={"a": 0.4, "gone": 0.9, "out": 0.2})
    rows = [broker("a", cpu=60.0), broker("out", left_out="broker_excluded")]
    chooser = LeastResourceUsageWithWeight(sample(rows, [], Settings(history_percentage=0.5)), state)
    chooser.eligible_brokers("t/n/0x0_0x1", ["a"])
    assert chooser.placement_state().averages == pytest.approx({"a": 0.5, "out": 0.2})
