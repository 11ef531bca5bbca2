import json
import math
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulsar_rebalancer.collect.load_report import read_report
from pulsar_rebalancer.run import tables

REPORT = json.loads((Path(__file__).parent / "data" / "load-report-4.0.8.json").read_text())
LAST_UPDATE = datetime(2026, 11, 21, 9, 15, 57, 108000, tzinfo=UTC)
NOW = LAST_UPDATE + timedelta(seconds=42.5)


def row_of(report, now=NOW, host_interval_s=60.0):
    found = read_report("b:1", {"lastStats": {}} | report, collected_at=now, host_interval_s=host_interval_s)
    return found.broker_columns


def bundles_of(stats):
    return read_report("b:1", {"lastStats": stats}, collected_at=NOW, host_interval_s=60.0).rows.to_pylist()


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


def test_a_row_of_any_figures_fits_its_table():
    for value in (None, math.nan, math.inf, -1, 2**70, "x", 1e308, 0):
        report = dict.fromkeys(REPORT, value) | {"lastStats": {}, "cpu": {"usage": value, "limit": value}}
        assert tables.table([row_of(report)], tables.BROKERS).num_rows == 1
