from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.clusters import ClusterEntry
from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer.run import Validation
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer_airflow.operators import CollectOperator, ValidateOperator
from pulsar_rebalancer_airflow.validation_page import page_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.simulation.serve import Running
    from pulsar_rebalancer.storage import ClusterStorage


def collected(storage: ClusterStorage, state: MemoryState) -> Folder:
    given = {"connection": "pulsar_test"}
    entry = ClusterEntry(name=CLUSTER, given=given, settings=Settings.model_validate(given))
    operator = CollectOperator(task_id="collect", entry=entry, root=storage.root)
    return Folder(operator.execute(context(CLUSTER, state)))


def validate(run: Folder, state: MemoryState) -> tuple[dict[str, dict[str, int]] | None, Any, str]:
    given: Any = context(CLUSTER, state)
    try:
        return ValidateOperator(task_id="validate", cluster=CLUSTER, run=run.uri).execute(given), given["ti"].pushed, ""
    except AirflowFailException as error:
        return None, given["ti"].pushed, str(error)


def test_says_what_was_found_about_whom_and_where_the_rest_lies(
    served: Running, storage: ClusterStorage, state: MemoryState, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = served.cluster.active_brokers()[1]
    served.cluster.faults.add("dead", broker)
    run = collected(storage, state)

    counts, pushed, _ = validate(run, state)
    said = "".join(capfd.readouterr())

    assert counts == {"quarantine": {"report_missing": 1}}
    assert set(Validation.read(run).quarantined) == {broker}
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
    assert f"Cluster {CLUSTER}: The brokers or bundles named are left out." in said
    assert f"quarantine: report_missing x1 ({broker} error unreachable)" in said
    assert f"The full result: {run.uri}/validation.json" in said


def test_a_block_ends_the_run_and_says_why(served: Running, storage: ClusterStorage, state: MemoryState) -> None:
    for broker in served.cluster.active_brokers()[1:]:
        served.cluster.faults.add("error_500", broker)
    run = collected(storage, state)

    counts, pushed, said = validate(run, state)

    assert counts is None
    assert pushed["findings"]["effect"] == Effect.BLOCK.value
    assert "nothing was decided" in said
    assert f"{run.uri}/validation.json" in said
    assert len(said.splitlines()) <= 12


def test_a_healthy_cluster_leaves_no_findings(served: Running, storage: ClusterStorage, state: MemoryState) -> None:
    counts, pushed, _ = validate(collected(storage, state), state)

    assert counts == {}
    assert "findings" not in pushed


def test_the_link_leads_to_the_page_once_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/flow/")
    operator = ValidateOperator(task_id="validate", cluster=CLUSTER, run=str(tmp_path / "20261121T120000Z"))
    key: Any = SimpleNamespace(dag_id="pulsar_rebalance__east", run_id="manual__2026-11-21T12:00:00+00:00")

    (link,) = operator.operator_extra_links
    assert link.get_link(operator, ti_key=key) == ""
    page_of(Folder(operator.run)).write_bytes(b"<html>")

    assert link.get_link(operator, ti_key=key) == (
        "/flow/pulsar_rebalancer/dags/pulsar_rebalance__east/runs/manual__2026-11-21T12%3A00%3A00%2B00%3A00"
        "/validation/20261121T120000Z"
    )
