"""Whatever brokers and people call things: no path, no command, no markup and no log line is made of a name."""

import asyncio
from datetime import date

import pytest
import yaml
from pydantic import SecretStr
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER
from tests.hostile_names import BUNDLES, NAMES

from pulsar_rebalancer.config.clusters_file import ClusterEntry, load_clusters
from pulsar_rebalancer.config.settings import validate
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import CLUSTER_NAME, is_broker_id
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.run.compaction import days_before
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer_airflow.dag_factory import build_dags
from pulsar_rebalancer_airflow.operators import CollectOperator, ReportOperator, ValidateOperator
from pulsar_rebalancer_airflow.suites import validation_page


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_no_broker_and_no_address(served, name):
    """Neither in the list of brokers, nor as the broker to ask or to move to."""
    assert not is_broker_id(name)
    assert not is_broker_id(f"{name}:8080") or name == ".."  # a host that nobody has, and no path
    bundle = next(iter(served.cluster.load_report(served.cluster.active_brokers()[0])["lastStats"]))

    async def ask() -> tuple[object, ...]:
        connection = AdminConnection(seeds=tuple(served.urls), token=SecretStr(served.token))
        async with PulsarAdmin(connection) as admin:
            before = served.cluster.owner(bundle)
            calls = (
                admin.load_report(name),
                admin.runtime_configuration(f"{name}:1"),
                admin.bundles.unload(bundle, name),
            )
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert served.cluster.owner(bundle) == before
            return found

    for refused in asyncio.run(ask()):
        assert isinstance(refused, AdminError), refused
        assert str(refused).isprintable()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_the_clusters_file_becomes_no_path(tmp_path, name):
    file = tmp_path / "clusters.yaml"
    file.write_text(yaml.safe_dump({"clusters": {name: {}}}))

    (entry,) = load_clusters(file)

    assert "is not a cluster name" in entry.error
    assert {"/", ".", "\\", "$", "<", "\n"}.isdisjoint(entry.name)
    (dag,) = build_dags(file).values()
    assert set(dag.task_ids) == {"refuse"}
    assert CLUSTER_NAME.fullmatch(CLUSTER)
    assert not CLUSTER_NAME.fullmatch(name)


def test_a_run_takes_no_name_at_its_word(served, storage, state, tmp_path, monkeypatch, capfd):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    broker = served.cluster.active_brokers()[0]
    for bundle in BUNDLES:
        served.cluster.faults.add("odd_bundle", broker, target=bundle)
    served.cluster.faults.add("other_configuration", values={"clusterName": NAMES[0]})
    entry = ClusterEntry(name=CLUSTER, given={}, settings=validate({"connection": "pulsar_test"}, label="test"))
    given = context(CLUSTER, state, user=NAMES[12])
    given["dag_run"].run_id = "".join(NAMES)

    uri = CollectOperator(task_id="collect", entry=entry, root=storage.root).execute(given)
    ValidateOperator(task_id="validate", cluster=CLUSTER, run=uri).execute(given)
    ReportOperator(task_id="report", cluster=CLUSTER, run=uri, gate="gate").execute(given)

    (day,) = storage.runs.entry_names()
    (name,) = (storage.runs / day).entry_names()
    written = storage.runs / day / name
    assert written.uri == uri
    assert RunRequest.read(written).airflow_run_id == "".join(NAMES)
    assert {name for name in Validation.read(written).quarantine_reasons if name in BUNDLES}
    assert {found.name for found in tmp_path.iterdir()} == {CLUSTER, "work"}
    assert not any(work.iterdir())
    assert not [found for found in tmp_path.rglob("*") if "owned" in found.name]
    (seen,) = days_before(storage, date(2100, 1, 1))
    assert [found.foreign_names for found in seen.runs] == [()]

    page = validation_page(written).read_bytes().decode()
    assert "&lt;script&gt;alert" in page
    assert "<script" not in page
    lines = "".join(capfd.readouterr()).splitlines()
    assert any("bad_value" in line for line in lines)
    assert not [line for line in lines if line.startswith(("INJECTED", "X-Header")) or "\x1b" in line]
