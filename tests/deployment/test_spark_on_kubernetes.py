"""The task decide with the manifests' Spark settings, against a simulated API of Kubernetes that runs the executors."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.airflow_context import context
from tests.deployment import kubernetes
from tests.deployment.kubernetes_api import Api, api
from tests.deployment.test_kubernetes import main
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.run import plan
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer_airflow.operators import DecideOperator
from pulsar_rebalancer_airflow.options import STORAGE_VARIABLE

pytestmark = pytest.mark.system

DRIVER = "airflow-scheduler-0"


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Summary, list[int]]]:
    """The API, the plan, and how the executors ended."""
    folder, root = tmp_path_factory.mktemp("kubernetes"), tmp_path_factory.mktemp("storage")
    run = runs.make(root, runs.tables("east", 6, 20), hit_count_low=1, hit_count_high=1)
    with api("spark-driver", DRIVER, folder) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv(STORAGE_VARIABLE, str(root))
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", _connection(cluster, folder))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("HOSTNAME", DRIVER)
        given: dict[str, Any] = {"task_id": "decide", "cluster": "east", "root": str(root), "conn_id": "spark_default"}
        task = DecideOperator(run=run.uri, **given)
        task.execute(context("east", None, run_id=RunRequest.read(run).airflow_run_id))
        yield cluster, plan.Summary.read(run), cluster.end()


def _connection(cluster: Api, folder: Path) -> str:
    """The connection of the manifests, with the files of its ConfigMap in a folder."""
    connection = json.loads(kubernetes.config_map("airflow")["AIRFLOW_CONN_SPARK_DEFAULT"])
    mounted = next(m["mountPath"] for m in main("airflow-scheduler")["volumeMounts"] if m["name"] == "spark")
    for name, text in kubernetes.config_map("spark").items():
        (folder / name).write_text(text.replace(mounted, str(folder)))
    connection["extra"]["properties-file"] = connection["extra"]["properties-file"].replace(mounted, str(folder))
    connection["host"] = connection["host"].replace("https://kubernetes.default.svc", cluster.url)
    return json.dumps(connection)


def test_an_executor_of_the_template_decides(decided: tuple[Api, Summary, list[int]]) -> None:
    cluster, summary, ended = decided
    assert summary.bundles_taken > 0
    assert len(cluster.created) == 1
    # The driver tells its executor to stop, then deletes its pod; either may come first.
    assert ended in ([0], [128 + signal.SIGTERM])


def test_the_driver_needs_all_its_rights_and_no_others(decided: tuple[Api, Summary, list[int]]) -> None:
    (rule,) = kubernetes.objects()["Role", "spark-driver"]["rules"]
    # One pod is deleted only when its executor has failed.
    assert decided[0].asked | {("pods", "delete")} == {("pods", verb) for verb in rule["verbs"]}
    assert decided[0].refused == set()
