"""What an operator sees of Airflow while it runs: params, XComs, and the state of one cluster's asset."""

from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from airflow.sdk import Asset, Context

from pulsar_rebalancer_airflow.options import storage_of
from pulsar_rebalancer_airflow.state_store import ALL_DOCUMENTS, StateStore, state_asset


@dataclass
class MemoryState:
    """One asset's state, as the first run left it; every write is noted."""

    documents: dict[str, Any] = field(
        default_factory=lambda: {model.KEY: model().model_dump(mode="json") for model in ALL_DOCUMENTS}
    )
    writes: list[str] = field(default_factory=list)

    def get(self, key: str, default: Any = None) -> Any:
        return self.documents.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.documents[key] = value
        self.writes.append(key)


def store_of(state: MemoryState, cluster: str = "east") -> StateStore:
    return StateStore(state, storage_of(cluster))


@dataclass
class Accessors:
    cluster: str
    state: Any

    def __getitem__(self, asset: Asset) -> Any:
        if asset.name != state_asset(self.cluster).name:
            raise KeyError(asset.name)
        return self.state


@dataclass
class TaskInstance:
    xcoms: dict[tuple[str, str], Any] = field(default_factory=dict)
    pushed: dict[str, Any] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    """States of the runs of another DAG, by id."""
    paused: bool = False
    """Whether the other DAG is paused in Airflow."""
    try_number: int = 1
    max_tries: int = 0

    def get_dag(self, dag_id: str) -> SimpleNamespace:
        return SimpleNamespace(dag_id=dag_id, is_paused=self.paused)

    def get_dr_count(self, dag_id: str, *, run_ids: list[str] | None = None, states: list[str] | None = None) -> int:
        asked = self.runs if run_ids is None else run_ids
        return sum(run_id in asked and (not states or state in states) for run_id, state in self.runs.items())

    def get_task_states(
        self, *, dag_id: str, run_ids: list[str], task_ids: list[str] | None = None
    ) -> dict[str, dict[str, str]]:
        return {run_id: dict(self.states) for run_id in run_ids}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, *, task_ids: str, key: str) -> Any:
        return self.xcoms.get((task_ids, key))


class OutletEvents(dict[str, Any]):
    def __getitem__(self, alias: Any) -> Any:
        events = self.setdefault(alias.name, [])
        return SimpleNamespace(add=lambda asset, extra=None: events.append((asset.name, extra)))


def context(
    cluster: str,
    state: Any,
    *,
    params: dict[str, Any] | None = None,
    xcoms: dict[tuple[str, str], Any] | None = None,
    run_type: str = "manual",
    user: str | None = "ada",
    states: dict[str, str] | None = None,
    started: datetime | None = None,
    dag_id: str = "",
    run_id: str = "",
    cleared: int = 0,
) -> Context:
    made: Any = {
        "asset_state_store": Accessors(cluster, state),
        "params": params or {},
        "ti": TaskInstance(xcoms or {}, states=states or {}),
        "dag_run": SimpleNamespace(
            dag_id=dag_id or f"pulsar_rebalance__{cluster}",
            run_id=run_id or f"{run_type}__1",
            run_type=run_type,
            triggering_user_name=user,
            start_date=started,
            clear_number=cleared,
        ),
        "outlet_events": OutletEvents(),
    }
    return made  # type: ignore[no-any-return]
