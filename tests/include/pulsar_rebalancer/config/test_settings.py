import pytest

from pulsar_rebalancer.config.clusters_file import Origin, differing_settings, live_settings, parse_params, resolve
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME
from pulsar_rebalancer.config.settings import CAPS, Settings, validate
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.strategies.shedders.registry import force_threshold

# Read back from Pulsar's ServiceConfiguration; maxUnloadPercentage as of 5.0.
DEFAULTS_OF_PULSAR = {
    "loadBalancerAvgShedderLowThreshold": 15,
    "loadBalancerAvgShedderHighThreshold": 40,
    "loadBalancerAvgShedderHitCountLowThreshold": 8,
    "loadBalancerAvgShedderHitCountHighThreshold": 2,
    "minUnloadMessage": 1000,
    "minUnloadMessageThroughput": 1048576,
    "maxUnloadPercentage": 0.5,
    "loadBalancerCPUResourceWeight": 1.0,
    "loadBalancerDirectMemoryResourceWeight": 0.0,
    "loadBalancerBandwidthInResourceWeight": 1.0,
    "loadBalancerBandwidthOutResourceWeight": 1.0,
    "loadBalancerSheddingExcludedNamespaces": (),
    "loadBalancerSheddingGracePeriodMinutes": 30,
    "loadBalancerReportUpdateMaxIntervalMinutes": 15,
    "loadBalancerHostUsageCheckIntervalMinutes": 1,
    "loadBalancerAutoBundleSplitEnabled": True,
    "loadBalancerAutoUnloadSplitBundlesEnabled": True,
    "defaultNamespaceBundleSplitAlgorithm": "range_equally_divide",
    "loadBalancerNamespaceBundleMaxTopics": 1000,
    "loadBalancerNamespaceBundleMaxSessions": 1000,
    "loadBalancerNamespaceBundleMaxMsgRate": 30000,
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": 100,
    "loadBalancerNamespaceMaximumBundles": 128,
    "flowOrQpsDifferenceThresholdPercentage": 10,
    "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": 3,
    "loadBalancerMaxNumberOfBundlesToSplitPerCycle": 10,
    "loadBalancerMemoryResourceWeight": 0.0,
    "loadBalancerHistoryResourcePercentage": 0.9,
    "loadBalancerBrokerThresholdShedderPercentage": 10,
    "loadBalancerBundleUnloadMinThroughputThreshold": 10,
    "lowerBoundarySheddingEnabled": False,
    "loadBalancerBrokerOverloadedThresholdPercentage": 85,
    "loadBalancerMsgRateDifferenceShedderThreshold": 50,
    "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": 4,
    "maxUnloadBundleNumPerShedding": -1,
    "loadBalancerBrokerLoadTargetStd": 0.25,
    "loadBalancerSheddingConditionHitCountThreshold": 3,
    "loadBalancerTransferEnabled": True,
    "loadBalancerMaxNumberOfBrokerSheddingPerCycle": 3,
    "loadBalanceSheddingDelayInSeconds": 180,
    "loadBalancerBrokerLoadDataTTLInSeconds": 1800,
    "loadBalancerMaxNumberOfBundlesInBundleLoadReport": 10,
    "loadBalancerSheddingBundlesWithPoliciesEnabled": False,
    "loadBalancerDebugModeEnabled": False,
    "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": 10,
    "loadBalancerBrokerMaxTopics": 50000,
    "loadBalancerDistributeBundlesEvenlyEnabled": False,
    "failureDomainsEnabled": False,
    "preferLaterVersions": False,
}


def test_defaults_are_those_of_pulsar():
    settings = Settings()
    assert {name: getattr(settings, field) for name, field in FIELD_OF_PULSAR_NAME.items()} == DEFAULTS_OF_PULSAR


