"""The Airflow plugin, loaded at startup through the entry point `airflow.plugins`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from pulsar_rebalancer_airflow import listeners
from pulsar_rebalancer_airflow.overview.views import external_views
from pulsar_rebalancer_airflow.validation.validation_link import PREFIX

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the application. It is imported on the first request, because Airflow loads plugins in every process."""
    from pulsar_rebalancer_airflow.overview.app import app

    await app(scope, receive, send)


class PulsarRebalancerPlugin(AirflowPlugin):
    """The plugin's components: the cluster page, the pages that tasks link to, and a listener for ended runs.

    `provider` registers everything else.
    """

    name = "pulsar_rebalancer"
    fastapi_apps = [{"app": pages, "url_prefix": PREFIX, "name": "Pulsar rebalancer"}]
    external_views = external_views()
    listeners = [listeners]
