from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.collection import _get_dag_assets
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import BaseOperator, CronTriggerTimetable, DeltaTriggerTimetable
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.definitions.assets import SerializedAsset
from airflow.serialization.serialized_objects import LazyDeserializedDAG

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer_airflow import example_dags
from pulsar_rebalancer_airflow.dag_factory import build_dags
from pulsar_rebalancer_airflow.state_store import moves_alias, state_asset

if TYPE_CHECKING:
    from airflow.sdk import DAG

SOURCE = Path(__file__).parents[2]

CLUSTERS = """
defaults: {mode: auto}
clusters:
  east:
  west: {interval_seconds: 90, mode: observe, loadBalancerAvgShedderLowThreshold: 20, spark_connection: spark_west}
  north: {low_treshold: 3}
  "we st": {}
  we_st: {low_threshold: 50, high_threshold: 40}
  south: {strategy: "elsewhere:shed"}
"""


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "clusters.yaml"
    file.write_text(CLUSTERS)
    monkeypatch.setenv("AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE", str(file))
    monkeypatch.setenv("AIRFLOW__PULSAR_REBALANCER__STORAGE_ROOT", str(tmp_path / "runs"))
    return file


@pytest.fixture
def dags(clusters: Path) -> dict[str, DAG]:
    return build_dags()


def test_the_dag_folder_has_the_dags_of_every_cluster(clusters: Path) -> None:
    bag = DagBag(dag_folder=str(SOURCE / "dags"))

    assert bag.import_errors == {}
    assert set(bag.dags) == {
        "pulsar_rebalance__east",
        "pulsar_by_hand__east",
        "pulsar_apply__east",
        "pulsar_control__east",
        "pulsar_maintenance__east",
        "pulsar_replay__east",
        "pulsar_roll__east",
        "pulsar_rebalance__west",
        "pulsar_by_hand__west",
        "pulsar_apply__west",
        "pulsar_control__west",
        "pulsar_maintenance__west",
        "pulsar_replay__west",
        "pulsar_roll__west",
        "pulsar_rebalance__north",
        "pulsar_rebalance__we_st",
        "pulsar_rebalance__we_st__broken_1",
        "pulsar_rebalance__south",
    }


def test_examples_are_parsed_without_a_cluster() -> None:
    folder = Path(example_dags.__path__[0])
    bag = DagBag(dag_folder=str(folder))

    assert bag.import_errors == {}
    assert set(bag.dags) == {path.stem for path in folder.glob("example_*.py")}


def test_the_tasks_of_a_run_follow_one_another(dags: dict[str, DAG]) -> None:
    dag = dags["pulsar_rebalance__east"]

    order = ["collect", "validate", "decide", "record", "gate", "split", "unload", "report"]
    assert [task.task_id for task in dag.topological_sort()] == order
    for before, after in pairwise(order):
        assert after in dag.task_dict[before].downstream_task_ids


def test_people_are_asked_in_mode_approve_only(clusters: Path) -> None:
    clusters.write_text("clusters: {east: {mode: approve}, west: {mode: auto}}")

    dags = build_dags()

    asks = dags["pulsar_rebalance__east"].task_dict
    for before, after in pairwise(["gate", "questions", "ask", "report"]):
        assert after in asks[before].downstream_task_ids
    apply: Any = dags["pulsar_apply__east"]
    assert [task.task_id for task in apply.topological_sort()] == ["approve", "carry_out"]
    assert apply.task_dict["approve"].defaults == ["Reject"]
    assert apply.disable_bundle_versioning, "a run pinned to a version would keep its question when the mode changes"
    assert not {"questions", "ask"} & dags["pulsar_rebalance__west"].task_dict.keys()
    assert list(dags["pulsar_apply__west"].task_dict) == ["nobody_is_asked"]


def test_report_does_not_decide_how_a_run_ended(dags: dict[str, DAG]) -> None:
    report = dags["pulsar_rebalance__east"].task_dict["report"]

    assert report.is_teardown
    assert not report.on_failure_fail_dagrun


def test_waves_go_one_after_the_other(dags: dict[str, DAG]) -> None:
    unload = dags["pulsar_rebalance__east"].task_dict["unload"]

    assert isinstance(unload, MappedOperator)
    assert unload.max_active_tis_per_dagrun == 1


def test_state_is_an_inlet_and_never_an_outlet(dags: dict[str, DAG]) -> None:
    tasks = {**dags["pulsar_rebalance__east"].task_dict, **dags["pulsar_control__east"].task_dict}
    touching = {task_id for task_id, task in tasks.items() if state_asset("east") in task.inlets}

    assert touching == {"collect", "record", "gate", "split", "unload", "report", "order", "control"}
    assert {task_id: task.outlets for task_id, task in tasks.items() if task.outlets} == {
        "report": [moves_alias("east")]
    }


def test_serialized_dags_know_the_inlets(dags: dict[str, DAG]) -> None:
    """The scheduler keeps an asset's state as long as a serialized task refers to it."""
    dag = LazyDeserializedDAG.from_dag(dags["pulsar_rebalance__east"])

    referring = {
        task_id
        for task_id, asset in _get_dag_assets(dag, SerializedAsset, inlets=True, outlets=False)
        if asset.name == state_asset("east").name
    }

    assert referring == {"collect", "record", "gate", "split", "unload", "report"}


