"""Reasons that are set before a strategy looks are those of the specification."""

from __future__ import annotations

import pyarrow as pa

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.candidates import preset_reason
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BUNDLES
from pulsar_rebalancer_spark import source_bundles

NAMESPACES = (
    *("pulsar/system", "pulsar/b:8080", "sla-monitor/b:8080", "sla-monitor/x/b:8080", "pulsar/b", "t/kept", "t/n"),
    *("pulsar/b:8080x", "mypulsar/b:8080", "tenant/cluster/old"),
)


def test_every_bundle_gets_the_reason_of_the_specification():
    rows = [
        {"cluster": "c", "broker": "b", "bundle": f"{namespace}/0x{n}_0x{n + 1}", "policy": policy}
        for namespace in NAMESPACES
        for n, policy in enumerate([None, "isolation", None])
    ]
    held, found = pa.Table.from_pylist(rows, schema=BUNDLES), set()
    for excluded, patterns, name, reason in (
        (("t/kept",), (), "t/n/0x2_0x3", Reason.RECENTLY_UNLOADED),
        ((), ("t/n/0x1*", "tenant/*"), "t/n/0x0_0x1", Reason.BUNDLE_QUARANTINED),
    ):
        rules = Settings(excluded_namespaces=excluded, excluded_bundles=patterns)
        judged = source_bundles.with_reason(held, rules, {name: reason}, {("b", "t/n"): Reason.POLICY_FORBIDS})
        for row in judged.to_pylist():
            preset = preset_reason(row["bundle"], excluded, {name: reason}, patterns)
            under = row["policy"] and row["bundle"].startswith("t/n/")
            assert row["reason"] == (preset or (Reason.POLICY_FORBIDS if under else None))
            found.add(row["reason"])
    assert found >= {"namespace_excluded", "bundle_excluded", "recently_unloaded"}
