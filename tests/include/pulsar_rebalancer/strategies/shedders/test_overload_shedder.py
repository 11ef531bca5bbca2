import pytest
from tests.vectors import histories
from tests.vectors.rows import check

from pulsar_rebalancer.state import ShedderState
from pulsar_rebalancer.strategies.shedders.overload_shedder import shed

NOTHING = ShedderState()


@pytest.mark.parametrize(
    "history", histories.read("OverloadShedder"), ids=lambda history: f"{history.edge}-{history.name}"
)
def test_decides_as_pulsars_own_class(history):
    for step in history.steps:
        given = history.sample(step)
        result = shed(given, NOTHING)
        check(given, result)
        assert histories.unload_of(result.moves) == step.expected["unload"]
        assert result.state == NOTHING