def test_default_mode_moves_nothing():
    assert Settings().mode is Mode.OBSERVE


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"low_treshold": 10}, "low_treshold"),
        ({"low_threshold": "much"}, "low_threshold"),
        ({"low_threshold": -1}, "low_threshold"),
        ({"hit_count_low": 0}, "hit_count_low"),
        ({"loadBalancerAvgShedderHitCountHighThreshold": 0}, "HitCountHighThreshold"),
        ({"max_unload_percentage": 1.5}, "max_unload_percentage"),
        ({"cpu_weight": float("nan")}, "cpu_weight"),
        ({"mode": "sometimes"}, "mode"),
        ({"split_mode": "approve"}, "split_mode"),
        ({"strategy": "RoundRobin"}, "strategy"),
        ({"excluded_namespaces": ["public"]}, "excluded_namespaces"),
        ({"excluded_namespaces": "acme/shop/eu"}, "excluded_namespaces"),
        ({"excluded_brokers": ["pulsar-3"]}, "excluded_brokers"),
        ({"excluded_brokers": ["pulsar-3:99999"]}, "excluded_brokers"),
        ({"excluded_brokers": ["http://pulsar-3:8080"]}, "excluded_brokers"),
        ({"pause": {"until": "2026-01-01T00:00:00", "reason": "x"}}, "pause"),
        ({"pause": {"until": "2026-01-01T00:00:00Z"}}, "reason"),
        ({"breaker": {}}, "bad_brokers"),
        ({"breaker": {"minutes": 30}}, "bad_brokers"),
        ({"breaker": {"failed_moves": 1, "minutes": 1e12}}, "minutes"),
        ({"breaker": {"failed_moves": 0}}, "failed_moves"),
        ({"excluded_bundles": ["a b"]}, "excluded_bundles"),
        ({"max_bytes_per_run": float("inf")}, "max_bytes_per_run"),
        ({"max_bundles_per_namespace": 0}, "max_bundles_per_namespace"),
        ({"maintenance_windows": [{"cron": "0 0 31 2 *", "minutes": 5}]}, "cron"),
        ({"blackouts": [{"cron": "0 0 * * *", "minutes": 5, "timezone": "Mars/Olympus"}]}, "timezone"),
    ],
)
def test_wrong_values_are_refused_with_the_keys_name(given, named):
    with pytest.raises(SettingsError, match=named) as refused:
        validate(given, label="clusters.yaml: east")
    assert refused.value.reason == "wrong_setting"
    assert "clusters.yaml: east" in str(refused.value)


@pytest.mark.parametrize(
    ("new", "old", "effective"), [("1.0", "0.5", 0.5), ("0.7", "0.5", 0.7), ("1.0", "1.0", 1.0), (None, "0.5", 0.5)]
)
def test_misspelt_weight_wins_only_while_the_new_key_has_its_default(new, old, effective):
    runtime = {"loadBalancerBandwithInResourceWeight": old}
    if new is not None:
        runtime["loadBalancerBandwidthInResourceWeight"] = new
    assert resolve({}, live_settings(runtime)).settings.bandwidth_in_weight == effective


def test_later_sources_win_and_each_origin_is_kept():
    brokers = {"low_threshold": "10", "hit_count_low": "4", "hit_count_high": "3"}
    file = {"loadBalancerAvgShedderHitCountLowThreshold": 5, "mode": "auto", "hit_count_high": 4}
    resolved = resolve(file, brokers, parse_params({"hit_count_high": 6}))
    settings = resolved.settings
    assert (settings.low_threshold, settings.hit_count_low, settings.hit_count_high) == (10, 5, 6)
    assert {name: resolved.origins[name] for name in ("high_threshold", "low_threshold", "hit_count_low")} == {
        "high_threshold": Origin.DEFAULT,
        "low_threshold": Origin.BROKERS,
        "hit_count_low": Origin.FILE,
    }
    assert resolved.origins["hit_count_high"] is Origin.PARAMS


def test_a_strategy_can_be_an_import_path():
    assert validate({"strategy": "my_package.shedders:shed"}, label="x").strategy == "my_package.shedders:shed"


