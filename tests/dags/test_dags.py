import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer_airflow import example_dags
from pulsar_rebalancer_airflow.dag_factory import build_dags
from pulsar_rebalancer_airflow.state_store import moves_alias, state_asset

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
    bag = DagBag(dag_folder=example_dags.__file__)

    assert bag.import_errors == {}
    names = ("balance_after_deployment", "act_on_moves", "own_operator")
    assert set(bag.dags) == {f"example_pulsar_{name}" for name in names}


def test_the_tasks_of_a_run_follow_one_another(dags: dict[str, DAG]) -> None:
    dag = dags["pulsar_rebalance__east"]

    order = ["collect", "validate", "decide", "record", "gate", "split", "unload", "report"]
    assert [task.task_id for task in dag.topological_sort()] == order
    for before, after in pairwise(order):
        assert after in dag.task_dict[before].downstream_task_ids


def test_report_does_not_decide_how_a_run_ended(dags: dict[str, DAG]) -> None:
    report = dags["pulsar_rebalance__east"].task_dict["report"]

    assert report.is_teardown
    assert not report.on_failure_fail_dagrun


def test_state_is_an_inlet_and_never_an_outlet(dags: dict[str, DAG]) -> None:
    tasks = {**dags["pulsar_rebalance__east"].task_dict, **dags["pulsar_control__east"].task_dict}
    touching = {task_id for task_id, task in tasks.items() if state_asset("east") in task.inlets}

    assert touching == {"collect", "record", "gate", "split", "unload", "report", "order", "control"}
    assert {name: task.outlets for name, task in tasks.items() if task.outlets} == {"report": [moves_alias("east")]}


def test_dags_run_one_at_a_time_without_catchup(dags: dict[str, DAG]) -> None:
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


def test_a_task_process_builds_the_dags_of_its_cluster_only(clusters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "pulsar_by_hand__west")

    assert {dag_id.rpartition("__")[2] for dag_id in build_dags()} == {"west"}


def test_parsing_loads_nothing_heavy(clusters: Path) -> None:
    ask = "import sys, json; from pulsar_rebalancer_airflow.dag_factory import build_dags; build_dags()\n"
    ask += "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    paths = os.pathsep.join(str(SOURCE / part) for part in ("include", "plugins", "spark_apps"))
    done = subprocess.run(
        [sys.executable, "-c", ask], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "airflow" in loaded
    heavy = {"pyspark", "great_expectations", "pandas", "kubernetes", "kubernetes_asyncio"}
    assert not loaded & (heavy | {"pulsar_rebalancer_spark"})


@pytest.mark.system
def test_parsing_takes_little_more_than_importing_airflow(clusters: Path, tmp_path: Path) -> None:
    """CPU seconds: a task parses the DAG file in a fork of a process that has Airflow and its plugins, frozen."""
    ask = "import gc, time; from airflow.sdk import DAG; from airflow.dag_processing.dagbag import DagBag\n"
    ask += "from airflow.plugins_manager import ensure_plugins_loaded; airflow = time.process_time()\n"
    ask += "ensure_plugins_loaded(); gc.freeze(); forked = time.process_time(); DagBag({folder!r})\n"
    ask += "parsed = time.process_time(); print(parsed / forked, parsed / airflow)"
    command = [sys.executable, "-c", ask.format(folder=str(SOURCE / "dags"))]
    done = [subprocess.check_output(command, text=True).splitlines()[-1].split() for _ in range(3)]
    ratios, with_plugin = zip(*(map(float, each) for each in done), strict=True)
    assert min(ratios) < 1.2
    # NumPy, pyarrow and the settings' models take about 0.3; pandas or Spark would take as much again.
    assert min(with_plugin) < 1.45
