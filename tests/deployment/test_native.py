"""The deployment without its containers: every component a process of its own, the simulated cluster as the brokers."""

import json
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyarrow.parquet as pq
import pytest
from tests.deployment import compose
from tests.deployment.native import Native
from tests.patience import PATIENCE
from tests.pulsar.processes import free_ports

from pulsar_rebalancer_airflow.embedded import local_airflow
from pulsar_rebalancer_airflow.embedded.airflow_home import AirflowHome
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow, Processes
from pulsar_rebalancer_airflow.spark_archive import cached_archive

pytestmark = pytest.mark.system

DAG = "pulsar_rebalance__local"
ASKED: dict[str, Any] = {"timeout": PATIENCE, "trust_env": False}


class Deployed(LocalAirflow):
    def __init__(self, home: AirflowHome, processes: Processes, password: str) -> None:
        super().__init__(home, processes)
        self._given = password

    @property
    def password(self) -> str:
        return self._given


class Deployment:
    """All that runs, and a forced run of the DAG, which has succeeded or failed."""

    def __init__(self, native: Native, airflow: Deployed, folder: Path) -> None:
        self.native = native
        self.airflow = airflow
        self.folder = folder
        # A Spark session of tests before this one may run beside it.
        self.others = set(psutil.Process().children(recursive=True))
        # The scheduler last: a run of the schedule would come before the one that is asked for here.
        native.up("airflow-apiserver")
        native.up("airflow-dag-processor")
        airflow.wait_for_dag(DAG)
        self.run_id = airflow.trigger(DAG, {"force": "try the deployment out"})
        native.up("airflow-scheduler")
        self.commands: set[str] = set()
        self.spark_addresses: set[str] = set()
        ended = threading.Event()
        looking = threading.Thread(target=self._look, args=(ended,))
        looking.start()
        try:
            self.run = airflow.wait(DAG, self.run_id)
        finally:
            ended.set()
            looking.join()

    def _look(self, ended: threading.Event) -> None:
        """What everybody on the machine sees of its processes, and where those of Spark listen."""
        while not ended.wait(0.5):
            for process in set(psutil.Process().children(recursive=True)) - self.others:
                with suppress(psutil.Error):
                    self.commands.add(" ".join(process.cmdline()))
                    if process.name() == "java":
                        listening = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
                        self.spark_addresses |= {c.laddr.ip.removeprefix("::ffff:") for c in listening}

    @property
    def folder_of_run(self) -> Path:
        return Path(self.airflow.xcom(DAG, self.run_id, "collect"))

    @property
    def outcome(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder_of_run / "outcome.json").read_text())
        return found

    def spark(self) -> dict[str, Any]:
        port = self.native.port("spark-master", "8080")
        found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/json/", **ASKED).json()
        return found


