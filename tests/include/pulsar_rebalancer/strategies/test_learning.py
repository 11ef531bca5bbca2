"""What is learned from one sample, worked out by hand, and when nothing is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import numpy as np
import pytest
from tests.vectors.rows import broker, brokers_of

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.learned import Learned, LearnedBroker
from pulsar_rebalancer.strategies.costs import BundleCosts
from pulsar_rebalancer.strategies.learning import Correction, Sums, learn, step, steps
from pulsar_rebalancer.strategies.sample import RecentMove
from pulsar_rebalancer.strategies.scoring import relative_limits

KNOWN = Learned(
    100, 0.01, 2.0, 25.0, {"a": LearnedBroker(100, 3.0, 50.0, 4.0), "b": LearnedBroker(100, 0.0, 20.0, 4.0)}
)
SUMS = {"a": Sums(rate=5000, change=400, doubt=1e6), "b": Sums(rate=2000)}
SETTINGS = Settings()
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def sampled(a: float = 60.0, b: float = 22.0, **more: Any) -> Any:
    return brokers_of([broker("a", a) | more, broker("b", b)])


def test_a_sample_moves_every_average_by_its_step():
    found = learn(KNOWN, sampled(), SUMS, [], SETTINGS, 1.0).learned
    # (58 + 20) points of 7,000 msg/s.
    points = 0.01 + 0.01 * (78 / 7000 - 0.01)
    assert (found.samples, found.idle, found.quiet) == (101, 2.0, 25.0)
    assert found.points == pytest.approx(points)
    error = 60 - 50 - points * 400
    assert found.brokers["a"] == pytest.approx(
        (101, 3 + 0.05 * (60 - 2 - points * 5000 - 3), 50 + 0.045 * 10, 4 + 0.02 * (error**2 - 4), None)
    )


def test_scores_weigh_by_cores():
    rows = [broker("a", 60.0) | {"cpu_limit": 100.0}, broker("b", 66.0) | {"cpu_limit": 300.0}]
    found = learn(KNOWN, brokers_of(rows), SUMS, [], SETTINGS, 1.0).learned
    assert found.points == pytest.approx(0.01 + 0.01 * ((58 * 0.5 + 20 * 1.5) / 7000 - 0.01))


def test_the_error_is_put_down_to_the_bundles_whose_rate_changed():
    found = learn(KNOWN, sampled(), SUMS, [], SETTINGS, 1.0)
    points, variance = found.learned.points, found.learned.brokers["a"].variance
    expected = points**2 * 1e6 + 3 * variance + 0.5
    correction = found.corrections["a"]
    assert correction == pytest.approx((points * (10 - points * 400) / expected, points**2 / expected))
    # The score rose by more than the rates explain, so a bundle that rose is dearer, one that fell is cheaper.
    for change in (1000.0, -1000.0):
        cost, doubt = corrected(0.25, change, *correction)
        assert cost == pytest.approx(1 + 0.25 * change * correction.gain)
        assert 0 < doubt < 0.25
    assert corrected(0.25, 0.0, *correction) == (1.0, 0.25)
    assert corrected(0.25, 1e9, *correction) == (4.0, 0.0)
    assert corrected(0.25, -1e9, *correction) == (0.25, 0.0)
    assert corrected(0.2, 5.0, 0.0, 0.0) == (1.0, 0.2 + 2e-6)


def corrected(variance: float, *given: float) -> tuple[float, float]:
    """The cost and its variance after a correction, of one bundle whose cost is 1."""
    figures = BundleCosts(*(np.array([figure]) for figure in (9.0, 9.0, 9.0, 1.0, variance)))
    after = figures.corrected(*(np.array([figure]) for figure in given))
    return after.cost.item(), after.variance.item()


@pytest.mark.parametrize(
    ("minutes", "learns_costs", "learns_residual"),
    [(3.0, False, False), (5.0, False, True), (24.0, False, True), (inf, True, True)],
)
def test_a_move_pauses_learning_on_both_ends(minutes, learns_costs, learns_residual):
    moved = [RecentMove("a", "b", minutes)] if minutes < inf else []
    found = learn(KNOWN, sampled(), SUMS, moved, SETTINGS, 1.0)
    for name in ("a", "b"):
        assert any(found.corrections[name]) == learns_costs
        assert (found.learned.brokers[name].residual != KNOWN.brokers[name].residual) == learns_residual
        assert found.learned.brokers[name].score != KNOWN.brokers[name].score


def test_a_broker_that_came_or_went_pauses_costs_and_starts_from_its_sample():
    before = replace(KNOWN, brokers={"a": KNOWN.brokers["a"], "gone": LearnedBroker(9)})
    found = learn(before, sampled(), SUMS, [], SETTINGS, 1.0)
    assert found.learned.quiet == 0
    assert not any(map(any, found.corrections.values()))
    assert set(found.learned.brokers) == {"a", "b"}
    new = found.learned.brokers["b"]
    assert (new.samples, new.score) == (1, 22)
    assert new.residual == pytest.approx(20 - found.learned.points * 2000)
    later = learn(found.learned, sampled(), SUMS, [], SETTINGS, 1.0)
    assert (later.learned.quiet, any(later.corrections["a"])) == (1, False)


def test_a_broker_that_restarted_starts_again_even_if_it_was_never_missing():
    def process(hours: int) -> Any:
        return sampled(started_at=NOON + timedelta(hours=hours))

    known = learn(KNOWN, process(0), SUMS, [], SETTINGS, 1.0).learned
    # Its start becomes known: nothing else is.
    assert (known.brokers["a"].samples, known.quiet) == (101, 25.0)
    assert Learned.parse(json.loads(json.dumps(known.document()))) == known
    same = learn(known, process(0), SUMS, [], SETTINGS, 1.0)
    unknown = learn(known, sampled(), SUMS, [], SETTINGS, 1.0)
    for found in (same, unknown):
        assert (found.learned.brokers["a"].samples, any(found.corrections["b"])) == (102, True)
    again = learn(known, process(1), SUMS, [], SETTINGS, 1.0)
    broker_a = again.learned.brokers["a"]
    assert broker_a[::2] == pytest.approx((1, 60, broker_a.started))
    assert broker_a.residual == pytest.approx(60 - 2 - again.learned.points * 5000)
    assert (again.learned.quiet, any(again.corrections["b"])) == (0, False)


def test_a_broker_that_is_left_out_teaches_nothing_and_is_remembered():
    found = learn(KNOWN, sampled(left_out=Reason.REPORT_MISSING.value), SUMS, [], SETTINGS, 1.0)
    assert found.learned.brokers["a"] == KNOWN.brokers["a"]
    assert "a" not in found.corrections
    assert found.learned.points == pytest.approx(0.01)


def test_an_old_figure_and_a_full_broker_say_nothing_about_points():
    full = learn(KNOWN, sampled(a=98.0), SUMS, [], SETTINGS, 1.0).learned
    old = learn(KNOWN, sampled(load_average=0.5, report_age_seconds=121.0), SUMS, [], SETTINGS, 1.0)
    written_long_ago = learn(KNOWN, sampled(report_age_seconds=900.0), SUMS, [], SETTINGS, 1.0)
    assert full.points == old.learned.points == pytest.approx(0.01)
    assert (any(old.corrections["a"]), any(written_long_ago.corrections["a"])) == (False, True)


def test_the_first_sample_explains_itself():
    first = learn(Learned(), sampled(), SUMS, [], SETTINGS, 1.0).learned
    assert (first.samples, first.idle) == (1, 5.0)
    assert first.points == pytest.approx((55 + 17) / 7000)
    assert first.brokers["a"].residual == pytest.approx(55 - first.points * 5000, rel=1e-5)
    assert Learned.parse(first.document()) == first
    assert Learned.parse(Learned().document()) == Learned()


def test_averages_begin_as_plain_means_and_follow_the_interval():
    assert [step(0.25, 1, n) for n in (1, 2, 4, 9)] == [1, 0.5, 0.25, 0.25]
    assert step(0.25, 2, 99) == pytest.approx(1 - 0.75**2)
    hour, quick, quarter = steps(replace(KNOWN, samples=10**6), 1.0, counts=True)
    assert (1 - hour) ** 60 == pytest.approx(0.5)
    assert (quick, quarter) == pytest.approx((0.25, 0.045))
    assert not any(steps(KNOWN, 1.0, counts=False))
    assert not any(Correction())


@pytest.mark.parametrize(("minutes", "corrects"), [(3.0, True), (3.1, False), (60.0, False)])
def test_after_a_pause_averages_follow_the_time_and_costs_wait(minutes, corrects):
    found = learn(KNOWN, sampled(), SUMS, [], SETTINGS, minutes)
    assert (any(found.corrections["a"]), found.learned.quiet) == (corrects, 25.0 if corrects else 0.0)
    assert found.learned.brokers["a"].score == pytest.approx(60 - 10 * (1 - 0.045) ** minutes)
    hour, _, quarter = steps(KNOWN, minutes, counts=True)
    assert (1 - hour, 1 - quarter) == pytest.approx((0.5 ** (minutes / 60), (1 - 0.045) ** minutes))
    # A strategy that knows nothing yet has missed nothing.
    assert learn(Learned(), sampled(), SUMS, [], SETTINGS, minutes).learned.quiet == 25.0


def test_cores_are_relative_to_the_median_broker():
    rows = [
        broker(name, 10) | {"cpu_limit": limit}
        for name, limit in (("a", 400.0), ("b", 800.0), ("c", 1600.0), ("d", None))
    ]
    assert relative_limits(brokers_of(rows), "cpu") == {"a": 0.5, "b": 1.0, "c": 2.0, "d": 1.0}
