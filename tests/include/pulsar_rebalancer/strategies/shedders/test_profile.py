"""The lines that the page draws across the brokers."""

from __future__ import annotations

import pytest

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.strategies.shedders.profile import Line
from pulsar_rebalancer.strategies.shedders.registry import profile_shown


@pytest.mark.parametrize(
    ("strategy", "mean", "drawn"),
    [
        ("AvgShedder", 50.014, [("low threshold", 42.51, 57.51), ("high threshold", 30.01, 70.01)]),
        ("AvgShedder", 5.0, [("low threshold", 0.0, 12.5), ("high threshold", 0.0, 25.0)]),
        ("AvgShedder", None, []),
        ("OverloadShedder", 50.0, [("overloaded", 85.0, 85.0)]),
        ("ThresholdShedder", 50.0, [("above the mean by the threshold", 60.0, 60.0)]),
        ("ThresholdShedder", None, []),
        ("UniformLoadShedder", 50.0, []),
    ],
)
def test_thresholds_are_those_of_the_strategy(
    strategy: str, mean: float | None, drawn: list[tuple[str, float, float]]
) -> None:
    settings = Settings(strategy=strategy)
    lines = [Line(name=name, lower=low, upper=high) for name, low, high in drawn]
    assert list(profile_shown(settings).lines(settings, mean)) == lines
