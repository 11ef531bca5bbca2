"""Example DAGs. Airflow does not load them: copy what you need into the DAGs folder, and insert your cluster's name."""

import asyncio
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseOperator, Context, dag, task

from pulsar_rebalancer_airflow.hooks import PulsarAdminHook
from pulsar_rebalancer_airflow.notifications import AlertNotifier
from pulsar_rebalancer_airflow.state_store import moves_asset

CLUSTER = "east"
"""Name of the cluster in the clusters file."""
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


@dag(schedule=[moves_asset(CLUSTER)], tags={"example", "pulsar"})
def example_pulsar_act_on_moves() -> None:
    """Act on every rebalancing run that moved or split bundles since this DAG's last run."""

    @task
    def act(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        """Return one entry per run: `cluster`, `plan_id`, the folder `run`, and bundle counts `moved` and `split`."""
        # Select by the asset: the values together have each event twice, because it came through an alias.
        return [event.extra for event in triggering_asset_events[moves_asset(CLUSTER)]]

    act()


example_pulsar_act_on_moves()


class BrokerVersionsOperator(BaseOperator):
    """Return the Pulsar version of each broker, by brokerId. A retry sends the requests again."""

    template_fields = ("pulsar_admin_conn_id",)

    def __init__(self, *, pulsar_admin_conn_id: str = PulsarAdminHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pulsar_admin_conn_id = pulsar_admin_conn_id

    def execute(self, context: Context) -> dict[str, str]:
        """Query all brokers at the same time. Raises AdminError if one refuses the request or does not answer."""
        return asyncio.run(self._query_versions())

    async def _query_versions(self) -> dict[str, str]:
        async with PulsarAdminHook(self.pulsar_admin_conn_id).get_conn() as admin:
            brokers = await admin.brokers()
            return dict(zip(brokers, await asyncio.gather(*map(admin.version, brokers)), strict=True))


@dag(
    schedule=None,
    tags={"example", "pulsar"},
    on_failure_callback=AlertNotifier(title="{{ dag.dag_id }} failed", body="Run {{ run_id }}"),
)
def example_pulsar_own_operator() -> None:
    """Record the brokers' Pulsar versions."""
    BrokerVersionsOperator(task_id="versions")


example_pulsar_own_operator()
