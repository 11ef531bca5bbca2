import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER, make_run
from tests.project.documentation import blocks

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE
from pulsar_rebalancer_airflow.operators import DecideOperator
from pulsar_rebalancer_airflow.operators.spark_application import ARCHIVE_VARIABLE, JAVA_OPTIONS, app_path
from pulsar_rebalancer_airflow.options import FAILURE, STORAGE_VARIABLE

SUBMIT = "airflow.providers.apache.spark.hooks.spark_submit.subprocess.Popen"


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What `spark-submit` would be started with, and in which environment."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", '{"conn_type": "spark", "host": "local[2]"}')
    seen: dict[str, Any] = {}

    def start(command: list[str], **_: Any) -> Any:
        seen.update(command=command, path=os.environ["PATH"], python=os.environ.get("PYTHONPATH", ""))
        seen.update(strategies=os.environ.get(STRATEGIES_VARIABLE))
        return mock.Mock(stdout=iter(()), wait=mock.Mock(return_value=0))

    with mock.patch(SUBMIT, side_effect=start):
        yield seen


@pytest.fixture(autouse=True)
def root(storage: ClusterStorage) -> str:
    return storage.root


def decide(run: str = "", seen: Context | None = None) -> str:
    root = os.environ[STORAGE_VARIABLE]
    run = run or make_run(ClusterStorage(root, CLUSTER)).uri
    operator = DecideOperator(task_id="decide", cluster=CLUSTER, root=root, run=run, conn_id="spark_test")
    operator.execute(seen or context(CLUSTER, None))
    return run


def test_submits_the_application_to_the_connections_master(submitted):
    run = decide()

    command = submitted["command"]
    assert command[:3] == ["spark-submit", "--master", "local[2]"]
    assert command[-5:] == [app_path("application"), "--root", os.environ[STORAGE_VARIABLE], "--run", run]
    assert "spark.ui.enabled=false" in command
    options = next(part for part in command if part.startswith("spark.driver.extraJavaOptions="))
    assert options == f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"


DOCUMENTED = {"local": "local[2]", "spark": "spark://master-1:7077,master-2:7077", "yarn": "yarn"}


def _documented(kind: str) -> str:
    found = [b.body for b in blocks() if b.page == "operations.md" and b.language == "json"]
    (connection,) = [body for body in found if json.loads(body)["host"].startswith(kind)]
    return connection


@pytest.mark.parametrize("kind", ["local", "spark", "yarn"])
def test_documented_connections_name_their_master_and_keep_a_local_driver_to_this_machine(submitted, monkeypatch, kind):
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", _documented(kind))

    decide()

    command = submitted["command"]
    assert command[1:3] == ["--master", DOCUMENTED[kind]]
    assert ("--queue" in command) is (kind == "yarn")
    bound = {"spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1", "spark.authenticate=true"}
    assert bound & set(command) == (bound if kind == "local" else set())
    if kind == "spark":
        assert command[command.index("--properties-file") + 1] == "/etc/pulsar-rebalancer/spark.properties"


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        ('{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}', "deploy-mode must be client"),
        ("k8s", r"needs pulsar-rebalancer\[kubernetes\]"),
    ],
)
def test_unusable_spark_connection_is_refused(submitted, monkeypatch, connection, said):
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", _documented("k8s") if connection == "k8s" else connection)
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf", None)

    with pytest.raises(AirflowFailException, match=rf"spark_connection spark_test: .*{said}.*\[wrong_setting\]"):
        decide()

    assert not submitted


def test_the_driver_runs_under_this_interpreter(submitted):
    before = os.environ["PATH"]

    decide()

    assert submitted["path"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    roots = {Path(part).name for part in submitted["python"].split(os.pathsep)}
    # The interpreter finds a wheel by itself.
    needed = set() if "site-packages" in app_path("application") else {"include", "spark_apps"}
    assert roots & {"include", "spark_apps"} == needed
    assert os.environ["PATH"] == before


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ("not decided: /runs/1/validation.json cannot be read [file_missing]", Reason.FILE_MISSING),
        ("not decided: ZeroDivisionError [spark_failed]", Reason.SPARK_FAILED),
        ("Exception in thread main java.lang.OutOfMemoryError", Reason.SPARK_FAILED),
    ],
)
def test_failure_of_spark_has_a_reason_code(monkeypatch, last, reason):
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", '{"conn_type": "spark", "host": "local[2]"}')
    ended = mock.Mock(stdout=iter(["Traceback", last]), wait=mock.Mock(return_value=1))
    seen: Any = context(CLUSTER, None)

    with mock.patch(SUBMIT, return_value=ended), pytest.raises(AirflowException, match=re.escape(last)):
        decide(seen=seen)

    assert seen["ti"].pushed[FAILURE] == reason


@pytest.mark.parametrize("exists", [True, False])
def test_the_archive_is_used_if_the_worker_has_it(submitted, monkeypatch, tmp_path, capsys, exists):
    archive = tmp_path / "spark.jsa"
    if exists:
        archive.write_bytes(b"")
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(archive))

    decide()

    command = " ".join(submitted["command"])
    assert (f"={JAVA_OPTIONS} -XX:SharedArchiveFile={archive}" in command) is exists
    assert (f"spark_archive: {archive} is missing" in capsys.readouterr().out) is not exists


def test_spark_is_given_the_shedders_that_it_may_load(submitted, monkeypatch):
    monkeypatch.setenv("AIRFLOW__PULSAR_REBALANCER__STRATEGIES", "my_package:shed")
    # Experiments with a shedder from outside leave it.
    monkeypatch.delenv(STRATEGIES_VARIABLE, raising=False)
    decide()
    assert submitted["strategies"] == "my_package:shed"
    assert STRATEGIES_VARIABLE not in os.environ
