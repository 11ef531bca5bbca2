import pytest
from tests.vectors import histories
from tests.vectors.rows import check

from pulsar_rebalancer.state import ShedderState
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
        assert result.state == NOTHING


class TestUpstreamCases:
    """The cases of Pulsar's UniformLoadShedderTest."""

    RATES = (50e3, 60e3, 70e3, 10e3, 20e3)
    THROUGHPUTS = (50, 60, 70, 80, 10)
