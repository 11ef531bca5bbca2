"""What the page says that Airflow alone knows: when the next run is, where a run's files lie, where to read more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.asset import AssetModel
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.models.dag import DagModel
from airflow.models.xcom import XComModel
from sqlalchemy import select

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.overview.model import Acts, AirflowFacts, Links, State
from pulsar_rebalancer.run.run_folder import find_run
from pulsar_rebalancer_airflow.locations import APPLY_DAG, CONTROL_DAG, REBALANCE_DAG
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset
from pulsar_rebalancer_airflow.validation.link import base_path, page_path
from pulsar_rebalancer_airflow.validation.page import page_of

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy.orm import Session

    from pulsar_rebalancer.overview.model import Overview
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath


class _Stored:
    """The documents of a cluster in Airflow's asset state store, as the web server reads them; it writes none."""

    def __init__(self, session: Session, cluster: str) -> None:
        self._session = session
        self._asset = state_asset(cluster).name

    def get(self, key: str, default: Any = None) -> Any:
        """Return a stored value, or the default."""
        of_asset = select(AssetStateStoreModel.value).join(AssetModel, AssetModel.id == AssetStateStoreModel.asset_id)
        found = self._session.scalar(of_asset.where(AssetModel.name == self._asset, AssetStateStoreModel.key == key))
        return default if found is None else json.loads(found)

    def set(self, key: str, value: Any) -> None:
        """Refuse: the page writes nothing."""
        raise NotImplementedError(key)


def of_dag(session: Session, storage: ClusterStorage, dag_id: str) -> AirflowFacts:
    """Return what Airflow knows of a cluster by its DAG; nothing of one that it does not have."""
    control, dag = StateStore(_Stored(session, storage.cluster)).control(storage), session.get(DagModel, dag_id)
    if dag is None:
        return AirflowFacts(control=control)
    return AirflowFacts(paused=dag.is_paused, next_run_at=dag.next_dagrun_create_after, control=control)


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


def acts(storage: ClusterStorage, mode: Mode, facts: AirflowFacts, user: BaseUser, now: datetime) -> Acts:
    """Return what a user may do: that what Airflow lets them trigger."""
    manager, cluster, pause = get_auth_manager(), storage.cluster, facts.control.pause

    def allowed(dag_id: str) -> str:
        details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
        may = manager.is_authorized_dag(method="POST", access_entity=DagAccessEntity.RUN, details=details, user=user)
        return dag_id if may else ""

    return Acts(
        control=allowed(f"{CONTROL_DAG}{cluster}"),
        # A run of a DAG that is paused waits, and would force a balance whenever somebody unpauses it.
        rebalance="" if facts.paused else allowed(f"{REBALANCE_DAG}{cluster}"),
        apply=allowed(f"{APPLY_DAG}{cluster}") if mode is Mode.APPROVE else "",
        paused=pause is not None and now < pause.until,
    )


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