def test_the_schedule_is_the_interval(dags: dict[str, DAG]) -> None:
    east, west = dags["pulsar_rebalance__east"].timetable, dags["pulsar_rebalance__west"].timetable

    assert isinstance(east, CronTriggerTimetable)
    assert east.expression == "* * * * *"
    assert isinstance(west, DeltaTriggerTimetable)
    assert west.delta == timedelta(seconds=90)
    assert all(dags[f"pulsar_control__{name}"].schedule is None for name in ("east", "west"))


def test_one_run_at_a_time_and_no_past(dags: dict[str, DAG]) -> None:
    several = {"pulsar_by_hand": 16, "pulsar_apply": 8, "pulsar_control": 16, "pulsar_roll": 16}
    types = {"rebalance": {"scheduled", "manual", "operator_triggered"}, "apply": {"manual", "operator_triggered"}}
    by_tasks = {f"pulsar_{kind}__{name}": allowed for kind, allowed in types.items() for name in ("east", "west")}
    for dag in dags.values():
        assert dag.max_active_runs == several.get(dag.dag_id.partition("__")[0], 1)
        assert not dag.catchup
        assert dag.allowed_run_types == by_tasks.get(dag.dag_id, {"scheduled", "manual"})
    assert dags["pulsar_rebalance__east"].dagrun_timeout is not None


def test_by_hand_a_release_waits_for_no_plan_and_nothing_lasts_for_ever(dags: dict[str, DAG]) -> None:
    dag = dags["pulsar_by_hand__east"]

    assert dag.max_active_runs > 1
    # Each of these writes its documents of the state store alone.
    assert {name: task.max_active_tis_per_dag for name, task in dag.task_dict.items()} == {
        "form": None,
        "collect": None,
        "validate": None,
        "plan": 1,
        "carry_out": 1,
    }
    assert dag.dagrun_timeout is not None
    assert all(task.execution_timeout is not None for task in dag.tasks)


def test_settings_reach_the_tasks(dags: dict[str, DAG]) -> None:
    tasks: dict[str, Any] = dags["pulsar_rebalance__west"].task_dict

    assert tasks["decide"]._conn_id == "spark_west"
    assert tasks["collect"].entry.settings.low_threshold == 20
    assert tasks["collect"].storage.root == os.environ["AIRFLOW__PULSAR_REBALANCER__STORAGE_ROOT"]


def test_the_page_tells_mode_and_thresholds(dags: dict[str, DAG]) -> None:
    page = dags["pulsar_rebalance__west"].doc_md

    assert page is not None
    assert "| `mode` | observe |" in page
    assert "| low threshold | 20 points, 8 hits |" in page
    assert "**Backfills are refused**" in page


def test_every_page_names_a_document(dags: dict[str, DAG]) -> None:
    pages = [dag.doc_md or "" for dag_id, dag in dags.items() if dag_id.endswith("__east")]

    assert len(pages) >= 5
    assert all((SOURCE / page.partition("More: `")[2].partition("`")[0]).is_file() for page in pages)


@pytest.mark.parametrize(
    ("dag_id", "named"),
    [
        ("pulsar_rebalance__north", "low_treshold"),
        ("pulsar_rebalance__south", "strategy elsewhere:shed is not listed in the option strategies"),
        ("pulsar_rebalance__we_st", "we st"),
        ("pulsar_rebalance__we_st__broken_1", "low_threshold 50 is above high_threshold 40"),
    ],
)
def test_a_broken_entry_says_so_on_its_page_and_when_it_runs(dags: dict[str, DAG], dag_id: str, named: str) -> None:
    dag = dags[dag_id]

    assert dag.doc_md is not None
    assert named.replace("`", "'") in dag.doc_md
    (task,) = dag.tasks
    assert isinstance(task, BaseOperator)
    with pytest.raises(AirflowFailException, match=named):
        task.execute({})


def test_a_broken_name_does_not_take_a_live_clusters_place(tmp_path: Path) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text('clusters: {"a b": {}, a_b: {}}')

    dags = build_dags(file)

    assert "collect" in dags["pulsar_rebalance__a_b"].task_dict
    assert "refuse" in dags["pulsar_rebalance__a_b__broken_1"].task_dict


def test_a_file_that_cannot_be_read_is_an_import_error(clusters: Path) -> None:
    clusters.write_text("clusters: [")

    bag = DagBag(dag_folder=str(SOURCE / "dags"))

    assert "cannot be read" in next(iter(bag.import_errors.values()))
    with pytest.raises(SettingsError):
        build_dags()


def test_parsing_loads_nothing_heavy(clusters: Path) -> None:
    ask = "import sys, json; from pulsar_rebalancer_airflow.dag_factory import build_dags; build_dags()\n"
    ask += "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    paths = os.pathsep.join(str(SOURCE / part) for part in ("include", "plugins", "spark_apps"))
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "airflow" in loaded
    assert not loaded & {"pyspark", "great_expectations", "pandas", "pulsar_rebalancer_spark"}
