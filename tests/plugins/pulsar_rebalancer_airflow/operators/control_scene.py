from typing import Any

from tests.airflow_context import context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer_airflow.operators import ControlOperator, OrderOperator


def control(storage, state, settings, params, *, runs=None, cleared=0, timeout_seconds=30):
    entry = ClusterEntry(name=CLUSTER, given={}, settings=settings)
    given: Any = context(CLUSTER, state, params=params, cleared=cleared)
    given["ti"].runs = runs or {}
    ordered = OrderOperator(task_id="order", entry=entry, root=storage.root).execute(given)
    operator = ControlOperator(
        task_id="control", entry=entry, root=storage.root, ordered=ordered, timeout_seconds=timeout_seconds
    )
    return operator.execute(given)
