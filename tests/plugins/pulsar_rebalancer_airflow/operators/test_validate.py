import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import CollectOperator, ValidateOperator
from pulsar_rebalancer_airflow.suites import validation_page


def collected(storage: ClusterStorage, state: MemoryState) -> StoragePath:
    given = {"connection": "pulsar_test"}
    entry = ClusterEntry(name=CLUSTER, given=given, settings=Settings.model_validate(given))
    operator = CollectOperator(task_id="collect", entry=entry, root=storage.root)
    return StoragePath(operator.execute(context(CLUSTER, state)))


def validate(run: StoragePath, state: MemoryState) -> tuple[dict[str, dict[str, int]] | None, Any, str]:
    given: Any = context(CLUSTER, state)
    try:
        return ValidateOperator(task_id="validate", cluster=CLUSTER, run=run.uri).execute(given), given["ti"].pushed, ""
    except AirflowFailException as error:
        return None, given["ti"].pushed, str(error)


def test_says_what_was_found_about_whom_and_where_the_rest_lies(served, storage, state, capfd, monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/flow/")
    broker = served.cluster.active_brokers()[1]
    served.cluster.faults.add("dead", broker)
    run = collected(storage, state)

    counts, pushed, _ = validate(run, state)
    said = "".join(capfd.readouterr())

    assert counts == {"quarantine": {"report_missing": 1}}
    assert set(Validation.read(run).quarantine_reasons) == {broker}
    (reason,) = pushed["findings"].pop("reasons")
    assert pushed["findings"] == {
        "cluster": CLUSTER,
        "effect": "quarantine",
        "more": 0,
        "result": f"{run.uri}/validation.json",
        "page": f"{run.uri}/validation/index.html",
    }
    assert (reason["reason"], reason["count"]) == ("report_missing", 1)
    assert reason["worst"] == [f"{broker} error unreachable"]
    assert "unreachable: Check that the broker runs" in reason["action"]
    assert f"Cluster {CLUSTER}: The brokers or bundles in these findings are left out." in said
    assert f"quarantine: report_missing x1 ({broker} error unreachable)" in said
    assert f"Full result: {run.uri}/validation.json" in said
    page = f"https://airflow.example/flow/pulsar_rebalancer/dags/pulsar_rebalance__{CLUSTER}/runs/manual__1/validation"
    assert f"; page: {page}/{run.name}" in said


def test_the_log_has_nothing_of_great_expectations(served, storage, state):
    run = collected(storage, state)

    # A process of its own, as on a worker: Great Expectations says most while it is loaded.
    said = subprocess.run([sys.executable, "-c", _LOGGED, CLUSTER, run.uri], capture_output=True, text=True, check=True)

    assert [line for line in said.stdout.splitlines() if "great_expectations" in line] == []


_LOGGED = """
import logging, sys
from tests.airflow_context import MemoryState, context
logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s", stream=sys.stdout, force=True)
from pulsar_rebalancer_airflow.operators import ValidateOperator
cluster, run = sys.argv[1:]
ValidateOperator(task_id="validate", cluster=cluster, run=run).execute(context(cluster, MemoryState()))
"""


def test_a_block_ends_the_run_and_says_why(served, storage, state):
    for broker in served.cluster.active_brokers()[1:]:
        served.cluster.faults.add("error_500", broker)
    run = collected(storage, state)

    counts, pushed, said = validate(run, state)

    assert counts is None
    assert pushed["findings"]["effect"] == Effect.BLOCK.value
    assert "so no plan was made" in said
    assert f"{run.uri}/validation.json" in said
    assert len(said.splitlines()) <= 12


def test_the_link_leads_to_the_page_once_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/flow/")
    operator = ValidateOperator(task_id="validate", cluster=CLUSTER, run=str(tmp_path / "20261121T120000Z"))
    key: Any = SimpleNamespace(dag_id="pulsar_rebalance__east", run_id="manual__2026-11-21T12:00:00+00:00")

    (link,) = operator.operator_extra_links
    assert link.get_link(operator, ti_key=key) == ""
    validation_page(StoragePath(operator.run)).write_bytes(b"<html>")

    assert link.get_link(operator, ti_key=key) == (
        "/flow/pulsar_rebalancer/dags/pulsar_rebalance__east/runs/manual__2026-11-21T12%3A00%3A00%2B00%3A00"
        "/validation/20261121T120000Z"
    )
