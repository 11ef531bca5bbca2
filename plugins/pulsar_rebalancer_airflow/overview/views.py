"""The places where the page appears in Airflow's UI: in the navigation, and as a tab on DAGs and runs."""

from __future__ import annotations

from pulsar_rebalancer_airflow.locations import PAGE_ROUTE
from pulsar_rebalancer_airflow.validation.validation_link import PREFIX, base_path


def external_views() -> list[dict[str, object]]:
    """Return the plugin's external views. Airflow inserts ids into the URLs, and shows the views in an iframe.

    Airflow cannot limit a tab to certain DAGs, so the tab of an unrelated DAG shows only a message.
    """
    base = f"{base_path()}{PREFIX}/page"
    # The icons have their own background, because Airflow does not adapt them to a selected entry, which is dark.
    icons = {"icon": f"{base}/static/icon-light.svg", "icon_dark_mode": f"{base}/static/icon-dark.svg"}
    tab, run = f"{base}/{{DAG_ID}}", f"{base}/{{DAG_ID}}?run_id={{RUN_ID}}"
    result = f"{base_path()}{PREFIX}/dags/{{DAG_ID}}/runs/{{RUN_ID}}/validation"
    views: list[dict[str, object]] = [
        # Airflow cuts off longer labels.
        {"name": "Pulsar", "href": base, "destination": "nav", "url_route": PAGE_ROUTE, "nav_top_level": True},
        {"name": "Balance", "href": tab, "destination": "dag", "url_route": f"{PAGE_ROUTE}-dag"},
        {"name": "Balance", "href": run, "destination": "dag_run", "url_route": f"{PAGE_ROUTE}-run"},
        {"name": "Validation", "href": result, "destination": "dag_run", "url_route": "pulsar-validation"},
    ]
    return [view | icons for view in views]
