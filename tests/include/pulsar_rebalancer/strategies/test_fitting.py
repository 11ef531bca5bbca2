import pytest

from pulsar_rebalancer.config.clusters_file import parse_params
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.strategies.shedders.registry import placement_of, resolve, validate


def test_a_contradiction_with_the_brokers_is_found_when_resolved():
    with pytest.raises(SettingsError, match="low_threshold 30 is above high_threshold 25") as refused:
        resolve({}, {"high_threshold": "25"}, parse_params({"low_threshold": 30}))
    assert refused.value.reason == "contradiction"


def test_settings_of_avg_shedder_are_refused_for_others():
    params = parse_params({"force": "now", "force_threshold": 10})
    assert resolve({}, {}, params).settings.strategy == "AvgShedder"
    with pytest.raises(SettingsError, match="strategy ThresholdShedder does not support force_threshold"):
        resolve({"strategy": "ThresholdShedder"}, {}, params)
    with pytest.raises(SettingsError, match="placement RoundRobinBrokerSelector is never used"):
        validate({"placement": "RoundRobinBrokerSelector"}, label="here")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "AvgShedder"),
        ({"strategy": "OverloadShedder"}, "LeastLongTermMessageRate"),
        ({"strategy": "TransferShedder"}, "LeastResourceUsageWithWeight"),
        ({"strategy": "TransferShedder", "placement": "RoundRobinBrokerSelector"}, "RoundRobinBrokerSelector"),
    ],
)
def test_every_strategy_has_a_placement_beside_it(given, expected):
    assert placement_of(validate(given, label="here")) == expected
