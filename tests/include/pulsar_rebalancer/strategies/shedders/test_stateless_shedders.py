import pytest
from tests.vectors import histories
from tests.vectors.rows import check

from pulsar_rebalancer.state import ShedderState
from pulsar_rebalancer.strategies.shedders import overload_shedder, uniform_load_shedder

NOTHING = ShedderState()
SHEDDERS = {"OverloadShedder": overload_shedder.shed, "UniformLoadShedder": uniform_load_shedder.shed}


@pytest.mark.parametrize(
    ("shed", "history"),
    [
        pytest.param(shed, history, id=f"{history.edge}-{history.name}")
        for name, shed in SHEDDERS.items()
        for history in histories.read(name)
    ],
)
def test_decides_as_pulsars_own_class(shed, history):
    for step in history.steps:
        given = history.sample(step)
        result = shed(given, NOTHING)
        check(given, result)
        assert histories.unload_of(result.moves) == step.expected["unload"]
        assert result.state == NOTHING
