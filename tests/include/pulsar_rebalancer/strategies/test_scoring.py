"""Percentages of many brokers at once are those of each alone, to the last digit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulsar_rebalancer.strategies.scoring import percent, percents

FIGURES = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 1e5), st.sampled_from([0.0, -1.0]))


@given(st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=20))
def test_columns_are_the_rule_of_one(pairs: list[tuple[float, float]]) -> None:
    usage, limit = np.array(pairs).T
    one_by_one = [percent(*(None if np.isnan(figure) else figure for figure in pair)) for pair in pairs]
    assert percents(usage, limit).tolist() == one_by_one
