"""A run of the control DAG, its tasks one after the other."""

from typing import Any

from tests.airflow_context import MemoryState, context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.operators import ControlOperator, OrderOperator


def control(
    storage: ClusterStorage,
    state: MemoryState,
    settings: Settings,
    params: dict[str, Any],
    *,
    runs: dict[str, str] | None = None,
    cleared: int = 0,
    timeout_seconds: float = 30,
) -> dict[str, Any]:
    """What the *control* task says."""
    entry = ClusterEntry(name=CLUSTER, given={}, settings=settings)
    given: Any = context(CLUSTER, state, params=params, cleared=cleared)
    given["ti"].runs = runs or {}
    ordered = OrderOperator(task_id="order", entry=entry, root=storage.root).execute(given)
    operator = ControlOperator(
        task_id="control", entry=entry, root=storage.root, ordered=ordered, timeout_seconds=timeout_seconds
    )
    return operator.execute(given)
