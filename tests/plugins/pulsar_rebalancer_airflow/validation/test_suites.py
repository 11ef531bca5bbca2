import math
from typing import Any

import pytest
from tests.plugins.pulsar_rebalancer_airflow.validation.validation_sample import (
    BROKERS,
    Sample,
    findings_of,
    spoiled_broker,
    spoiled_cluster,
)

from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.tables import LARGEST, RESOURCES, TRAFFIC
from pulsar_rebalancer_airflow.suites import validate

FIRST, SECOND, _ = BROKERS
NAN, INF = math.nan, math.inf


def test_a_healthy_sample_has_no_findings(tmp_path):
    run = Sample().write(tmp_path)
    assert validate(run) == Validation()
    assert Validation.read(run) == Validation()


CLUSTER = [
    ({"builtin_shedding": True}, "builtin_shedding_on", "builtin_shedding True"),
    ({"builtin_shedding": None}, "builtin_shedding_on", "builtin_shedding missing"),
    ({"even_distribution": True}, "not_recommended", "even_distribution True"),
    ({"even_distribution": None}, "not_recommended", "even_distribution missing"),
    (
        {"settings_in_disagreement": "loadBalancerAvgShedderLowThreshold"},
        "brokers_disagree",
        "settings_in_disagreement loadBalancerAvgShedderLowThreshold",
    ),
    (
        {"policies_unclear": "policy 'p' serves no broker"},
        "policy_unclear",
        "policies_unclear policy 'p' serves no broker",
    ),
    ({"leader_read": False, "leader": "b-1:8080"}, "leader_unread", "leader b-1:8080"),
    ({"leader_read": None}, "leader_unread", "leader_read missing"),
    ({"policies_readable": None}, "policy_unreadable", "policies_readable missing"),
]


@pytest.mark.parametrize(("changes", "reason", "detail"), CLUSTER)
def test_a_problem_of_the_cluster(changes, reason, detail, tmp_path):
    expected = Finding(reason=reason, detail=detail)
    assert findings_of(spoiled_cluster(**changes), tmp_path) == (expected,)


def test_policies_that_cannot_be_read_hold_and_say_why(tmp_path):
    found = findings_of(spoiled_cluster(policies_readable=False, policies_problem="answered 403"), tmp_path)
    seen = [(f.reason, f.effect, f.detail) for f in found]
    assert seen == [("policy_unreadable", Effect.HOLD, "policies_problem answered 403")]


NO_REPORT = dict.fromkeys(
    ["report_age_seconds", "host_samples", *TRAFFIC, *(f"{r}_{part}" for r in RESOURCES for part in ("usage", "limit"))]
)
AN_HOUR_AHEAD = {"report_age_seconds": -3600.0, "host_samples": -60.0}

BROKER: list[tuple[dict[str, Any], str, str]] = [
    (NO_REPORT | {"error": "timeout"}, "report_missing", "error timeout"),
    (AN_HOUR_AHEAD, "bad_report_time", "report_age_seconds -3600"),
    ({"report_age_seconds": 961.0}, "bad_report_time", "report_age_seconds 961"),
    ({"report_age_seconds": None}, "bad_value", "report_age_seconds missing"),
    ({"host_samples": NAN}, "bad_value", "host_samples missing"),
    ({"cpu_usage": None, "cpu_limit": NAN}, "bad_value", "cpu_usage missing, cpu_limit missing"),
    ({"memory_usage": INF}, "bad_value", "memory_usage missing"),
    ({"bandwidth_in_limit": -INF}, "bad_value", "bandwidth_in_limit missing"),
    ({"direct_memory_usage": -0.5}, "bad_value", "direct_memory_usage -0.5"),
    ({"bandwidth_out_usage": -1.0}, "bad_value", "bandwidth_out_usage -1"),
    ({"cpu_limit": -1.0}, "bad_value", "cpu_limit -1"),
    ({"msg_throughput_out": -7.0}, "bad_value", "msg_throughput_out -7"),
    ({"host_samples": 1.0}, "just_started", "host_samples 1"),
    ({"cpu_usage": 301.0}, "doubtful_limit", "cpu_percent 150.5"),
    ({"cpu_usage": 30.0, "cpu_limit": 0.0}, "load_in_doubt", "cpu_usage 30, cpu_limit 0"),
    ({"cpu_usage": -1.0, "cpu_limit": -1.0}, "load_in_doubt", "cpu_usage 0, cpu_limit 0"),
    ({"cpu_usage": 401.0}, "load_in_doubt", "cpu_usage 401, cpu_limit 200"),
    ({"load_average": -1.0}, "bad_value", "load_average -1"),
    ({"load_average": NAN}, "bad_value", "load_average inf"),
    ({"throughput_average": -INF}, "bad_value", "throughput_average inf"),
    ({"topics": -1}, "bad_value", "topics -1"),
    ({"direct_memory_limit": 1e-9}, "bad_value", "direct_memory_usage 30, direct_memory_limit 1e-09"),
    ({"bandwidth_in_limit": 0.0}, "doubtful_limit", "bandwidth_in_limit 0"),
    ({"bandwidth_in_usage": -1.0, "bandwidth_in_limit": -1.0}, "doubtful_limit", "bandwidth_in_limit 0"),
    ({"msg_rate_in": 2021.0}, "sums_disagree", "unaccounted_percent 1.03909"),
    ({"listings": 2}, "listed_twice", "listings 2"),
    ({"version": "2.11.4"}, "old_broker", "version 2.11.4"),
    *(
        ({name: value}, "bad_value", f"{name} missing")
        for name in (*TRAFFIC, *(f"{r}_{part}" for r in RESOURCES for part in ("usage", "limit")))
        for value in (None, NAN)
    ),
    *(({name: LARGEST[name] * 2}, "bad_value", f"{name} ") for name in LARGEST if name in tables.BROKERS.names),
]


