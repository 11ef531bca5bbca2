"""Submit the Spark applications that decide and replay."""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseOperator
from airflow.sdk.exceptions import AirflowNotFoundException
from pydantic import JsonValue

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.decide.run_plan import replan
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.variants import ANSWER, ReplayRequest, settings_and_source
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE
from pulsar_rebalancer_airflow.operators.bases import requesting_user
from pulsar_rebalancer_airflow.options import FAILURE, VARIABLES, fail_unless_temporary, option, option_path, run_folder
from pulsar_rebalancer_airflow.spark_connect import CONNECTION_TYPE, SparkConnectApplication, server_environment
from pulsar_rebalancer_airflow.suites import ReplayLink

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Connection, Context


ARCHIVE_VARIABLE = f"{VARIABLES}SPARK_ARCHIVE"
"""Environment variable with the path of a class-data archive, which halves Spark's start-up time."""

_APPLICATION_PACKAGE = "pulsar_rebalancer_spark"
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"
"""JVM options of the driver. The JVM ignores a class-data archive that was made with other options.

`MetaspaceSize` is raised: whenever class data reaches the default, Java searches the whole heap for classes to unload.
"""

CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    # At INFO, Spark adds some hundred lines to a run's task log.
    "spark.log.level": "WARN",
}
"""Settings for a small application that runs once a minute and spends most of its time on starting."""

LOCAL_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Other users of the machine can reach Spark's ports; a secret that Spark makes per application keeps them out.
    "spark.authenticate": "true",
}
"""Settings for a driver and executor in one process. No other process has to connect to this process."""


def app_path(application: str) -> str:
    spec = find_spec(_APPLICATION_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{_APPLICATION_PACKAGE} is not installed next to {__name__}")
    return str(Path(next(iter(spec.submodule_search_locations))) / f"{application}.py")


def source_roots() -> list[str]:
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    roots = []
    for package in ("pulsar_rebalancer", _APPLICATION_PACKAGE):
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            roots.append(str(Path(next(iter(spec.submodule_search_locations))).parent))
    return [root for root in roots if root not in installed]


@contextmanager
def driver_environment() -> Iterator[None]:
    """Set the environment variables that let `spark-submit` find this Python interpreter and its packages.

    `spark-submit` runs the first `python3` in PATH to find its own home. The variables are set in this
    process, because the operator's `env_vars` would also be sent to drivers on other machines.
    """
    paths = [*source_roots(), *filter(None, [os.environ.get("PYTHONPATH")])]
    wanted = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        STRATEGIES_VARIABLE: option("strategies"),
    }
    if paths:
        wanted["PYTHONPATH"] = os.pathsep.join(paths)
    before = {name: os.environ[name] for name in wanted if name in os.environ}
    os.environ |= wanted
    try:
        yield
    finally:
        for name in wanted:
            del os.environ[name]
        os.environ |= before


def checked_connection(conn_id: str) -> Connection:
    """Check the Spark connection for errors that Airflow and Spark report late or never; return it.

    Raises:
        SettingsError: `spark_unreachable` if the connection does not exist (Spark's operator would then use YARN) or
            the secrets backend did not answer. `wrong_setting` if the driver would run on another machine, without this
            package and the run's files, or if the master is Kubernetes and the Spark provider has no client for it.
    """
    where = f"spark_connection {conn_id}"
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise SettingsError(
            Reason.SPARK_UNREACHABLE, f"{where} was not found: add the connection, or check the secrets backend"
        ) from None
    if connection.conn_type == CONNECTION_TYPE:
        return connection
    # The form's field may be left empty.
    if (connection.extra_dejson.get("deploy-mode") or "client") != "client":
        raise SettingsError(
            Reason.WRONG_SETTING, f"{where}: deploy-mode must be client, because the driver runs on the task's machine"
        )
    master = f"{connection.conn_type}://{connection.host}"
    if "k8s" in master and find_spec("airflow.providers.cncf") is None:
        raise SettingsError(
            Reason.WRONG_SETTING, f"{where}: {master} needs pulsar-rebalancer[kubernetes] on the workers"
        )
    return connection


