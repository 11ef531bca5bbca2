"""A simulated cluster over HTTP, its DAGs, and an Airflow that runs their tasks in this process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import yaml
from airflow.api.common.trigger_dag import trigger_dag
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.models.xcom import XComModel
from airflow.sdk import timezone
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager
from airflow.sdk.definitions.dag import _run_task
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType
from sqlalchemy import select
from tests.airflow_home import HOME, SOURCE
from tests.patience import awaited

from pulsar_rebalancer.state import DecisionState, MovesState, StateDocument
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.state_store import moves_asset, state_asset
from pulsar_simulator.load import NO_NOISE
from pulsar_simulator.sampling import Timing
from pulsar_simulator.scenario import build_cluster
from pulsar_simulator.serve import RunningCluster, serve
from pulsar_simulator.timeline import RealClock

Document = TypeVar("Document", bound=StateDocument)


class World:
    """One cluster and its DAGs."""

    def __init__(self, name: str, root: Path, served: RunningCluster | None = None) -> None:
        self.name = name
        self._served = served
        self.storage = ClusterStorage(str(root), name)
        DagBundlesManager().sync_bundles_to_db()
        sync_bag_to_db(self._bag(), "dags-folder", None)

    @property
    def served(self) -> RunningCluster:
        if self._served is None:
            raise RuntimeError(f"cluster {self.name} is not simulated")
        return self._served

    def _bag(self) -> DagBag:
        bag = DagBag(dag_folder=str(HOME / "dags"), bundle_name="dags-folder")
        if bag.import_errors:
            raise RuntimeError(str(bag.import_errors))
        return bag

    def dag(self, dag_id: str) -> Any:
        """A DAG, parsed anew and alone as for every task on a worker: a run in this process changes its parameters."""
        with mock.patch.dict(os.environ), _airflow_parsing_context_manager(dag_id):
            return self._bag().dags[dag_id]

    def run(self, dag: str = "rebalance", /, **conf: Any) -> Outcome:
        """A whole run, begun once its sample counts. (`DAG.test` would wait a second whenever no task is ready.)"""
        awaited(self._is_sample_due)
        return self.begin(self.start(dag, **conf), dag)

    def _is_sample_due(self) -> bool:
        """Whether half of the shortest interval, 5 s, has passed: a fast machine ends a run sooner."""
        counted_at = self.decision().counted_at
        return counted_at is None or not 0 <= (timezone.utcnow() - counted_at).total_seconds() < 5 / 2

    def run_until_valid(self) -> Outcome:
        """Runs until validation stops none: brokers tell of bundles before they own them, or no longer do."""
        return awaited(lambda: [run for run in [self.run()] if run.state == "success"])[0]

    def run_again(self, outcome: Outcome, first: str, last: str = "") -> Outcome:
        """Clear a task of a run with all that follow it, and let the run go on to its end, or to that of `last`."""
        dag = self.dag(outcome.run.dag_id)
        names = {first} | dag.task_dict[first].get_flat_relative_ids(upstream=False)
        with create_session() as session:
            run = _run(outcome.run.id, session)
            run.dag = _scheduled(dag)
            cleared = [ti for ti in run.get_task_instances(session=session) if ti.task_id in names]
            clear_task_instances(cleared, session)
            run.set_state(DagRunState.RUNNING)
        return self._go_on(run, last)

    def queued(self, dag: str = "rebalance") -> list[str]:
        with create_session() as session:
            found = select(DagRun.run_id).where(
                DagRun.dag_id == f"pulsar_{dag}__{self.name}", DagRun.state == DagRunState.QUEUED
            )
            return list(session.scalars(found.order_by(DagRun.run_after, DagRun.id)))

    def start(self, dag: str, /, **conf: Any) -> str:
        """Trigger a DAG, as a person does, and return the id of the run, which waits for its turn."""
        run = trigger_dag(
            f"pulsar_{dag}__{self.name}",
            triggered_by=DagRunTriggeredByType.TEST,
            triggering_user_name="tester",
            conf=conf,
        )
        if run is None:
            raise RuntimeError(f"{dag} was not triggered")
        return run.run_id

    def begin(self, run_id: str, dag: str = "rebalance", last: str = "") -> Outcome:
        """Let a run that waits go on to its end, or to that of the task `last`, as the scheduler does."""
        dag_id = f"pulsar_{dag}__{self.name}"
        with create_session() as session:
            run = session.scalars(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)).one()
            run.start_date = timezone.utcnow()
            run.set_state(DagRunState.RUNNING)
        return self._go_on(run, last)

    def go_on(self, outcome: Outcome, last: str = "") -> Outcome:
        """Let a run in which the machine stood still go on to its end, or to that of the task `last`."""
        return self._go_on(outcome.run, last)

    def _go_on(self, run: DagRun, last: str = "") -> Outcome:
        dag = self.dag(run.dag_id)
        scheduled = _scheduled(dag)
        while _step(run.id, dag, scheduled, last):
            pass
        with create_session() as session:
            return Outcome(self, _run(run.id, session))

    def asked(self, run_id: str) -> str:
        with create_session() as session:
            found = select(HITLDetail.body).join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
            return str(session.scalar(found.where(TaskInstance.run_id == run_id)))

    def document(self, model: type[Document]) -> Document:
        stored = self._document(model.KEY)
        return model() if stored is None else model.parse(stored, model.KEY)

    def decision(self) -> DecisionState:
        return self.document(DecisionState)

    def moves(self) -> MovesState:
        return self.document(MovesState)

    def lose_state(self) -> None:
        """What the loss of the metadata database does to the state."""
        with create_session() as session:
            for row in session.scalars(select(AssetStateStoreModel)):
                session.delete(row)

    def put(self, document: StateDocument) -> None:
        with create_session() as session:
            asset = session.scalar(select(AssetModel.id).where(AssetModel.name == state_asset(self.name).name))
            value = json.dumps(document.model_dump(mode="json"))
            session.merge(AssetStateStoreModel(asset_id=asset, key=document.KEY, value=value))

    def _document(self, key: str) -> Any:
        with create_session() as session:
            value = session.scalar(
                select(AssetStateStoreModel.value)
                .join(AssetModel, AssetModel.id == AssetStateStoreModel.asset_id)
                .where(AssetModel.name == state_asset(self.name).name, AssetStateStoreModel.key == key)
            )
        return None if value is None else json.loads(value)

    def events(self) -> list[Any]:
        with create_session() as session:
            rows = session.scalars(
                select(AssetEvent.extra)
                .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
                .where(AssetModel.name == moves_asset(self.name).name)
            )
            return list(rows)

    def score_range(self) -> float:
        scores = self.served.cluster.true_scores().values()
        return max(scores) - min(scores)


class Outcome:
    def __init__(self, world: World, run: DagRun) -> None:
        self.run = run
        with create_session() as session:
            tis = run.get_task_instances(session=session)
            self.states = {ti.task_id: str(ti.state) for ti in tis if ti.map_index < 1}
            self.waves = sum(ti.task_id == "unload" and ti.map_index >= 0 for ti in tis)
        self._world = world

    @property
    def state(self) -> str:
        return str(self.run.state)

    def xcom(self, task: str, key: str = "return_value") -> Any:
        with create_session() as session:
            found = session.scalar(self._left(task, key))
            return XComModel.deserialize_value(found) if found else None

    def forge(self, task: str, value: Any) -> Any:
        """Write what a task left, as it is stored, as somebody may who has the right to; what was there before."""
        with create_session() as session:
            found = session.scalars(self._left(task, "return_value")).one()
            before, found.value = found.value, value
        return before

    def _left(self, task: str, key: str) -> Any:
        of_run = XComModel.dag_id == self.run.dag_id, XComModel.run_id == self.run.run_id
        return select(XComModel).where(*of_run, XComModel.task_id == task, XComModel.key == key)

    @property
    def folder(self) -> StoragePath:
        return StoragePath(self.xcom("collect"))


def _scheduled(dag: Any) -> Any:
    """A DAG as the scheduler knows it."""
    return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


def _run(number: int, session: Any) -> DagRun:
    run = session.scalar(select(DagRun).where(DagRun.id == number))
    if run is None:
        raise RuntimeError(f"run {number} is gone")
    return run  # type: ignore[no-any-return]


def _step(number: int, dag: Any, scheduled: Any, last: str = "") -> bool:
    """What the scheduler does again and again: see what can run, and run it; False when the run or `last` has ended."""
    with create_session() as session:
        run = _run(number, session)
        run.dag = scheduled
        schedulable, _ = run.update_state(session=session)
        for ti in schedulable:
            ti.try_number += 1
            ti.state = TaskInstanceState.SCHEDULED
        session.flush()
        going_on = run.state == DagRunState.RUNNING
        tis = run.get_task_instances(session=session)
        ready = [ti for ti in tis if ti.state == TaskInstanceState.SCHEDULED]
        if not ready and any(ti.state == TaskInstanceState.AWAITING_INPUT for ti in tis):
            raise RuntimeError(f"run {run.run_id} waits for an answer")
    for ti in sorted(ready, key=lambda ti: ti.map_index):
        _run_task(ti=ti, task=dag.task_dict[ti.task_id])
        _resume_if_answered(ti)
    return going_on and last not in {ti.task_id for ti in ready}


def _resume_if_answered(ti: Any) -> None:
    """Leave a task scheduled whose answer came before it waited, as Airflow's API does: `_run_task` lets it wait."""
    with create_session() as session:
        stored = session.get(TaskInstance, ti.id)
        if stored and stored.state == TaskInstanceState.AWAITING_INPUT and "event" in str(stored.next_kwargs):
            stored.state = TaskInstanceState.SCHEDULED


