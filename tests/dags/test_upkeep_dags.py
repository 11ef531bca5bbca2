from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import CronTriggerTimetable
from airflow.serialization.serialized_objects import DagSerialization

from pulsar_rebalancer_airflow.dag_factory import build_dags
from pulsar_rebalancer_airflow.dag_factory.dags import daily_schedule
from pulsar_rebalancer_airflow.state_store import state_asset

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import DAG


@pytest.fixture
def dags(tmp_path: Path) -> dict[str, DAG]:
    file = tmp_path / "clusters.yaml"
    file.write_text("clusters: {east: {history_days: 0}, west: {}, broken: {no_such_key: 1}}")
    return build_dags(file)


def test_upkeep_runs_once_a_day_and_not_for_the_past(dags: dict[str, DAG]) -> None:
    dag = dags["pulsar_maintenance__east"]

    assert isinstance(dag.timetable, CronTriggerTimetable)
    assert dag.timetable.expression == daily_schedule("east")
    assert (dag.catchup, dag.max_active_runs) == (False, 1)
    assert dag.allowed_run_types == {"scheduled", "manual"}
    assert "pulsar_maintenance__broken" not in dags


def test_the_minute_is_fixed_by_the_name_and_spread_over_four_hours() -> None:
    schedules = [daily_schedule(f"cluster-{number}") for number in range(200)]

    assert schedules == [daily_schedule(f"cluster-{number}") for number in range(200)]
    minutes = [int(hour) * 60 + int(minute) for minute, hour in (s.split()[:2] for s in schedules)]
    assert all(re.fullmatch(r"[1-5]?\d [1-4] \* \* \*", schedule) for schedule in schedules)
    assert len({minute // 30 for minute in minutes}) == 8


def test_the_form_is_careful_unless_told_otherwise(dags: dict[str, DAG]) -> None:
    assert dags["pulsar_maintenance__east"].params["dry_run"] is True
    assert dags["pulsar_control__east"].params["action"] == "show"
    assert dags["pulsar_control__east"].schedule is None


def test_both_are_there_when_new_dags_are_paused(dags: dict[str, DAG]) -> None:
    assert dags["pulsar_maintenance__east"].is_paused_upon_creation is False
    assert dags["pulsar_control__east"].is_paused_upon_creation is False


def test_upkeep_reads_the_state_as_an_inlet(dags: dict[str, DAG]) -> None:
    dag = DagSerialization.from_dict(DagSerialization.to_dict(dags["pulsar_maintenance__east"]))

    (task,) = dag.task_dict.values()
    assert [asset.name for asset in task.inlets] == [state_asset("east").name]
    assert not task.outlets


def test_the_page_shows_days(dags: dict[str, DAG]) -> None:
    page = dags["pulsar_maintenance__east"].doc_md

    assert page is not None
    assert "| `retention_days` | 14 |" in page
