"""What the page says that Airflow alone knows: when the next run is, where a run's files lie, where to read more."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.models.dag import DagModel
from airflow.models.xcom import XComModel
from sqlalchemy import select

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.overview.model import Links, Schedule, State
from pulsar_rebalancer.run.run_folder import find_run
from pulsar_rebalancer_airflow.validation.link import base_path, page_path
from pulsar_rebalancer_airflow.validation.page import page_of

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pulsar_rebalancer.overview.model import Overview
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath


def schedule(session: Session, dag_id: str) -> Schedule:
    """Return what Airflow knows of a DAG; nothing of one that it does not have."""
    dag = session.get(DagModel, dag_id)
    return Schedule(paused=dag.is_paused, next_run_at=dag.next_dagrun_create_after) if dag else Schedule()


def run_folder(session: Session, storage: ClusterStorage, dag_id: str, run_id: str) -> StoragePath | None:
    """Return the folder of a DAG run as its task collect left it; None when there is none of this very run."""
    of_run = (XComModel.dag_id == dag_id, XComModel.run_id == run_id)
    left = session.scalars(
        select(XComModel).where(*of_run, XComModel.task_id == "collect", XComModel.key == "return_value")
    ).first()
    if left is None:
        return None
    try:
        return find_run(storage, str(XComModel.deserialize_value(left)), run_id)
    except RebalancerError:
        return None


def with_links(found: Overview, dag_id: str, storage: ClusterStorage) -> Overview:
    """Return it with the addresses of its run, the log that says most of it, and its validation result."""
    dag = f"{base_path()}/dags/{quote(dag_id, safe='')}"
    status = found.status.model_copy(update={"dag_id": dag_id})
    links = Links(dag=dag)
    folder = storage.run(found.folder)
    if folder is not None:
        run = f"{dag}/runs/{quote(found.run_id, safe='')}"
        validation = page_path(dag_id, found.run_id, found.folder) if page_of(folder).exists() else ""
        task = "validate" if status.state is State.BLOCKED else "report"
        links = Links(dag=dag, run=run, log=f"{run}/tasks/{task}", validation=validation)
    return found.model_copy(update={"status": status, "links": links})
