import pytest
from tests.include.pulsar_rebalancer.strategies.shedders.transfer_shedder_results import hits, moved
from tests.vectors import histories
from tests.vectors.rows import check, reasons

from pulsar_rebalancer.state import ShedderState
from pulsar_rebalancer.strategies.shedders.swap import LoadStats
from pulsar_rebalancer.strategies.shedders.transfer_shedder import broker_loads, shed

NOTHING = ShedderState()

SKIPPED = {"cool_down": "CoolDown", "hit_count": "HitCount", "balanced": "HitCount", "outdated": "OutDatedData"}
"""Pulsar's word for a run that looks at no pair; being in balance has none of its own."""

FRUITLESS = {
    "no_top_bundles": "NoLoadData",
    **dict.fromkeys(("few_bundles", "no_fitting_bundle", "no_allowed_bundle"), "NoBundles"),
}
"""Pulsar's word for a run whose pairs move nothing; the first one counts."""


@pytest.mark.parametrize(
    "history", histories.read("TransferShedder"), ids=lambda history: f"{history.edge}-{history.name}"
)
def test_decides_as_pulsars_own_class(history):
    state = NOTHING
    for step in history.steps:
        given, expected = history.sample(step), step.expected
        loads, _ = broker_loads(given, state)
        spread = LoadStats(loads, history.settings)
        result = shed(given, state)
        check(given, result)
        state = result.state
        assert moved(result) == [(m["bundle"], m["from"], m["to"], m["reason"]) for m in expected["moves"]]
        assert skipped(result) == expected["skip"]
        assert hits(state) == expected["hits"]
        assert state.loads == pytest.approx(expected["load"], abs=1e-9)
        assert state.throughputs == pytest.approx(expected["tputEMA"], abs=1e-9)
        if skipped(result) != "Skip/CoolDown":
            assert (spread.mean, spread.std) == pytest.approx((expected["avg"], expected["stdBefore"]), abs=1e-9)
            assert std_after(history.settings, loads, spread, result) == pytest.approx(expected["stdAfter"], abs=1e-9)


def skipped(result):
    """Pulsar's label of a run that moves nothing, from the reason codes."""
    if any(move.is_taken for move in result.moves):
        return None
    found = set(reasons(result).values())
    pairs = [name for code, name in FRUITLESS.items() if code in found]
    return "Skip/" + (pairs + [name for code, name in SKIPPED.items() if code in found] + ["HitCount"])[0]


def std_after(settings, loads, spread, result):
    """The standard deviation that the moves leave, from the rows alone."""
    by_name = {load.broker: load for load in loads}
    for row in result.decisions:
        walked = [move for move in result.moves if move.pair == row.pair and move.is_taken]
        if walked:
            source, destination = by_name[row.source], by_name[row.destination]
            left = sum(move.traffic for move in walked if move.source == source.broker)
            gained = sum(move.traffic for move in walked if move.source != source.broker)
            leaving = left - gained if settings.credit_swaps else left
            spread.record_move(source, destination, leaving * source.load / source.throughput)
    return spread.std
