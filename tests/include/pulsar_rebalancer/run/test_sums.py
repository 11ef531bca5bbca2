from __future__ import annotations

import pytest

from pulsar_rebalancer.run.sums import one_by_one


@pytest.mark.parametrize(
    ("figures", "expected"),
    [([], 0.0), ([1e16, 1.0, 1.0], 1e16), ([1.0, 1.0, 1e16], 1e16 + 2), ([0.1] * 10, 0.9999999999999999)],
)
def test_figures_are_added_as_they_come(figures: list[float], expected: float) -> None:
    assert one_by_one(iter(figures)) == expected
