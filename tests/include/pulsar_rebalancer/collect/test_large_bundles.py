import pytest

from pulsar_rebalancer.collect.split_candidates import large_bundles
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.tables import BUNDLES, MEANS, table

MIB = 1048576


def row(bundle="a/b/1", **values):
    return {"cluster": "c", "broker": "b:1", "bundle": bundle, "topics": 2} | values


@pytest.mark.parametrize(
    ("values", "before", "chosen"),
    [
        ({}, {}, False),
        ({"topics": 1000}, {}, False),
        ({"topics": 1001}, {}, True),
        ({"producers": 600, "consumers": 401}, {}, True),
        ({"producers": 1001}, {}, True),  # no consumers reported
        ({"topics": 5, "producers": 2**62, "consumers": 2**62}, {}, False),  # validation leaves it out
        ({"topics": 5, "producers": -(2**63), "consumers": -1}, {}, False),
        ({"topics": 2**63 - 1}, {}, False),
        ({"msg_rate_in": 20000.0, "msg_rate_out": 10000.0}, {}, False),
        ({"msg_rate_in": 20000.0, "msg_rate_out": 10001.0}, {}, True),
        ({"msg_rate_in": 30001.0, "topics": 1}, {}, False),  # nothing to part
        ({"msg_rate_in": 30001.0, "topics": None}, {}, False),
        ({"msg_throughput_in": 100.0 * MIB + 1}, {}, True),
        # quiet at this moment, but a mean may still be above: the one before was
        ({"msg_rate_in": 1.0}, {"long_term_msg_rate": 30001.0}, True),
        ({"msg_rate_in": 1.0}, {"long_term_msg_throughput": 100.0 * MIB + 1}, True),
        ({"msg_rate_in": 1.0}, {"long_term_msg_rate": 30000.0}, False),
    ],
)
def test_a_bundle_is_looked_at_if_its_figure_or_its_mean_exceeds_a_bound(values, before, chosen):
    means = table([{"cluster": "c", "bundle": "a/b/1"} | before], MEANS)
    found = large_bundles(table([row(**values)], BUNDLES), means, Settings())
    assert [each.bundle for each in found] == ["a/b/1"] * chosen


def test_bundles_furthest_above_a_bound_are_read_once(caplog):
    many = [row(f"a/b/{n:02}", topics=2000 + n, msg_rate_in=30000.0 - n) for n in range(25)]
    twice = row("a/b/24", topics=2000, broker="b:2")
    excluded = row("a/kept/1", topics=2000, msg_rate_in=99.0)
    settings = Settings(excluded_namespaces="a/kept")
    found = large_bundles(table([*many, twice, excluded], BUNDLES), None, settings)
    assert [each.bundle for each in found] == [f"a/b/{n:02}" for n in range(24, 4, -1)]
    assert found[0].broker == "b:1"
    assert "25 bundles may have to be split; this run examines only 20" in caplog.text
