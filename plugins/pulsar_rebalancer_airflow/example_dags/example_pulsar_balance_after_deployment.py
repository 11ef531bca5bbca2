"""Balance a cluster as soon as a deployment has finished, without waiting for hits to accumulate."""

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import dag, task

CLUSTER = "east"
"""Name in the clusters file."""
REBALANCE = f"pulsar_rebalance__{CLUSTER}"


@dag(schedule=None, tags={"example", "pulsar"})
def example_pulsar_balance_after_deployment() -> None:
    """Deploy, then immediately move bundles to the new brokers, and return the outcome."""

    @task
    def deploy() -> str:
        """Add your brokers here, and return the reason that the run will record."""
        return "two brokers were added"

    # The run obeys mode, pauses, windows and caps like any other. If it fails, so does this task.
    balance = TriggerDagRunOperator(
        task_id="balance",
        trigger_dag_id=REBALANCE,
        conf={"force": deploy(), "max_bundles_per_run": 20},
        logical_date=None,
        wait_for_completion=True,
        poke_interval=5,
        # A run of a paused DAG would never begin.
        fail_when_dag_is_paused=True,
        # The run refuses parameters that it does not know.
        openlineage_inject_parent_info=False,
    )

    @task
    def moves(ti: Any = None) -> Any:
        """Return the number of moves by reason code; empty if the gate stayed closed or nothing had to move."""
        run_id = ti.xcom_pull(task_ids="balance", key="trigger_run_id")
        return ti.xcom_pull(dag_id=REBALANCE, run_id=run_id, task_ids="report")

    balance >> moves()


example_pulsar_balance_after_deployment()
