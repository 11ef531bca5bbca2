"""Run when a cluster's bundles have moved, for example to invalidate a cache or to note it in a chart."""

from typing import Any

from airflow.sdk import dag, task

from pulsar_rebalancer_airflow.state_store import moves_asset

CLUSTER = "east"
"""Name in the clusters file."""


@dag(schedule=[moves_asset(CLUSTER)], tags={"example", "pulsar"})
def example_pulsar_act_on_moves() -> None:
    """Report every run that moved or split bundles since this DAG ran last."""

    @task
    def act(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        """Return cluster, plan, folder, and numbers of bundles moved and split, one entry per run."""
        return [event.extra for events in triggering_asset_events.values() for event in events]

    act()


example_pulsar_act_on_moves()
