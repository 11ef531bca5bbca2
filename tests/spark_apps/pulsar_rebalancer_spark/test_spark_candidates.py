"""Reasons that are set before the walk are the same in all forms."""

from __future__ import annotations

import pyarrow as pa

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BUNDLES
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.candidates import preset_reason
from pulsar_rebalancer_spark import candidates, source_bundles, tables

NAMESPACES = (
    *("pulsar/system", "pulsar/b:8080", "sla-monitor/b:8080", "sla-monitor/x/b:8080", "pulsar/b", "t/kept", "t/n"),
    *("pulsar/b:8080x", "mypulsar/b:8080", "tenant/cluster/old"),
)


def test_every_bundle_gets_the_reason_of_the_specification(spark, tmp_path):
    rows = [
        {"cluster": cluster, "broker": "b", "bundle": f"{namespace}/0x{n}_0x{n + 1}", "policy": policy}
        for cluster in ("c1", "c2")
        for namespace in NAMESPACES
        for n, policy in enumerate([None, "isolation", None])
    ]
    file = StoragePath(str(tmp_path / "bundles.parquet"))
    file.write_table(pa.Table.from_pylist(rows, schema=BUNDLES))
    excluded = {"c1": ("t/kept",), "c2": ()}
    patterns = {"c1": (), "c2": ("t/n/0x1*", "tenant/*")}
    passed_over = [
        {"cluster": "c1", "bundle": "t/n/0x2_0x3", "reason": "recently_unloaded"},
        {"cluster": "c2", "bundle": "t/n/0x0_0x1", "reason": "bundle_quarantined"},
    ]
    known = tables.literal(spark, passed_over, tables.PASSED_OVER).withColumnRenamed("reason", "stays")
    bundles = tables.read(spark, [file], BUNDLES).join(known, on=["cluster", "bundle"], how="left")
    answer = candidates.with_reason(bundles, excluded, patterns).collect()
    by_cluster = {
        name: {row["bundle"]: row["reason"] for row in passed_over if row["cluster"] == name} for name in excluded
    }
    assert {(row["cluster"], row["bundle"]): row["reason"] for row in answer} == {
        (cluster, name): preset_reason(name, excluded[cluster], by_cluster[cluster], patterns[cluster])
        for cluster, name in ((row["cluster"], row["bundle"]) for row in rows)
    }
    for cluster in excluded:
        held = pa.Table.from_pylist([row for row in rows if row["cluster"] == cluster], schema=BUNDLES)
        rules = Settings(excluded_namespaces=excluded[cluster], excluded_bundles=patterns[cluster])
        stays = {name: Reason(reason) for name, reason in by_cluster[cluster].items()}
        judged = source_bundles.with_reason(held, rules, stays, {("b", "t/n"): Reason.POLICY_FORBIDS})
        for row in judged.to_pylist():
            preset = preset_reason(row["bundle"], excluded[cluster], by_cluster[cluster], patterns[cluster])
            under = row["policy"] and row["bundle"].startswith("t/n/")
            assert row["reason"] == (preset or (Reason.POLICY_FORBIDS if under else None))
    assert {row["reason"] for row in answer} >= {"namespace_excluded", "bundle_excluded", "recently_unloaded"}
