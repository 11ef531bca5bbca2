"""Send your own request to the brokers through the package's connection, and alert operators if it fails."""

import asyncio
from typing import Any

from airflow.sdk import BaseOperator, Context, dag

from pulsar_rebalancer_airflow.hooks import PulsarAdminHook
from pulsar_rebalancer_airflow.notifications import AlertNotifier


class BrokerVersionsOperator(BaseOperator):
    """Return the Pulsar version of each broker, by brokerId. A retry sends the requests again."""

    template_fields = ("pulsar_admin_conn_id",)

    def __init__(self, *, pulsar_admin_conn_id: str = PulsarAdminHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pulsar_admin_conn_id = pulsar_admin_conn_id

    def execute(self, context: Context) -> dict[str, str]:
        """Query all brokers at the same time. Raises AdminError if one refuses the request or does not answer."""
        return asyncio.run(self._ask())

    async def _ask(self) -> dict[str, str]:
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