HEALTHY: list[dict[str, Any]] = [
    {},
    {"report_age_seconds": 959.0},
    {"report_age_seconds": -59.0},
    {"host_samples": 2.0},
    {"cpu_usage": 299.0},
    {"cpu_usage": 0.0},
    {"msg_rate_in": 2019.0},
    {"topics": None, "producers": None, "version": None},
    {"version": "3.0.0"},
    {"version": "20.0.0"},
    {"load_average": 0.5, "throughput_average": 2e6},
    {"direct_memory_usage": LARGEST["direct_memory_usage"], "direct_memory_limit": LARGEST["direct_memory_limit"]},
]


@pytest.fixture(scope="module")
def broker_findings(tmp_path_factory):
    """Findings by broker of one sample in which every case above is a broker with two healthy bundles."""
    sample = Sample()
    broker, bundle = sample.brokers[0], sample.bundles[0]
    cases = [*(changes for changes, _, _ in BROKER), *HEALTHY]
    sample.brokers = [broker | {"broker": f"case-{i}:8080"} | changes for i, changes in enumerate(cases)]
    sample.bundles = [
        bundle | {"broker": f"case-{i // 2}:8080", "bundle": f"acme/shop/0x{i:08x}_0x{i + 1:08x}"}
        for i in range(2 * len(cases))
    ]
    sample.settings = {"max_quarantined_brokers": len(cases)}
    found: dict[str, list[Finding]] = {f"case-{i}:8080": [] for i in range(len(cases))}
    for finding in findings_of(sample, tmp_path_factory.mktemp("brokers")):
        found[finding.subject].append(finding)
    return list(found.values())


@pytest.mark.parametrize("case", range(len(BROKER)), ids=[f"{i}-{reason}" for i, (_, reason, _) in enumerate(BROKER)])
def test_a_problem_of_a_broker(broker_findings, case):
    changes, reason, detail = BROKER[case]
    seen = {"subject": f"case-{case}:8080", "detail": detail, "cause": changes.get("error", "")}
    (finding,) = [found for found in broker_findings[case] if found.effect is Reason(reason).effect]
    assert finding.detail.startswith(detail) if reason == "bad_value" else finding.detail == detail
    assert finding == Finding(reason=reason, **seen | {"detail": finding.detail})


def test_the_age_limit_follows_the_brokers_own_interval(tmp_path):
    sample = spoiled_broker(report_age_seconds=130.0)
    sample.settings = {"report_max_interval_minutes": 1}
    assert [f.reason for f in findings_of(sample, tmp_path)] == ["bad_report_time"]


MARKUP = "acme/\"'><script>alert(1)</script>/0x00000000_0xffffffff"
BUNDLE = "globex/clicks/0x{:08x}_0xffffffff"
BUNDLES: list[tuple[dict[str, Any], str, str]] = [
    ({"bundle": "acme/shop"}, "bad_value", "bundle acme/shop"),
    ({"bundle": "acme/shop/0x0_0x1"}, "bad_value", "bundle acme/shop/0x0_0x1"),
    ({"bundle": MARKUP}, "bad_value", f"bundle {MARKUP}"),
    ({"msg_rate_in": None}, "bad_value", "msg_rate_in missing"),
    ({"msg_rate_out": NAN}, "bad_value", "msg_rate_out missing"),
    ({"msg_throughput_in": INF}, "bad_value", "msg_throughput_in missing"),
    ({"msg_throughput_out": -0.1}, "bad_value", "msg_throughput_out -0.1"),
    ({"producers": 2**62 - 1}, "bad_value", "producers 4.61169e+18"),
    *(({name: int(LARGEST[name] * 2)}, "bad_value", f"{name} ") for name in LARGEST if name in tables.BUNDLES.names),
]


@pytest.fixture(scope="module")
def bundle_findings(tmp_path_factory):
    """Findings by bundle of one sample in which every case above is a bundle, among healthy ones."""
    sample = Sample()
    sample.bundles += [sample.bundles[0] | {"bundle": BUNDLE.format(i)} | case[0] for i, case in enumerate(BUNDLES)]
    return [f for f in findings_of(sample, tmp_path_factory.mktemp("bundles")) if f.subject != FIRST]


@pytest.mark.parametrize("case", range(len(BUNDLES)), ids=[f"{i}-{case[1]}" for i, case in enumerate(BUNDLES)])
def test_a_problem_of_a_bundle(bundle_findings, case):
    changes, reason, detail = BUNDLES[case]
    subject = changes.get("bundle", BUNDLE.format(case))
    (finding,) = [finding for finding in bundle_findings if finding.subject == subject]
    assert finding.reason == reason
    assert finding.detail.startswith(detail)


def test_a_bundle_with_two_owners_is_named_once_with_both(tmp_path):
    sample = Sample()
    sample.bundles[0] |= {"owners": 2} | dict.fromkeys(TRAFFIC, 100.0)
    sample.bundles.append({**sample.bundles[0], "broker": SECOND})
    sample.brokers[0] |= dict.fromkeys(TRAFFIC, 1100.0)
    sample.brokers[1] |= dict.fromkeys(TRAFFIC, 2100.0)
    expected = Finding(
        reason="two_owners", subject=sample.bundles[0]["bundle"], detail=f"broker {FIRST}, broker {SECOND}"
    )
    assert findings_of(sample, tmp_path) == (expected,)
