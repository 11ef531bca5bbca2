import pytest

from pulsar_rebalancer.run.bundle_columns import MAX_SAMPLES, update_means
from pulsar_rebalancer.run.tables import TRAFFIC


def sample(bundle, value, broker="b1"):
    return {"cluster": "c", "broker": broker, "bundle": bundle, **dict.fromkeys(TRAFFIC, value)}


def test_the_mean_is_exact_for_ten_samples_and_then_moves_by_a_tenth():
    means = update_means([sample("x", 1.0)], [])
    for value in range(2, MAX_SAMPLES + 1):
        means = update_means([sample("x", float(value))], means)
    assert means[0]["samples"] == MAX_SAMPLES
    assert means[0]["msg_rate_in"] == pytest.approx(5.5)
    means = update_means([sample("x", 15.5)], means)
    assert means[0]["msg_throughput_out"] == pytest.approx(6.5)
