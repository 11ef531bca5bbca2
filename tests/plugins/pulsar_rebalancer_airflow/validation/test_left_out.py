import math

import pytest
from tests.plugins.pulsar_rebalancer_airflow.validation.validation_sample import (
    BROKERS,
    Sample,
    read_alone,
    spoiled_broker,
    spoiled_bundle,
)

from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer.run.tables import TRAFFIC

FIRST, SECOND, _ = BROKERS
NAN = math.nan


def test_a_pattern_that_excludes_no_bundle_is_told(tmp_path):
    sample = Sample()
    name = sample.bundles[0]["bundle"]
    sample.settings = {
        "excluded_bundles": [name, f"{name.partition('/')[0]}/*", f"?{name}", name[1:], name[:-1], "gone/*"]
    }
    found = [f for f in read_alone(sample, tmp_path) if f.reason == "unmatched_exclusion"]
    assert [(f.effect, f.detail) for f in found] == [
        ("warn", f"{pattern!r} matches no bundle") for pattern in sample.settings["excluded_bundles"][2:]
    ]


def test_an_interval_below_the_brokers_host_sample_is_told(tmp_path):
    sample = Sample()
    sample.settings = {"interval_seconds": 20}
    (found,) = read_alone(sample, tmp_path)
    assert (found.reason, found.effect) == ("not_recommended", "warn")
    assert found.detail == "interval_seconds 20 is below host_usage_interval_minutes 1 (60 s)"


@pytest.mark.parametrize(
    ("settings", "cores", "said"),
    [
        ({"strategy": "ThresholdShedder", "placement": "LeastLongTermMessageRate"}, (8, 8), "places by message rate"),
        ({"strategy": "ThresholdShedder"}, (8, 8), ""),
        ({"strategy": "UniformLoadShedder", "placement": "LeastLongTermMessageRate"}, (8, 8), ""),
        ({"max_unload_percentage": 0.2}, (8, 8), "max_unload_percentage 0.2"),
        ({"strategy": "UniformLoadShedder", "max_unload_percentage": 0.2}, (8, 8), ""),
        ({}, (4, 12), "AvgShedder suits equal brokers; yours have 4 to 12 cores"),
        ({"strategy": "UniformLoadShedder"}, (4, 12), "UniformLoadShedder suits equal brokers; yours have 4 to"),
        ({"strategy": "GainShedder"}, (4, 12), ""),
    ],
)
def test_a_choice_that_pulsar_or_the_experiments_advise_against_is_told(tmp_path, settings, cores, said):
    sample = Sample()
    for broker, number in zip(sample.brokers, (*cores, cores[0]), strict=True):
        broker["cpu_limit"] = 100.0 * number
    sample.settings = settings
    found = [f for f in read_alone(sample, tmp_path) if f.reason == "not_recommended"]
    assert [f.effect for f in found] == ["warn"] * bool(said)
    assert all(said in f.detail for f in found)


def many(reason_columns, count=4, **settings):
    """Eight brokers, the first of which have a problem."""
    sample = Sample()
    template = sample.brokers[0]
    sample.bundles = []
    sample.brokers = [
        {**template, **dict.fromkeys(TRAFFIC, 0.0), "broker": f"b-{i}:8080"} | (reason_columns if i < count else {})
        for i in range(8)
    ]
    sample.settings = settings
    return sample


def few(brokers=3, **settings):
    sample = Sample()
    del sample.brokers[brokers:], sample.bundles[2 * brokers :]
    sample.settings = settings
    return sample


def all_spoiled(column, value, brokers=3, **settings):
    """The first so many brokers, or the bundles of all with `bundles` in front of the column, have a problem."""
    sample = few(**settings)
    table, _, name = column.rpartition(".")
    for row in sample.bundles if table else sample.brokers[:brokers]:
        row[name] = value
    return sample


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (few(1), {"too_few_brokers": "1 of 1 usable"}),
        (few(0), {"too_few_brokers": "0 of 0 usable"}),
        (few(excluded_brokers=[FIRST, SECOND]), {"too_few_brokers": "1 of 3 usable; left out: 2 excluded"}),
        (
            all_spoiled("report_age_seconds", 9000.0, 2),
            {"too_few_brokers": "1 of 3 usable; left out: 2 with an outdated or future report"},
        ),
        (
            all_spoiled("host_samples", 0.0, host_usage_interval_minutes=2),
            {"too_few_brokers": "0 of 3 usable; left out: 3 just started; just-started brokers join after 4 min"},
        ),
        (
            many({"cpu_usage": None}),
            {"too_many_quarantined": "4 brokers quarantined, limit 2; left out: 4 with a bad value"},
        ),
        (
            all_spoiled("bundles.msg_rate_in", -1.0, max_quarantined_brokers=2),
            {
                "too_many_quarantined": "3 brokers quarantined, limit 2; left out: 3 with doubtful traffic",
                "too_few_brokers": "0 of 3 usable; left out: 3 with doubtful traffic",
            },
        ),
    ],
    ids=["one", "none", "excluded", "stale", "just_started", "too_many", "in_doubt"],
)
def test_too_few_remaining_brokers_block(sample, expected, tmp_path):
    found = read_alone(sample, tmp_path)
    assert {f.reason: f.detail for f in found if f.effect is Effect.BLOCK} == expected


