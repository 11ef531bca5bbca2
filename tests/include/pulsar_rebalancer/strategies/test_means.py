from __future__ import annotations

import pytest

from pulsar_rebalancer.run.tables import LONG_TERM, TRAFFIC
from pulsar_rebalancer.strategies.means import LONG_TERM_SAMPLES, MAX_SAMPLES, update


def sample(bundle, figure, broker="b1"):
    return {"cluster": "c", "broker": broker, "bundle": bundle, **dict.fromkeys(TRAFFIC, figure)}


def test_the_mean_is_exact_for_ten_samples_and_then_moves_by_a_tenth():
    means = update([sample("x", 1.0)], [])
    for figure in range(2, MAX_SAMPLES + 1):
        means = update([sample("x", float(figure))], means)
    assert means[0]["samples"] == MAX_SAMPLES
    assert means[0]["msg_rate_in"] == pytest.approx(5.5)
    means = update([sample("x", 15.5)], means)
    assert means[0]["msg_throughput_out"] == pytest.approx(6.5)


def test_the_long_term_mean_is_exact_for_a_thousand_samples():
    known = [sample("x", 5.0) | {"samples": LONG_TERM_SAMPLES - 1, **dict.fromkeys(LONG_TERM, 10.0)}]
    means = update([sample("x", 505.0)], known)
    assert (means[0]["samples"], means[0]["long_term_msg_rate"]) == (LONG_TERM_SAMPLES, pytest.approx(11.0))
    means = update([sample("x", 505.5)], means)
    assert (means[0]["samples"], means[0]["long_term_msg_rate"]) == (LONG_TERM_SAMPLES, pytest.approx(12.0))


def test_a_bundle_starts_with_its_first_sample_and_is_forgotten_when_it_is_gone():
    before = update([sample("x", 7.0), sample("y", 1.0)], [])
    means = update([sample("y", 3.0)], before)
    assert [(row["bundle"], row["samples"], row["msg_rate_in"]) for row in means] == [("y", 2, 2.0)]
    assert update([sample("x", 9.0)], means)[0]["msg_rate_in"] == 9.0


def test_of_two_owners_the_larger_figure_counts():
    means = update([sample("x", 2.0, "b1"), sample("x", 8.0, "b2")], [])
    assert [(row["bundle"], row["msg_rate_in"]) for row in means] == [("x", 8.0)]
