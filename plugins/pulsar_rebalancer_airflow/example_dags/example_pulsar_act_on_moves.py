"""Run when a cluster's bundles have moved, for example to invalidate a cache or annotate a chart."""

from typing import Any

from airflow.sdk import dag, task

from pulsar_rebalancer_airflow.state_store import moves_asset

CLUSTER = "east"
"""Name in the clusters file."""


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