NO_CARDS = {f"bandwidth_{way}_limit": 0.0 for way in ("in", "out")}
SLOW_CARD = {"bandwidth_out_usage": 30.0, "bandwidth_out_limit": 10.0}


@pytest.mark.parametrize(
    ("changes", "settings", "detail"),
    [
        (SLOW_CARD, {}, "deciding_resource bandwidth_out, deciding_percent 300"),
        (SLOW_CARD, {"bandwidth_out_weight": 0}, None),
        (SLOW_CARD | {"cpu_usage": 180.0}, {"bandwidth_out_weight": 0.2}, None),
        (NO_CARDS, {}, None),
        (NO_CARDS, {"cpu_weight": 0}, "deciding_resource bandwidth_in and bandwidth_out, deciding_percent inf"),
        (NO_CARDS, {"cpu_weight": 0, "direct_memory_weight": 0.1}, None),
        ({"memory_limit": 1.0}, {"memory_weight": 1}, None),
        (
            {"memory_limit": 1.0},
            {"memory_weight": 1, "strategy": "TransferShedder"},
            "deciding_resource memory, deciding_percent 3000",
        ),
    ],
)
def test_a_limit_that_may_be_wrong_matters_where_it_decides_the_score(changes, settings, detail, tmp_path):
    sample = spoiled_broker(**changes)
    sample.settings = settings
    found = read_alone(sample, tmp_path)
    assert [f.detail for f in found if f.effect is Effect.QUARANTINE] == ([] if detail is None else [detail])
    assert {f.reason for f in found if f.effect is Effect.WARN} <= {"doubtful_limit"}
    assert found


def doubtful(sample):
    return [(f.subject, f.detail) for f in sample if f.reason == "traffic_in_doubt"]


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({"bundle": "acme/shop"}, "50%"),
        ({"msg_rate_in": -1000.0}, "50%"),
        ({"msg_rate_in": NAN}, "50%"),
        ({"msg_throughput_out": 1e300}, "100%"),
        ({"owners": 2}, "50%"),
        ({"bundle": "acme/shop"} | dict.fromkeys(TRAFFIC, 0.0), None),
        ({"bundle": "acme/shop"} | dict.fromkeys(TRAFFIC, 300.0), None),
    ],
)
def test_bundles_left_out_put_their_broker_in_doubt_when_they_carry_too_much(changes, share, tmp_path):
    expected = [] if share is None else [(FIRST, f"left-out bundles carry {share} of the broker's traffic; limit: 25%")]
    assert doubtful(read_alone(spoiled_bundle(**changes), tmp_path)) == expected


@pytest.mark.parametrize(
    ("kept", "throughput", "topics", "said"),
    [
        (3, 1000.0, 4, ""),
        (2, 1000.0, 4, "2 bundles for 3 brokers, 100% of the traffic; busiest bundle: acme/shop/0x00000000_0x10000000"),
        (2, 1000.0, 1, ""),
        (2, 100.0, 4, ""),
        (1, math.inf, 4, ""),
    ],
    ids=["a bundle for each broker", "too few", "no topics to part", "little traffic", "no valid traffic"],
)
def test_a_busy_namespace_with_fewer_bundles_than_brokers_is_found(tmp_path, kept, throughput, topics, said):
    sample = Sample()
    del sample.bundles[kept:]
    for bundle in sample.bundles:
        bundle |= dict.fromkeys(TRAFFIC, throughput) | {"topics": topics}
    if throughput != 1000:
        others = dict.fromkeys(TRAFFIC, 1000.0)
        sample.bundles += [bundle | {"bundle": f"acme/a{i}/0x0_0x1"} | others for i, bundle in enumerate(6 * [bundle])]
    found = [f for f in read_alone(sample, tmp_path) if f.reason == "few_bundles"]
    assert [(f.effect, f.subject, f.detail) for f in found] == [("warn", "acme/shop", said)] * bool(said)


@pytest.mark.parametrize("held", [4, 5])
def test_system_bundles_crowded_on_a_broker_are_found(tmp_path, held):
    """Six bundles on three brokers: two each is even, and twice that is not yet crowded."""
    sample = Sample()
    for i, bundle in enumerate(sample.bundles):
        bundle |= {"bundle": f"pulsar/system/0x{i}0000000_0x{i + 1}0000000", "broker": FIRST if i < held else SECOND}
    found = [f for f in read_alone(sample, tmp_path) if f.reason == "not_recommended"]
    said = f"{FIRST} has 5 of 6 bundles of pulsar/system, such as pulsar/system/0x00000000_0x10000000"
    assert [(f.subject, f.detail) for f in found] == [(FIRST, said)] * (held == 5)
