from __future__ import annotations

import pytest

from pulsar_rebalancer.decide.candidates import preset_reason
from pulsar_rebalancer.names import is_heartbeat
from pulsar_rebalancer.reasons import Reason


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("pulsar/broker-1:8080", True),
        ("sla-monitor/broker-1:8080", True),
        # Three-part names are no longer parsed by Pulsar 4.2 and 5.0.
        ("sla-monitor/cluster/broker-1:8080", False),
        ("pulsar/system", False),
        ("pulsar/broker-1", False),
        ("mypulsar/broker-1:8080", False),
        ("pulsar/broker-1:8080x", False),
    ],
)
def test_heartbeat_namespaces_are_those_of_pulsar(namespace, expected):
    assert is_heartbeat(f"{namespace}/0x00000000_0xffffffff") is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pulsar/system/0x0_0x1", "system_namespace"),
        ("pulsar/b:8080/0x0_0x1", "system_namespace"),
        ("t/kept/0x0_0x1", "namespace_excluded"),
        ("t/n/0x0_0x1", "recently_unloaded"),
        ("t/n/0x1_0x2", "bundle_quarantined"),
        ("t/n/0x2_0x3", None),
    ],
)
def test_the_first_reason_that_applies_is_given(name, expected):
    passed_over = {"t/n/0x0_0x1": Reason.RECENTLY_UNLOADED, "t/n/0x1_0x2": Reason.BUNDLE_QUARANTINED}
    assert preset_reason(name, {"t/kept"}, passed_over) == expected
