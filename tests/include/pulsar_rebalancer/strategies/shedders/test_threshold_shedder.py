import pytest
from tests.vectors import histories
from tests.vectors.rows import MIB, broker, bundle, check, completed, reasons, sample

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.state import ShedderState
from pulsar_rebalancer.strategies.shedders.threshold_shedder import shed

HISTORIES = histories.read("ThresholdShedder") + histories.read("ThresholdShedderLower")
NOTHING = ShedderState()
LOWER = Settings(lower_boundary=True)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: f"{history.edge}-{history.name}")
def test_decides_as_pulsars_own_class(history):
    state = NOTHING
    for step in history.steps:
        given = history.sample(step, silent=True)
        result = shed(given, state)
        check(given, result)
        state = result.state
        assert histories.unload_of(result.moves) == step.expected["unload"]
        assert state.loads == pytest.approx(step.expected["ema"], abs=1e-9)


def held(owner, sizes, **more):
    return [bundle(owner, f"t/{owner}/0x{n:02}_0x{n + 1:02}", throughput=size * MIB, **more) for n, size in sizes]


def test_the_lower_boundary_is_tried_as_well_when_the_excess_finds_no_bundle():
    brokers = [
        broker("b1", 90, bundles=2, throughput=200 * MIB),
        broker("b2", 95, bundles=1, throughput=200 * MIB),
        broker("b3", 0),
    ]
    result = shed(sample(brokers, held("b1", [(1, 9)], reason="recently_unloaded"), LOWER), NOTHING)
    assert reasons(result)["b1"] == "no_fitting_bundle"
    assert "below the lower boundary" in (result.decisions[1].explanation or "")


def test_without_a_broker_there_is_no_boundary():
    result = shed(sample([broker("b1", 90, left_out="broker_quarantined")], [], LOWER), ShedderState(loads={"b1": 0.5}))
    assert (result.sentence, result.state) == ("no broker can be compared", ShedderState(loads={"b1": 0.5}))


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
        "few_bundles",
        "below_minimum",
        "balanced",
    ]
    assert [row.explanation for row in completed(result)[:4]] == [
        "average load 100.0% reaches the mean of 52.5% plus 10 points: 42.50 MiB/s must leave. Taken: no bundle. "
        "Passed over: 2 moved recently.",
        "average load 95.0% reaches the mean of 52.5% plus 10 points: 37.50 MiB/s must leave, but the only bundle "
        "stays",
        "average load 90.0% reaches the mean of 52.5% plus 10 points: 0.00 MiB/s would have to leave, less than the "
        "minimum of 10.00 MiB/s",
        "average load 10.0% is below the mean of 52.5% plus 10 points",
    ]
    assert [(row.value, row.bound) for row in result.decisions[:4]] == [(load, 62.5) for load in (100, 95, 90, 10)]
    assert result.sentence == "3 of 6 brokers are 10 points or more above the mean load of 52.5%"