@pytest.fixture(scope="module")
def deployment(env_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    (port,) = free_ports(1)
    with Processes() as processes:
        connection = local_airflow.start_cluster(processes, folder / "simulation", brokers=3, bundles=40)
        variables = compose.read_env(env_file) | {"AIRFLOW_PORT": str(port)}
        services = {
            name: service for name, service in compose.load(variables)["services"].items() if "profiles" not in service
        }
        services["airflow-scheduler"]["environment"]["AIRFLOW_CONN_PULSAR_ADMIN_TRIAL"] = json.dumps(connection)
        archive = cached_archive(compose.SOURCE / ".cache")
        image = {"AIRFLOW__PULSAR_REBALANCER__SPARK_ARCHIVE": str(archive)}
        native = Native(services, {("airflow-apiserver", "8080"): port}, folder / "airflow", processes, image)
        try:
            home = AirflowHome(folder / "airflow", cluster_settings={}, connections={}, port=port)
            airflow = Deployed(home, processes, variables["AIRFLOW_ADMIN_PASSWORD"])
            yield Deployment(native, airflow, folder / "airflow")
        finally:
            processes.stop()
            native.postgres.remove()


def test_a_triggered_run_succeeds(deployment: Deployment) -> None:
    states = {(task["task_id"], task["state"]) for task in deployment.airflow.tasks(DAG, deployment.run_id)}
    names = ("collect", "validate", "decide", "record", "gate", "unload", "report")
    assert states == {(name, "success") for name in names} | {("split", "skipped")}
    assert deployment.run["state"] == "success"


def test_standalone_cluster_decided_the_run(deployment: Deployment) -> None:
    spark = deployment.spark()
    assert [worker["state"] for worker in spark["workers"]] == ["ALIVE"]
    finished = [app for app in spark["completedapps"] if app["state"] == "FINISHED"]
    assert {app["name"] for app in finished} == {"pulsar-rebalancer"}
    began = deployment.native.postgres.ask(
        "SELECT floor(extract(epoch FROM start_date) * 1000), ceil(extract(epoch FROM end_date) * 1000) "
        f"FROM task_instance WHERE task_id = 'decide' AND run_id = '{deployment.run_id}'"
    )
    start, end = (int(number) for number in began[0].split("|"))
    assert [app["cores"] > 0 for app in finished if start <= app["starttime"] <= end] == [True]


def test_spark_knows_its_own_by_a_secret_that_no_command_line_shows(deployment: Deployment, env_file: Path) -> None:
    secret = compose.read_env(env_file)["SPARK_AUTH_SECRET"]
    file = deployment.folder / "spark" / "spark.properties"
    assert f"spark.authenticate.secret {secret}\n" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for program in ("Master", "Worker", "SparkSubmit"):
        commands = [command for command in deployment.commands if f".{program} " in command]
        assert commands, program
        assert all(f"--properties-file {file}" in command for command in commands), program
    assert any("CoarseGrainedExecutorBackend" in command for command in deployment.commands)
    assert [command for command in deployment.commands if secret in command] == []


def test_spark_listens_where_it_is_told_to_alone(deployment: Deployment) -> None:
    assert deployment.spark_addresses == {"127.0.0.1"}


def test_of_two_plans_made_by_hand_that_are_given_in_the_same_second_one_is_carried_out(deployment: Deployment) -> None:
    airflow, by_hand = deployment.airflow, "pulsar_by_hand__local"
    owned = pq.read_table(deployment.folder_of_run / "input" / "bundles.parquet").to_pylist()
    moved = {move["bundle"] for move in deployment.outcome["moves"]}
    brokers = {row["broker"] for row in owned}
    wanted = [
        {"bundles": [row["bundle"]], "destination": min(brokers - {row["broker"]})}
        for row in owned
        if row["topics"] and row["bundle"] not in moved and not row["bundle"].startswith("pulsar/")
    ]
    why = {"overrule": ["overload"], "reason": "to see which comes first"}
    asked = [airflow.trigger(by_hand, {"action": "unload"} | form | why) for form in wanted[:2]]
    for run_id in asked:
        assert airflow.wait(by_hand, run_id)["state"] == "success"
    plans = [airflow.xcom(by_hand, run_id, "plan")["plan"] for run_id in asked]

    given = [airflow.trigger(by_hand, {"plan": plan}) for plan in plans]

    assert sorted(airflow.wait(by_hand, run_id)["state"] for run_id in given) == ["failed", "success"]
    carried_out = deployment.native.postgres.ask(r"SELECT run_id FROM dag_run WHERE run_id LIKE 'by\_hand\_\_%'")
    assert len(carried_out) == 1
    assert airflow.wait(DAG, carried_out[0])["state"] == "success"


def test_only_the_given_password_opens_the_door(deployment: Deployment) -> None:
    def log_in(password: str) -> int:
        login = {"username": "admin", "password": password}
        return httpx.post(f"{deployment.airflow.home.url}/auth/token", json=login, **ASKED).status_code

    assert log_in(deployment.airflow.password) == httpx.codes.CREATED
    assert log_in("admin") == httpx.codes.UNAUTHORIZED
    assert httpx.get(f"{deployment.airflow.home.url}/api/v2/dags", **ASKED).status_code == httpx.codes.UNAUTHORIZED
    assert stat.S_IMODE((deployment.folder / "auth" / "passwords.json").stat().st_mode) == 0o600
