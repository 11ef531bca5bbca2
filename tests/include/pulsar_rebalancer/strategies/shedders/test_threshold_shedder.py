"""ThresholdShedder against Pulsar's own answers, its upstream test cases, and the rules that are ours."""

from __future__ import annotations

import pytest
from tests.vectors import histories
from tests.vectors.rows import MIB, broker, bundle, check, completed, reasons, sample, taken, whatever_the_order

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.shedders.threshold_shedder import shed

HISTORIES = histories.read("ThresholdShedder") + histories.read("ThresholdShedderLower")
NOTHING = ShedderState()
LOWER = Settings(lower_boundary=True)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: f"{history.edge}-{history.name}")
def test_decides_as_pulsars_own_class(history):
    kept = NOTHING
    for step in history.steps:
        given = history.sample(step, silent=True)
        result = shed(given, kept)
        check(given, result)
        kept = result.kept
        assert histories.unload_of(result.moves) == step.expected["unload"]
        assert kept.loads == pytest.approx(step.expected["ema"], abs=1e-9)


def held(owner, sizes, **more):
    return [bundle(owner, f"t/{owner}/0x{n:02}_0x{n + 1:02}", throughput=size * MIB, **more) for n, size in sizes]


class TestUpstreamCases:
    """The cases of Pulsar's ThresholdShedderTest, sizes in MiB/s."""

    BROKERS = (broker("b1", 99.9, bundles=10, throughput=110 * MIB), broker("b2", 0, bundles=10))

    @pytest.mark.parametrize(
        ("recent", "sizes"),
        [((), [20, 18, 16]), ((10, 9), [16, 14, 12, 10])],
    )
    def test_the_busiest_bundles_are_taken_until_the_excess_is_reached(self, recent, sizes):
        bundles = [
            bundle("b1", f"t/n/{n}", throughput=2 * n * MIB, reason="recently_unloaded" if n in recent else None)
            for n in range(1, 11)
        ]
        result = shed(sample(self.BROKERS, bundles), NOTHING)
        assert [move.traffic / MIB for move in result.moves if move.taken] == sizes
        assert result.decisions[0].target == pytest.approx(49.445 * MIB, abs=1e-5 * MIB)

    @pytest.mark.parametrize("lower_boundary", [False, True])
    def test_lower_boundary(self, lower_boundary):
        brokers = [broker(f"b{n}", 80, bundles=10, throughput=200 * MIB) for n in range(10)]
        idle = broker("idle", 0, bundles=10)
        bundles = [row for n in range(10) for row in held(f"b{n}", [(m, 200) for m in range(10)])]
        result = shed(sample([*brokers, idle], bundles, Settings(lower_boundary=lower_boundary)), NOTHING)
        assert taken(result) == (["t/b0/0x00_0x01"] if lower_boundary else [])
        assert reasons(result)["b0"] == ("fired" if lower_boundary else "below_threshold")
        assert reasons(result)["b1"] == "below_threshold"

    def test_the_lower_boundary_looks_for_a_broker_with_more_than_one_bundle(self):
        brokers = [broker(f"b{n}", 80, bundles=10 if n == 3 else 1, throughput=200 * MIB) for n in range(10)]
        bundles = held("b3", [(n, 200) for n in range(10)])
        assert histories.unload_of(shed(sample([*brokers, broker("idle", 0)], bundles, LOWER), NOTHING).moves) == {
            "b3": ["t/b3/0x00_0x01"]
        }


@pytest.mark.parametrize(
    ("loads", "counts", "expected"),
    [
        # 25 is at the lower boundary of 50 - 25, not below it.
        ((75, 50, 25), (1, 2, 2), "none is below the lower boundary of 25.0%"),
        ((100, 75, 25, 0), (1, 1, 2, 0), "b3 is below the lower boundary of 25.0% with 0.0%, but no other broker"),
        ((100, 75, 26, 0), (1, 1, 2, 0), "b3 is below the lower boundary of 25.2% with 0.0%"),
    ],
)
def test_bounds_of_the_lower_boundary(loads, counts, expected):
    pairs = enumerate(zip(loads, counts, strict=True))
    brokers = [broker(f"b{n}", load, bundles=count, throughput=100 * MIB) for n, (load, count) in pairs]
    settings = Settings(lower_boundary=True, average_threshold=25)
    assert expected in shed(sample(brokers, held("b2", [(1, 9), (2, 9)]), settings), NOTHING).sentence


