import pyarrow as pa
import pytest
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.run_input import RunBundles, RunInput
from pulsar_rebalancer.decide.stays import BundleFacts, stay_reasons
from pulsar_rebalancer.run import bundle_columns
from pulsar_rebalancer.run.tables import MEANS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pulsar/system/0x0_0x1", "system_namespace"),
        ("pulsar/b:8080/0x0_0x1", "system_namespace"),
        ("sla-monitor/b:8080/0x0_0x1", "system_namespace"),
        # Three-part names are no longer parsed by Pulsar 4.2 and 5.0.
        ("sla-monitor/x/b:8080/0x0_0x1", None),
        ("pulsar/b/0x0_0x1", None),
        ("pulsar/b:8080x/0x0_0x1", None),
        ("mypulsar/b:8080/0x0_0x1", None),
        ("t/kept/0x0_0x1", "namespace_excluded"),
        ("t/kept/0x1_0x2", "namespace_excluded"),
        ("t/n/0x1_0x2", "bundle_excluded"),
        ("tenant/cluster/old/0x0_0x1", "bundle_excluded"),
        ("t/n/0x2_0x3", "bundle_quarantined"),
        ("t/n/0x0_0x1", None),
    ],
)
def test_the_first_reason_that_applies_is_given(name, expected):
    settings = Settings(excluded_namespaces=("t/kept",), excluded_bundles=("t/*/0x1*", "tenant/*"))
    quarantined = ("pulsar/system/0x0_0x1", "t/kept/0x0_0x1", "t/n/0x2_0x3")
    facts = BundleFacts(settings, {}, quarantined=quarantined)
    assert stay_reasons(pa.array([name]), facts).to_pylist() == [expected]


def test_bundles_are_those_of_the_rows_and_means_are_waited_for_last(tmp_path):
    content, asked = runs.tables("east", 4, 5), []
    other = runs.tables("west", 4, 5)["bundles"]
    content["bundles"] = pa.concat_tables([other, content["bundles"]])
    run = RunInput.read(runs.make(tmp_path, content).uri)
    rows = content["bundles"].slice(other.num_rows).to_pylist()
    run.new_means_file.write_table(pa.Table.from_pylist(bundle_columns.update_means(rows, []), schema=MEANS))

    def waited():
        asked.append(run.new_means_file)
        return run.new_means_file

    names = [broker.broker for broker in run.brokers]
    for announced in (None, names[1:3]):
        bundles = RunBundles(run, waited)
        if announced:
            bundles.announce_brokers(announced)
        assert sum(held.total() for held in bundles.bundle_counts().values()) == len(rows)
        assert not asked
        for name in announced or names:
            expected = sorted(row["bundle"] for row in rows if row["broker"] == name)
            assert [bundle.bundle for bundle in bundles.of_broker(name)] == expected
            assert all(bundle.msg_rate == bundle.present_msg_rate for bundle in bundles.of_broker(name))
        if announced:
            assert bundles.of_broker(names[0]) == []
        assert len(asked) == 1
        asked.clear()