class SparkApplicationOperator(BaseOperator):
    """Submit one of this package's applications. If it fails, the error contains the last lines of its output.

    Args:
        application: module name of the application.
        conn_id: connection of type `spark`, with the master's address, or `spark_connect`, with the address
            of a running server that has its own settings.
        conf: Spark settings in addition to the common settings.
    """

    template_fields: Sequence[str] = ("application_args",)

    def __init__(
        self,
        *,
        application: str,
        name: str,
        conn_id: str,
        application_args: Sequence[Any] = (),
        conf: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application = app_path(application)
        self.application_args = list(application_args)
        self.name = name
        self.conn_id = conn_id
        self.conf = CONF | {"spark.driver.extraJavaOptions": JAVA_OPTIONS} | (conf or {})
        self._connected: SparkConnectApplication | None = None
        self._submitted: SparkSubmitHook | None = None

    def on_kill(self) -> None:
        """End the application and its work on a Spark Connect server."""
        if self._submitted is not None:
            self._submitted.on_kill()
        elif self._connected is not None:
            self._connected.stop_application()

    def _submit(self, context: Context, connection: Connection) -> None:
        """Submit the application, and wait for it to finish.

        Raises AirflowException with the last lines of its output (its reason code is the XCom `failure`), or
        SettingsError `spark_unreachable`.
        """
        connected = connection.conn_type == CONNECTION_TYPE
        with fail_unless_temporary(context):
            server = server_environment(connection, f"spark_connection {self.conn_id}") if connected else {}
        try:
            with driver_environment():
                if connected:
                    self._connected = SparkConnectApplication([self.application, *self.application_args], server)
                    self._connected.wait_for_end(self.log.info)
                else:
                    self._submitted = self._make_hook(connection)
                    self._submitted.submit(self.application)
        except Exception as error:
            context["ti"].xcom_push(key=FAILURE, value=_reason_in_output(str(error)) or Reason.SPARK_FAILED)
            raise

    def _make_hook(self, connection: Connection) -> SparkSubmitHook:
        # It loads two Kubernetes clients, which takes as long as loading Airflow: no DAG file has to wait for that.
        from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

        conf = {**self.conf, **(LOCAL_CONF if re.match(r"local(\[|$)", connection.host or "") else {})}
        # Read here and not at parse time: the archive is on the worker's disk.
        archive = option_path("spark_archive") if option("spark_archive") else None
        if archive and archive.is_file():
            conf["spark.driver.extraJavaOptions"] = f"{JAVA_OPTIONS} -XX:SharedArchiveFile={archive} -Xshare:auto"
        elif archive:
            self.log.warning("[pulsar_rebalancer] spark_archive: %s is missing, so Spark starts without it", archive)
        return SparkSubmitHook(
            conn_id=self.conn_id,
            name=self.name,
            conf=conf,
            application_args=self.application_args,
            # A file on the worker with Spark settings that no command line may show, such as a secret.
            properties_file=connection.extra_dejson.get("properties-file"),
        )


def _reason_in_output(output: str) -> Reason | None:
    codes = re.findall(r"not (?:decided|replayed): .*\[([a-z_]+)\]", output)
    return Reason.get(codes[-1]) if codes else None


class DecideOperator(SparkApplicationOperator):
    """Submit the application that makes a run's plan: scores, pairs, hits and bundles to move.

    If a run carries out an earlier plan, its plan is the part of the earlier plan that is still valid; no strategy
    is used. A retry makes the same plan from the same input, and overwrites the files of earlier attempts.
    `conn_id` is an Airflow connection of type `spark` or `spark_connect`.
    """

    def __init__(self, *, cluster: str, root: str, run: Any, conn_id: str, **kwargs: Any) -> None:
        super().__init__(
            application="application",
            application_args=["--root", root, "--run", run],
            conn_id=conn_id,
            name="pulsar-rebalancer",
            **kwargs,
        )
        self.cluster = cluster

    def execute(self, context: Context) -> None:
        """Submit the application, and wait for it to finish.

        Raises:
            AirflowFailException: `foreign_run`; `wrong_setting` (see `checked_connection`); an earlier plan
                was not handed over to this run, or is no longer valid (`decide.run_plan.replan`).
            AirflowException: the application failed; the message has the last lines of its output, and the
                XCom `failure` its reason code. This is retried.
        """
        with fail_unless_temporary(context):
            _, root, _, address = self.application_args
            run = run_folder(context, self.cluster, address)
            if RunRequest.read(run).params.plan:
                summary = replan(ClusterStorage(root, self.cluster), run)
                self.log.info("%s. Bundles that stay: %s", summary.sentence, json.dumps(summary.bundle_skip_reasons))
                return
            connection = checked_connection(self.conn_id)
        self._submit(context, connection)


class ReplayOperator(SparkApplicationOperator):
    """Submit the replay application. The task's XCom is its answer; the task has a link to the report.

    The application logs its progress. A retry runs the replay again in a new folder.
    """

    operator_extra_links = (ReplayLink(),)

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        super().__init__(
            application="replay",
            conn_id=entry.settings.spark_connection,
            conf={"spark.ui.showConsoleProgress": "false"},
            name="pulsar-rebalancer-replay",
            **kwargs,
        )
        self.entry = entry
        self.root = root
        self.report_of = ""

    def execute(self, context: Context) -> dict[str, JsonValue]:
        """Return the content of `answer.json`; the values of each variant are in `results.parquet`.

        Raises:
            AirflowFailException: `wrong_setting` or `contradiction` in the parameters or the connection.
            AirflowException: the application failed; the message has the last lines of its output, and the
                XCom `failure` its reason code.
        """
        storage = ClusterStorage(self.root, self.entry.name)
        folder = storage.new_replay_folder(datetime.now(UTC))
        with fail_unless_temporary(context):
            request = self._replay_request(context, storage)
            connection = checked_connection(self.conn_id)
            if connection.conn_type == CONNECTION_TYPE:
                raise SettingsError(
                    Reason.WRONG_SETTING,
                    f"spark_connection {self.conn_id}: a replay sends Python objects to executors, which a Spark "
                    "Connect server does not support: use a connection of type spark",
                )
            request.write(folder)
        self.application_args = ["--root", self.root, "--replay", folder.uri]
        self.log.info("Replay of the period from %s to %s; files in %s", request.start, request.end, folder.uri)
        self._submit(context, connection)
        self.report_of = folder.name
        answer: dict[str, JsonValue] = (folder / ANSWER).read_json()
        return answer

    def _replay_request(self, context: Context, storage: ClusterStorage) -> ReplayRequest:
        params: dict[str, Any] = {name: value for name, value in context["params"].items() if value is not None}
        end = params.get("end") or datetime.now(UTC).isoformat()
        try:
            start = params.get("start") or (datetime.fromisoformat(end) - timedelta(days=1)).isoformat()
        except (ValueError, OverflowError):
            raise SettingsError(Reason.WRONG_SETTING, f"end: {str(end)[:80]!r} is not a time") from None
        run = context["dag_run"]
        settings, source = settings_and_source(storage, self.entry.settings)
        return ReplayRequest.from_form(
            params
            | {
                "start": start,
                "end": end,
                "cluster": self.entry.name,
                "airflow_run_id": run.run_id,
                "requested_by": requesting_user(context),
                "settings": settings,
                "settings_from": source,
            }
        )