def test_the_lower_boundary_is_tried_as_well_when_the_excess_finds_no_bundle():
    brokers = [
        broker("b1", 90, bundles=2, throughput=200 * MIB),
        broker("b2", 95, bundles=1, throughput=200 * MIB),
        broker("b3", 0),
    ]
    result = shed(sample(brokers, held("b1", [(1, 9)], reason="recently_unloaded"), LOWER), NOTHING)
    assert reasons(result)["b1"] == "no_fitting_bundle"
    assert "b3 is below the lower boundary" in (result.decisions[1].explanation or "")


def test_idle_brokers_are_no_reason_to_shed():
    result = shed(sample([broker("b1", 0, bundles=2)], [], Settings(average_threshold=0)), NOTHING)
    assert reasons(result) == {"b1": "below_threshold"}


def test_without_a_broker_there_is_no_boundary():
    result = shed(sample([broker("b1", 90, left_out="broker_quarantined")], [], LOWER), ShedderState(loads={"b1": 0.5}))
    assert (result.sentence, result.kept) == ("no broker can be compared", ShedderState(loads={"b1": 0.5}))


def test_a_broker_left_out_keeps_its_average_and_one_that_is_gone_does_not():
    brokers = [broker("b1", 50), broker("b2", 30), broker("b3", 99, left_out="broker_quarantined")]
    result = shed(sample(brokers, []), ShedderState(loads={"b1": 0.4, "b3": 0.7, "gone": 0.5}))
    assert result.kept.loads == pytest.approx({"b1": 0.41, "b2": 0.3, "b3": 0.7})
    assert reasons(result)["b3"] == "broker_quarantined"
    # The mean is that of the two brokers that are judged.
    assert result.decisions[0].bound == pytest.approx(45.5)


def test_every_broker_is_told_why_it_sheds_or_not():
    brokers = [
        broker("b1", 100, bundles=2, throughput=100 * MIB),
        broker("b2", 95, bundles=1, throughput=100 * MIB),
        broker("b3", 90, bundles=2, throughput=1),
        *(broker(f"c{n}", 10) for n in range(3)),
    ]
    bundles = held("b1", [(1, 60), (2, 40)], reason="recently_unloaded")
    result = shed(sample(brokers, bundles), NOTHING)
    assert [row.reason for row in completed(result)[:4]] == [
        "no_fitting_bundle",
        "single_bundle",
        "below_minimum",
        "below_threshold",
    ]
    assert [row.explanation for row in completed(result)[:4]] == [
        "average load 100.0% reaches the mean of 52.5% plus 10 points: 42.50 MiB/s must leave. Taken: no bundle. "
        "Passed over: recently_unloaded 2.",
        "average load 95.0% reaches the mean of 52.5% plus 10 points: 37.50 MiB/s must leave, but its single bundle "
        "stays",
        "average load 90.0% reaches the mean of 52.5% plus 10 points: 0.00 MiB/s must leave, less than the minimum "
        "of 10.00 MiB/s",
        "average load 10.0%, below the mean of 52.5% plus 10 points",
    ]
    assert [(row.value, row.bound) for row in result.decisions[:4]] == [(load, 62.5) for load in (100, 95, 90, 10)]
    assert result.sentence == "3 of 6 brokers are 10 points or more above the mean load of 52.5%"


def test_names_break_ties_whatever_the_order_of_the_rows():
    brokers = [broker(f"b{n}", 90 if n < 2 else 10, bundles=9, throughput=200 * MIB) for n in range(6)]
    bundles = [row for n in range(2) for row in held(f"b{n}", [(m, 20) for m in range(9)])]
    result = whatever_the_order(lambda *rows: shed(sample(*rows), NOTHING), brokers, bundles)
    assert [row.source for row in result.decisions] == [f"b{n}" for n in range(6)]
    assert taken(result)[:2] == ["t/b0/0x00_0x01", "t/b0/0x01_0x02"]
