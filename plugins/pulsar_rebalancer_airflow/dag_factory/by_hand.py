"""The DAG in which a person asks for moves: it makes and shows a plan, and hands it over by its hash."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from pulsar_rebalancer_airflow.dag_factory.defaults import COMMON
from pulsar_rebalancer_airflow.dag_factory.docs import by_hand_page
from pulsar_rebalancer_airflow.dag_factory.params import by_hand_params
from pulsar_rebalancer_airflow.locations import BY_HAND_DAG
from pulsar_rebalancer_airflow.operators import (
    CarryOutOperator,
    CollectForPlanOperator,
    FormOperator,
    PlanByHandOperator,
    ValidateOperator,
)

if TYPE_CHECKING:
    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def by_hand_dag(entry: ClusterEntry, root: str) -> DAG:
    """Return the DAG `pulsar_by_hand__<cluster>`."""
    with DAG(
        f"{BY_HAND_DAG}{entry.name}",
        description=f"Moves bundles of cluster {entry.name} as a person asks for; shows the plan first",
        doc_md=by_hand_page(entry),
        schedule=None,
        **COMMON,
        # It never runs by itself.
        is_paused_upon_creation=False,
        params=by_hand_params(),
        tags={"pulsar", "by hand", entry.name},
    ) as dag:
        form = FormOperator(task_id="form", shows="collect", acts="carry_out")
        collect = CollectForPlanOperator(
            task_id="collect", entry=entry, root=root, execution_timeout=timedelta(minutes=5)
        )
        run: Any = collect.output
        validate = ValidateOperator(task_id="validate", cluster=entry.name, run=run)
        plan = PlanByHandOperator(
            task_id="plan", cluster=entry.name, root=root, run=run, execution_timeout=timedelta(minutes=5)
        )
        form >> collect >> validate >> plan
        form >> CarryOutOperator(task_id="carry_out", entry=entry, root=root)
    return dag
