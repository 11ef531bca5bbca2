from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import DeltaTriggerTimetable

from pulsar_rebalancer_airflow.dag_factory import build_dags
from pulsar_rebalancer_airflow.operators import ReportOperator
from pulsar_rebalancer_airflow.state_store import state_asset

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import DAG

CLUSTERS = """
clusters:
  east: {alert_connection: pager, interval_seconds: 120}
  north: {alert_connection: pager, interval_seconds: 5, alert_after_intervals: 4}
  west: {}
  south: {alert_connection: pager, interval_seconds: 0}
"""


@pytest.fixture
def dags(tmp_path: Path) -> dict[str, DAG]:
    file = tmp_path / "clusters.yaml"
    file.write_text(CLUSTERS)
    return build_dags(file)


def test_only_a_cluster_with_alerts_is_watched(dags: dict[str, DAG]) -> None:
    assert {name for name in dags if name.startswith("pulsar_watch__")} == {"pulsar_watch__east", "pulsar_watch__north"}


@pytest.mark.parametrize(("name", "step"), [("east", timedelta(minutes=10)), ("north", timedelta(minutes=1))])
def test_it_looks_every_few_intervals(dags: dict[str, DAG], name: str, step: timedelta) -> None:
    dag = dags[f"pulsar_watch__{name}"]

    assert dag.timetable == DeltaTriggerTimetable(step)
    assert (dag.max_active_runs, dag.catchup, dag.is_paused_upon_creation) == (1, False, False)
    assert dag.task_dict["watch"].inlets == [state_asset(name)]


def test_report_knows_whom_to_tell(dags: dict[str, DAG]) -> None:
    told = {}
    for name in ("east", "west"):
        report = dags[f"pulsar_rebalance__{name}"].task_dict["report"]
        assert isinstance(report, ReportOperator)
        assert report.settings is not None
        told[name] = report.settings.alert_connection

    assert told == {"east": "pager", "west": ""}
