"""The bundles of a snapshot: which must stay, and what is read of them."""

from __future__ import annotations

import pyarrow as pa
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.candidates import preset_reason
from pulsar_rebalancer.decide.run_bundles import RunBundles, with_reason
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BUNDLES, MEANS
from pulsar_rebalancer.strategies import means

NAMESPACES = (
    *("pulsar/system", "pulsar/b:8080", "sla-monitor/b:8080", "sla-monitor/x/b:8080", "pulsar/b", "t/kept", "t/n"),
    *("pulsar/b:8080x", "mypulsar/b:8080", "tenant/cluster/old"),
)


def test_every_bundle_gets_the_reason_that_one_by_one_it_gets():
    rows = [
        {"cluster": "c", "broker": "b", "bundle": f"{namespace}/0x{n}_0x{n + 1}"}
        for namespace in NAMESPACES
        for n in range(3)
    ]
    held, found = pa.Table.from_pylist(rows, schema=BUNDLES), set()
    for excluded, patterns, name, reason in (
        (("t/kept",), (), "t/n/0x2_0x3", Reason.RECENTLY_UNLOADED),
        ((), ("t/n/0x1*", "tenant/*"), "t/n/0x0_0x1", Reason.BUNDLE_QUARANTINED),
    ):
        rules = Settings(excluded_namespaces=excluded, excluded_bundles=patterns)
        judged = with_reason(held, rules, {name: reason})
        for row in judged.to_pylist():
            assert row["reason"] == preset_reason(row["bundle"], excluded, {name: reason}, patterns)
            found.add(row["reason"])
    assert found >= {"namespace_excluded", "bundle_excluded", "recently_unloaded"}


def test_bundles_are_those_of_the_rows_and_means_are_waited_for_last(tmp_path):
    content, asked = runs.tables("east", 4, 5), []
    other = runs.tables("west", 4, 5)["bundles"]
    content["bundles"] = pa.concat_tables([other, content["bundles"]])
    run = RunInput.read(str(tmp_path), runs.make(tmp_path, content).uri)
    rows = content["bundles"].slice(other.num_rows).to_pylist()
    run.new_means.write_table(pa.Table.from_pylist(means.update(rows, []), schema=MEANS))

    def waited():
        asked.append(run.new_means)
        return run.new_means

    names = [broker.broker for broker in run.brokers]
    for announced in (None, names[1:3]):
        bundles = RunBundles(run, waited)
        if announced:
            bundles.announce(announced)
        assert sum(bundles.served().values()) == len(rows)
        assert not asked
        for name in announced or names:
            expected = sorted(row["bundle"] for row in rows if row["broker"] == name)
            assert [bundle.bundle for bundle in bundles.of(name)] == expected
            assert all(bundle.msg_rate == bundle.present_msg_rate for bundle in bundles.of(name))
        if announced:
            assert bundles.of(names[0]) == []
        assert len(asked) == 1
        asked.clear()
