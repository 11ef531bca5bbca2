"""The DAG in which a person requests moves. One run shows a plan; another, given the plan's hash, carries it out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.run.plan import LONGEST_RUN
from pulsar_rebalancer_airflow.dag_factory.defaults import cluster_dag
from pulsar_rebalancer_airflow.dag_factory.params import by_hand_params
from pulsar_rebalancer_airflow.operators import (
    CarryOutOperator,
    CollectForPlanOperator,
    FormOperator,
    PlanByHandOperator,
    ValidateOperator,
)

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def by_hand_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_by_hand__<cluster>`."""
    with cluster_dag(
        "by_hand",
        entry,
        "by hand",
        description=f"Moves bundles of cluster {entry.name} on request, after showing the plan",
        # A release must not wait for a plan in progress.
        max_active_runs=16,
        dagrun_timeout=LONGEST_RUN,
        default_args={"execution_timeout": timedelta(minutes=5)},
        params=by_hand_params(),
    ) as dag:
        form = FormOperator(task_id="form", shows="collect", acts="carry_out")
        collect = CollectForPlanOperator(task_id="collect", entry=entry, root=root)
        run: Any = collect.output
        validate = ValidateOperator(task_id="validate", cluster=entry.name, run=run)
        # Each of these two tasks is the only writer of its documents in the state store: one instance at a time.
        plan = PlanByHandOperator(task_id="plan", cluster=entry.name, root=root, run=run, max_active_tis_per_dag=1)
        form >> collect >> validate >> plan
        form >> CarryOutOperator(task_id="carry_out", entry=entry, root=root, max_active_tis_per_dag=1)
    return dag
