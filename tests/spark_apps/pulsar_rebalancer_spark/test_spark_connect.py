"""The same application on a Spark Connect server that runs already, through the operator."""

import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException
from pyspark.sql.connect.session import SparkSession as RemoteSession
from tests.airflow_context import context
from tests.patience import PATIENCE
from tests.spark_apps.pulsar_rebalancer_spark import runs
from tests.spark_connect_server import TOKEN, SparkConnectServer

from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import plan
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow import spark_connect
from pulsar_rebalancer_airflow.operators import DecideOperator
from pulsar_rebalancer_airflow.operators.spark_application import app_path, driver_environment
from pulsar_rebalancer_airflow.options import FAILURE, STORAGE_VARIABLE
from pulsar_rebalancer_airflow.spark_connect import SparkConnectApplication, server_environment
from pulsar_rebalancer_spark.rebalance import decide_run

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    with SparkConnectServer(tmp_path_factory.mktemp("connect")) as started:
        yield started


@pytest.fixture
def task(
    tmp_path: Path, server: SparkConnectServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[StoragePath], DecideOperator]:
    """The task decide of a run, over the server."""
    monkeypatch.setenv("AIRFLOW_CONN_CONNECT", server.connection().as_json())
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    given: dict[str, Any] = {"task_id": "decide", "cluster": "east", "root": str(tmp_path), "conn_id": "connect"}
    return lambda run: DecideOperator(run=run.uri, **given)


def context_of(run: StoragePath) -> Context:
    return context("east", None, run_id=RunRequest.read(run).airflow_run_id)


def killed(server: SparkConnectServer, task: DecideOperator, seen: Context) -> None:
    """Runs the task, and kills it as Airflow does while the server is at its means."""
    ended: list[BaseException] = []
    before = len(server.log.read_text())

    def execute() -> None:
        try:
            task.execute(seen)
        except BaseException as error:
            ended.append(error)

    running = threading.Thread(target=execute)
    running.start()
    server.until(lambda: bool(ended) or "Starting task" in server.log.read_text()[before:])
    children = psutil.Process().children(recursive=True)
    under_way: dict[str, psutil.Process] = {}
    for each in children:
        with suppress(psutil.Error):  # those that have just ended
            under_way[" ".join(each.cmdline())] = each
    # Airflow tells the whole group of the task's processes, and the task on_kill.
    (application,) = [command for command in under_way if "application.py" in command]
    under_way[application].terminate()
    task.on_kill()
    running.join()
    assert isinstance(ended[0], AirflowException), ended
    assert "ended with exit code 143" in str(ended[0])
    assert [command for command in under_way if TOKEN in command] == []
    # What it does for others goes on.
    server.await_line("Job .* (failed|cancelled)")


def test_the_same_plans_after_a_killed_task_whose_run_has_ended_too(spark, tmp_path, server, task, caplog, monkeypatch):
    eager = {"hit_count_low": 1, "hit_count_high": 1}
    other: dict[str, Any] = {"strategy": Strategy.THRESHOLD, "min_unload_bundle_throughput": 0}
    ours = eager | {"strategy": Strategy.GAIN}
    made = [runs.make(tmp_path, runs.tables("east", 6, 20), **settings) for settings in (eager, other, ours)]
    here = [decide_run(lambda: spark, RunInput.read(run.uri)) for run in made]
    assert all(summary.bundles_taken for summary in here)
    for run in made:
        (run / "plan").delete()
        RunInput.read(run.uri).new_means_file.delete()

    large = runs.make(tmp_path, runs.tables("east", 6, 20), **other)
    bundles = large / "input" / "bundles.parquet"
    bundles.write_table(pa.concat_tables([bundles.read_table()] * 10_000))
    monkeypatch.setattr(spark_connect, "_RELEASE_TIMEOUT_S", 60)  # a busy machine takes longer than a task may
    killed(server, task(large), context_of(large))
    assert not (large / "plan" / "summary.json").exists()
    for run in made:
        task(run).execute(context_of(run))

    assert [plan.Summary.read(run) for run in made] == here
    for run in made:
        written = Path(RunInput.read(run.uri).new_means_file.uri).glob("*.parquet")
        assert {stat.S_IMODE(file.stat().st_mode) for file in written} == {0o600}
    assert TOKEN not in caplog.text


def test_a_server_that_does_not_see_the_storage_is_told_apart(tmp_path, server, monkeypatch):
    run = Path(runs.make(tmp_path, runs.tables("east", 3, 3)).uri).relative_to(tmp_path)
    # The server begins in another folder.
    monkeypatch.chdir(tmp_path)
    told: list[str] = []

    command = [app_path("application"), "--root", ".", "--run", str(run)]
    with driver_environment():
        application = SparkConnectApplication(command, server_environment(server.connection(), "here"))
    with pytest.raises(AirflowException, match=r"not decided: .*\[file_missing\]"):
        application.wait_for_end(told.append)

    assert [line for line in told if "cannot find the storage root" in line]


def failed(task: DecideOperator, seen: Any) -> str:
    """What a task says that fails as a connection or a server that does not answer makes it."""
    with pytest.raises(AirflowException) as caught:
        task.execute(seen)
    assert seen["ti"].pushed[FAILURE] is Reason.SPARK_UNREACHABLE
    return str(caught.value)


def test_a_token_that_the_server_refuses(tmp_path, server, task, caplog, monkeypatch):
    run = runs.make(tmp_path, runs.tables("east", 3, 3))
    monkeypatch.setenv("AIRFLOW_CONN_CONNECT", server.connection("of-nobody").as_json())
    said = failed(task(run), context_of(run))
    assert "refused the token of the Airflow connection" in said
    assert not {"of-nobody", TOKEN} & set(re.findall(r"[\w-]+", said + caplog.text + server.log.read_text()))


def test_a_run_leaves_the_session_of_another_cluster_as_it_is(tmp_path, server, task, monkeypatch):
    for name, value in server_environment(server.connection(), "here").items():
        monkeypatch.setenv(name, value)
    beside = RemoteSession.builder.remote(os.environ["SPARK_REMOTE"]).create()
    beside.conf.set("spark.sql.shuffle.partitions", 7)
    beside.range(3).createTempView("brokers")
    run = runs.make(tmp_path, runs.tables("east", 6, 20), hit_count_low=1, hit_count_high=1)

    task(run).execute(context_of(run))

    assert (beside.table("brokers").count(), beside.conf.get("spark.sql.shuffle.partitions")) == (3, "7")
    beside.stop()


def test_a_server_that_dies_meanwhile_fails_the_run_and_the_next_decides(tmp_path, task, server):
    large = runs.make(tmp_path, runs.tables("east", 6, 20), strategy=Strategy.THRESHOLD)
    bundles = large / "input" / "bundles.parquet"
    bundles.write_table(pa.concat_tables([bundles.read_table()] * 10_000))
    before = len(server.log.read_text())
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(failed, task(large), context_of(large))
        server.until(lambda: running.done() or "Starting task" in server.log.read_text()[before:])
        server.process.kill()
        server.process.wait()
        said = running.result(PATIENCE)  # Spark's client would go on for ten minutes, and again for the end
    assert "has stopped: start it again" in said
    assert not (large / "plan").exists()
    assert not (RunInput.read(large.uri).new_means_file / "_SUCCESS").exists()
    server.process = SparkConnectServer(tmp_path, server.port).process
    run = runs.make(tmp_path, runs.tables("east", 6, 20), hit_count_low=1, hit_count_high=1)
    task(run).execute(context_of(run))
    assert plan.Summary.read(run).bundles_taken
