"""A real broker's report, and what becomes of every kind of damaged figure."""

import json
import math
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulsar_rebalancer.collect.load_report import count, figure, read_report
from pulsar_rebalancer.run import tables

REPORT = json.loads((Path(__file__).parent / "data" / "load-report-4.0.8.json").read_text())
LAST_UPDATE = datetime(2026, 11, 21, 9, 15, 57, 108000, tzinfo=UTC)
NOW = LAST_UPDATE + timedelta(seconds=42.5)


def row_of(report, now=NOW, host_interval_s=60.0):
    found = read_report("b:1", {"lastStats": {}} | report, collected_at=now, host_interval_s=host_interval_s)
    return found.columns


def bundles_of(stats):
    return read_report("b:1", {"lastStats": stats}, collected_at=NOW, host_interval_s=60.0).bundles.to_pylist()


def spoiled(*path, value):
    report = deepcopy(REPORT)
    place = report
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return report


def test_a_real_report_becomes_a_row():
    row = row_of(REPORT)
    assert row["last_update"] == LAST_UPDATE
    assert row["report_age_seconds"] == pytest.approx(42.5)
    # 520.723 s since the start: eight whole minutes.
    assert row["host_samples"] == 8.0
    assert (row["cpu_usage"], row["cpu_limit"]) == (28.737311188146865, 200.0)
    assert (row["memory_limit"], row["direct_memory_limit"]) == (247.5, 128.0)
    assert (row["bandwidth_in_usage"], row["bandwidth_out_limit"]) == (0.0, 1000000.0)
    assert (row["msg_rate_in"], row["msg_throughput_in"]) == (1429.864332952072, 164024.36784933176)
    assert (row["topics"], row["bundles"], row["producers"], row["consumers"]) == (25, 7, 12, 0)
    assert row["version"] == "4.0.8"
    assert set(row) <= set(tables.BROKERS.names)


def test_host_samples_follow_the_brokers_own_interval():
    assert row_of(REPORT, host_interval_s=300.0)["host_samples"] == 1.0


def test_bundles_are_all_that_have_a_loaded_topic_heartbeat_included():
    rows = {row["bundle"]: row for row in bundles_of(REPORT["lastStats"])}
    assert len(rows) == 7
    assert "pulsar/e2e/127.0.0.1:18080/0x00000000_0xffffffff" in rows
    found = rows["acme/shop/0x70000000_0x80000000"]
    assert found == {
        "broker": "b:1",
        "bundle": "acme/shop/0x70000000_0x80000000",
        "msg_rate_in": 183.20558722103982,
        "msg_rate_out": 0.0,
        "msg_throughput_in": 21236.647654072065,
        "msg_throughput_out": 0.0,
        "topics": 4,
        "producers": 2,
        "consumers": 0,
        "cache_size": 0,
        "top_rank": None,
    }
    assert sum(row["msg_rate_in"] for row in rows.values()) == pytest.approx(REPORT["msgRateIn"])


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        ("NaN", None),
        ("12", None),
        (True, None),
        ([], None),
        (-3.5, -3.5),
        (-1, -1.0),
        (0, 0.0),
        (math.inf, math.inf),
        (10**400, math.inf),
        (-(10**400), -math.inf),
    ],
    ids=lambda value: str(value)[:12],
)
def test_no_figure_is_cleaned(value, kept):
    assert row_of(spoiled("cpu", "usage", value=value))["cpu_usage"] == kept
    assert row_of(spoiled("msgRateOut", value=value))["msg_rate_out"] == kept
    stats = spoiled("lastStats", "acme/shop/0x70000000_0x80000000", "msgRateIn", value=value)["lastStats"]
    assert bundles_of(stats)[0]["msg_rate_in"] == kept


def test_nan_stays_nan():
    assert math.isnan(row_of(json.loads('{"cpu": {"usage": NaN, "limit": 100}}'))["cpu_usage"])


@pytest.mark.parametrize("broken", [None, [], "cpu", 3, {}])
def test_a_resource_of_another_shape_has_no_figures(broken):
    row = row_of(spoiled("cpu", value=broken))
    assert (row["cpu_usage"], row["cpu_limit"]) == (None, None)


def test_a_bundle_of_another_shape_keeps_its_row():
    (row,) = bundles_of({"a/b/0x00000000_0xffffffff": "gone"})
    assert row == dict.fromkeys(row) | {"broker": "b:1", "bundle": "a/b/0x00000000_0xffffffff"}


@pytest.mark.parametrize("field", sorted(REPORT))
def test_any_field_may_be_missing_and_unknown_ones_may_be_there(field):
    report = {name: value for name, value in REPORT.items() if name != field} | {"weightedMaxEMA": {"x": [1]}}
    row = row_of(report)
    assert set(row) == set(row_of(REPORT))


def test_times_beyond_the_calendar_show_in_the_age_alone():
    row = row_of(spoiled("lastUpdate", value=1e30))
    assert row["last_update"] is None
    assert row["report_age_seconds"] == pytest.approx(-1e27)
    assert row_of(spoiled("lastUpdate", value=-5))["last_update"] is None
    assert math.isnan(row_of(spoiled("startTimestamp", value=math.inf))["host_samples"])


def test_a_row_of_any_figures_fits_its_table():
    for value in (None, math.nan, math.inf, -1, 2**70, "x", 1e308, 0):
        report = dict.fromkeys(REPORT, value) | {"lastStats": {}, "cpu": {"usage": value, "limit": value}}
        assert tables.table([row_of(report)], tables.BROKERS).num_rows == 1


@pytest.mark.parametrize("odd", [2**63, -(2**63) - 1, True, 3.5, "3", None])
def test_one_odd_bundle_changes_no_other(odd):
    found = bundles_of(
        {f"a/b/{i}": {"topics": value, "msgRateIn": value} for i, value in enumerate((7, odd, 2**63 - 1))}
    )
    assert [row["topics"] for row in found] == [7, None, 2**63 - 1]
    assert [row["msg_rate_in"] for row in found] == [7.0, figure(odd), 2.0**63]


def test_whole_numbers():
    assert [count(v) for v in (3, 3.0, 3.5, -2, 2**63, 1e300, True, "3", None)] == [
        3,
        3,
        None,
        -2,
        None,
        None,
        None,
        None,
        None,
    ]
    assert figure(2**62) == 2.0**62


def test_names_of_a_broker():
    def names(report):
        return read_report("b:1", {"lastStats": {}} | report, collected_at=NOW, host_interval_s=60.0).names

    assert names(REPORT) == ("127.0.0.1:18080",)
    assert names({"brokerId": "a:8080", "webServiceUrlTls": "https://a:8443", "webServiceUrl": None}) == (
        "a:8080",
        "a:8443",
    )
    assert names({"brokerId": "", "webServiceUrl": 4}) == ()
