"""What Airflow loads at start, through the entry point `airflow.plugins`."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class PulsarRebalancerPlugin(AirflowPlugin):
    """Names the package in Airflow's list of plugins; the connection type is registered by `provider`."""

    name = "pulsar_rebalancer"
