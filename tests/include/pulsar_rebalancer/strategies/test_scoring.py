"""Percentages of many brokers at once are those of each alone, to the last digit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.tables import RESOURCES, BrokerSample, ResourceUsage
from pulsar_rebalancer.strategies.scoring import SCORED, percent, percents, weighted_usage, weighted_usages

FIGURES = st.one_of(st.floats(allow_nan=False, allow_infinity=True), st.floats(0, 1e5), st.sampled_from([0.0, -1.0]))


@given(st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=20))
def test_columns_are_the_rule_of_one(pairs: list[tuple[float, float]]) -> None:
    usage, limit = np.array(pairs).T
    one_by_one = [percent(*pair) for pair in pairs]
    assert percents(usage, limit).tolist() == one_by_one


@given(
    st.lists(st.tuples(FIGURES, FIGURES), min_size=3, max_size=3), st.lists(st.floats(0, 100), min_size=3, max_size=3)
)
def test_weighted_usages_are_the_rule_of_one(pairs: list[tuple[float, float]], weights: list[float]) -> None:
    names = ("cpu", "memory", "bandwidth_in")
    settings = Settings.model_validate({f"{name}_weight": weight for name, weight in zip(names, weights, strict=True)})
    usage, limit = np.array(pairs).T
    resources = {name: ResourceUsage(*pair) for name, pair in zip(names, pairs, strict=True)}
    columns = percents(usage[:, None], limit[:, None])
    for looked_at in (SCORED, RESOURCES):
        alone = weighted_usage(BrokerSample("b", resources=resources), settings, looked_at)
        assert weighted_usages(columns, names, settings, looked_at).tolist() == [alone]
