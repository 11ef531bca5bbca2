"""What Airflow loads at start, through the entry point `airflow.plugins`."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class PulsarRebalancerPlugin(AirflowPlugin):
    """Registers the rebalancer with Airflow."""

    name = "pulsar_rebalancer"