@contextmanager
def world(name: str, folder: Path, **settings: Any) -> Iterator[World]:
    """A cluster with one hot and one empty broker, and its DAGs."""
    # Brokers that look at themselves every second: each run sees what the last one did, and no report is old.
    timing = Timing(stats_period=1, host_check_period=1, report_max_interval=5)
    cluster = build_cluster(brokers=4, bundles=60, noise=NO_NOISE, timing=timing, clock=RealClock())
    with serve(cluster) as served:
        host = ",".join(url.removeprefix("http://") for url in served.urls)
        connection = {"conn_type": "pulsar_admin", "host": host, "password": served.token}
        with dags(name, folder, connection, **settings) as root:
            yield World(name, root, served)


@contextmanager
def dags(name: str, folder: Path, connection: dict[str, Any], **settings: Any) -> Iterator[Path]:
    """The DAGs of one cluster in the folder of this process's Airflow; the storage root."""
    clusters = folder / "clusters.yaml"
    always = {"connection": f"pulsar_{name}", "host_usage_interval_minutes": 1 / 60}
    clusters.write_text(yaml.safe_dump({"clusters": {name: always | settings}}))
    environment = {
        "AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE": str(clusters),
        "AIRFLOW__PULSAR_REBALANCER__STORAGE_ROOT": str(folder / "runs"),
        f"AIRFLOW_CONN_PULSAR_{name.upper()}": json.dumps(connection),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
    }
    shutil.copy(SOURCE / "dags" / "pulsar_rebalancer_dags.py", HOME / "dags")
    with mock.patch.dict(os.environ, environment):
        yield folder / "runs"
    (HOME / "dags" / "pulsar_rebalancer_dags.py").unlink()


@contextmanager
def decided_in_one_session() -> Iterator[None]:
    """Decide in one Spark session, with the application that the DAG submits: only Spark's start is spared."""
    from pyspark.sql import SparkSession

    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer_airflow.operators.spark_application import CONF, JAVA_OPTIONS, SparkApplicationOperator
    from pulsar_rebalancer_spark import rebalance
    from pulsar_rebalancer_spark.application import session as make_session

    running = SparkSession.getActiveSession()
    builder = SparkSession.builder.master("local[2]").config(map={**CONF})
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1")
    builder.config("spark.driver.extraJavaOptions", JAVA_OPTIONS).getOrCreate()
    session = make_session()
    session.sparkContext.setLogLevel("ERROR")

    def decide(operator: Any, context: Any, connection: Any) -> None:
        *_, run = operator.application_args
        rebalance.decide_run(lambda: session, RunInput.read(run))

    with mock.patch.object(SparkApplicationOperator, "_submit", decide):
        yield
    if running is None:
        session.stop()
