"""Balance a cluster as soon as a deployment has ended, without waiting for hits."""

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import dag, task

CLUSTER = "east"
"""Name in the clusters file."""


@dag(schedule=None, tags={"example", "pulsar"})
def example_pulsar_balance_after_deployment() -> None:
    """Deploy, then start a run that moves bundles to the new brokers at once."""

    @task
    def deploy() -> str:
        """Add brokers here; return what was done, which the run's summary will name as the reason."""
        return "two brokers were added"

    # The run obeys mode, caps, pauses and windows like any other.
    TriggerDagRunOperator(
        task_id="balance",
        trigger_dag_id=f"pulsar_rebalance__{CLUSTER}",
        conf={"force": deploy(), "max_bundles_per_run": 20},
        logical_date=None,
        # The run refuses parameters that it does not know.
        openlineage_inject_parent_info=False,
    )


example_pulsar_balance_after_deployment()
