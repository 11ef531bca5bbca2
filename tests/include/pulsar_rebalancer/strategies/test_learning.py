from math import inf
from typing import Any

import numpy as np
import pytest
from tests.vectors.rows import broker, brokers_of

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import java_sum
from pulsar_rebalancer.state import LearnedBroker, LearnedValues
from pulsar_rebalancer.strategies.learning import BundleCosts, BundleSums, learn
from pulsar_rebalancer.strategies.sample import RecentMove

KNOWN = LearnedValues(
    100, 0.01, 5.0, 25.0, {"a": LearnedBroker(100, 3.0, 53.0, 4.0), "b": LearnedBroker(100, 0.0, 23.0, 4.0)}
)
SUMS = {"a": BundleSums(rate_sum=5000, change_sum=400, doubt_sum=1e6), "b": BundleSums(rate_sum=2000)}
SETTINGS = Settings()


def sampled(a: float = 63.0, b: float = 25.0, **more: Any) -> Any:
    return brokers_of([broker("a", a) | more, broker("b", b)])


def test_a_sample_moves_every_average_by_its_step():
    found = learn(KNOWN, sampled(), SUMS, [], SETTINGS, 1.0).learned
    # (58 + 20) points of 7,000 msg/s.
    points = 0.01 + 0.01 * (78 / 7000 - 0.01)
    assert (found.samples, found.idle, found.quiet) == (101, 5.0, 25.0)
    assert found.points == pytest.approx(points)
    error = 63 - 53 - points * 400
    assert found.brokers["a"] == pytest.approx(
        (101, 3 + 0.05 * (63 - 5 - points * 5000 - 3), 53 + 0.045 * 10, 4 + 0.02 * (error**2 - 4), None)
    )


def test_the_error_is_put_down_to_the_bundles_whose_rate_changed():
    found = learn(KNOWN, sampled(), SUMS, [], SETTINGS, 1.0)
    points, variance = found.learned.points, found.learned.brokers["a"].variance
    expected = points**2 * 1e6 + 3 * variance + 0.5
    correction = found.correction_by_broker["a"]
    assert correction == pytest.approx((points * (10 - points * 400) / expected, points**2 / expected))
    # The score rose by more than the rates explain, so a bundle that rose is dearer, one that fell is cheaper.
    for change in (1000.0, -1000.0):
        cost, doubt = corrected(0.25, change, *correction)
        assert cost == pytest.approx(1 + 0.25 * change * correction.cost_factor)
        assert 0 < doubt < 0.25
    assert corrected(0.25, 0.0, *correction) == (1.0, 0.25)
    assert corrected(0.25, 1e9, *correction) == (4.0, 0.0)
    assert corrected(0.25, -1e9, *correction) == (0.25, 0.0)
    assert corrected(0.2, 5.0, 0.0, 0.0) == (1.0, 0.2 + 2e-6)


def corrected(variance: float, *given: float) -> tuple[float, float]:
    """The cost and its variance after a correction, of one bundle whose cost is 1."""
    values = BundleCosts(*(np.array([value]) for value in (9.0, 9.0, 9.0, 9.0, 1.0, variance, 9.0)))
    after = values.with_correction(*(np.array([value]) for value in given))
    return after.cost.item(), after.variance.item()


@pytest.mark.parametrize(
    ("minutes", "learns_costs", "learns_residual"),
    [(3.0, False, False), (5.0, False, True), (24.0, False, True), (inf, True, True)],
)
def test_a_move_pauses_learning_on_both_ends(minutes, learns_costs, learns_residual):
    moved = [RecentMove("a", "b", minutes)] if minutes < inf else []
    found = learn(KNOWN, sampled(), SUMS, moved, SETTINGS, 1.0)
    for name in ("a", "b"):
        assert any(found.correction_by_broker[name]) == learns_costs
        assert (found.learned.brokers[name].residual != KNOWN.brokers[name].residual) == learns_residual
        assert found.learned.brokers[name].score != KNOWN.brokers[name].score


def test_a_broker_that_is_left_out_teaches_nothing_and_is_remembered():
    found = learn(KNOWN, sampled(left_out=Reason.REPORT_MISSING.value), SUMS, [], SETTINGS, 1.0)
    assert found.learned.brokers["a"] == KNOWN.brokers["a"]
    assert "a" not in found.correction_by_broker
    assert found.learned.points == pytest.approx(0.01)


def test_a_score_of_zero_does_not_count_for_good():
    found = learn(KNOWN, sampled(b=0.0), SUMS, [], SETTINGS, 1.0).learned
    assert found.idle == 0
    day = learn(found, sampled(), SUMS, [], SETTINGS, 1440.0).learned
    assert day.idle == pytest.approx(5 * (1 - 0.998**1440))
    assert learn(day, sampled(b=3.0), SUMS, [], SETTINGS, 1.0).learned.idle == 3


def test_deviations_last_in_a_daily_curve_and_not_in_bursts():
    minutes = np.arange(2880)
    bursts, daily = np.where(minutes % 90 < 10, 1000.0, 100.0), 500 + 400 * np.sin(minutes / 1440 * 2 * np.pi)
    for rates, least, most in ((daily * 0 + 100, 0.5, 0.5), (bursts, 0.0, 0.3), (daily, 0.8, 1.0)):
        costs, known = BundleCosts.all_unknown(1), LearnedValues()
        for rate in rates:
            costs, change = costs.with_sample(now := np.array([rate]), 1.0, is_counted=True)
            sums = {"a": BundleSums(*(column.item() for column in costs.summands(now, change)))}
            known = learn(known, brokers_of([broker("a", 50.0)]), sums, [], SETTINGS, 1.0).learned
        assert least <= known.persistence <= most


def test_a_load_is_the_hourly_average_and_the_deviation_that_lasts():
    values = BundleCosts(*(np.array([value]) for value in (100.0, 300.0, 9.0, 9.0, 2.0, 0.1, 9.0)))
    assert [values.expected_loads(persistence).item() for persistence in (0.0, 0.25, 1.0)] == [200, 300, 600]


def test_points_are_the_same_in_every_python_version():
    names = [f"b{number}" for number in range(10)]
    idle, sums = brokers_of([broker(name, 5.0) for name in names]), dict.fromkeys(names, BundleSums(rate_sum=0.5))
    found = learn(LearnedValues(), idle, sums, [], SETTINGS, 1.0).learned
    assert found.points == java_sum([0.1] * 10) / 5 != 0.2
