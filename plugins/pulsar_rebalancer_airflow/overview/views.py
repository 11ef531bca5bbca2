"""Where the page stands in Airflow's UI: in its navigation, and as a tab of DAGs and of their runs."""

from __future__ import annotations

from typing import Any

from pulsar_rebalancer_airflow.validation.link import PREFIX, base_path

ROUTE = "pulsar-balance"
"""Part of the UI's own address that opens the page."""


def external_views() -> list[dict[str, Any]]:
    """Return the entries of the plugin; Airflow fills in ids and frames what has a route.

    Airflow knows no tab of some DAGs alone: on the DAGs of others the page says that it is not about them.
    """
    base = f"{base_path()}{PREFIX}/page"
    common = {"icon": f"{base}/static/icon-light.svg", "icon_dark_mode": f"{base}/static/icon-dark.svg"}
    return [
        {"name": "Pulsar balance", "href": base, "destination": "nav", "url_route": ROUTE, "nav_top_level": True}
        | common,
        {"name": "Balance", "href": f"{base}/{{DAG_ID}}", "destination": "dag", "url_route": f"{ROUTE}-dag"} | common,
        {
            "name": "Balance",
            "href": f"{base}/{{DAG_ID}}?run_id={{RUN_ID}}",
            "destination": "dag_run",
            "url_route": f"{ROUTE}-run",
        }
        | common,
    ]