def test_splits_can_be_automatic_and_runs_kept_for_ever():
    settings = validate({"split_mode": "auto", "retention_days": 0}, label="x")
    assert (settings.split_mode, settings.retention_days) == (Mode.AUTO, 0)


def test_a_run_lowers_the_mode_and_never_raises_it():
    assert resolve({"mode": "auto"}, {}, parse_params({"mode": "observe"})).settings.mode is Mode.OBSERVE
    with pytest.raises(SettingsError, match="mode"):
        resolve({"mode": "observe"}, {}, parse_params({"mode": "auto"}))


@pytest.mark.parametrize("cap", CAPS)
def test_a_run_lowers_a_cap_and_never_raises_it(cap):
    file = {cap: 10}
    assert getattr(resolve(file, {}, parse_params({cap: 5})).settings, cap) == 5
    assert getattr(resolve({}, {}, parse_params({cap: 500})).settings, cap) == 500
    with pytest.raises(SettingsError, match=cap):
        resolve(file, {}, parse_params({cap: 11}))
    with pytest.raises(SettingsError, match=cap):
        parse_params({cap: 0})


def test_a_run_adds_to_what_is_left_out():
    params = parse_params(
        {"excluded_brokers": [" b2:8080"], "excluded_namespaces": ["t/n"], "excluded_bundles": ["t/x/*"]}
    )
    file = {"excluded_brokers": ["b1:8080 "], "excluded_bundles": ["t/y/*"]}
    settings = resolve(file, {"excluded_namespaces": "t/m"}, params).settings
    assert settings.excluded_bundles == ("t/y/*", "t/x/*")
    assert settings.excluded_brokers == ("b1:8080", "b2:8080")
    assert settings.excluded_namespaces == ("t/m", "t/n")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"force_threshold": 10}, "force"),
        ({"low_threshold": 30, "high_threshold": 20}, "low_threshold"),
        ({"hit_count_low": 0}, "hit_count_low"),
        ({"treshold": 1}, "treshold"),
        ({"excluded_brokers": ["b2"]}, "excluded_brokers"),
        ({"excluded_namespaces": ["shop"]}, "excluded_namespaces"),
    ],
)
def test_wrong_parameters_are_refused(given, named):
    with pytest.raises(SettingsError, match=named):
        parse_params(given)


@pytest.mark.parametrize(
    ("strategy", "params", "forced", "threshold"),
    [
        ("AvgShedder", {"force": "why"}, True, 15),
        ("AvgShedder", {"force": "why", "force_threshold": 3}, True, 3),
        ("AvgShedder", {"force": " "}, False, None),
        ("ThresholdShedder", {"force": "why"}, True, None),
    ],
)
def test_a_forced_run_has_a_threshold_where_there_are_pairs(strategy, params, forced, threshold):
    request = RunRequest(
        cluster="east",
        airflow_run_id="manual__1",
        params=parse_params(params),
        resolved=resolve({"strategy": strategy}, {}),
        collected_at="2026-11-21T10:00:00Z",
    )
    assert (request.is_forced, force_threshold(request)) == (forced, threshold)


@pytest.mark.parametrize(
    ("given", "decide", "thresholds"),
    [
        ({"mode": "observe", "plan": "0" * 64, "hit_count_low": ""}, False, False),
        ({"force": "why"}, True, False),
        ({"excluded_namespaces": ["t/n"]}, True, False),
        ({"excluded_brokers": ["b:1"]}, True, True),
        ({"hit_count_low": 1}, True, True),
    ],
)
def test_parameters_know_what_they_change(given, decide, thresholds):
    params = parse_params(given)
    assert (params.changes_decision, params.changes_thresholds) == (decide, thresholds)


def test_settings_in_which_brokers_differ_are_named():
    one, other = {"minUnloadMessage": "5", "maxUnloadPercentage": "0.2"}, {"minUnloadMessage": "6"}
    assert differing_settings([one, one]) == ()
    assert differing_settings([one, other]) == ("maxUnloadPercentage", "minUnloadMessage")
