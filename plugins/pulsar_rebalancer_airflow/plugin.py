"""What Airflow loads at start, through the entry point `airflow.plugins`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from pulsar_rebalancer_airflow.validation.link import PREFIX, ValidationLink

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the pages of `web`, loaded with the first request: Airflow loads plugins in every process it has."""
    from pulsar_rebalancer_airflow.validation.web import app

    await app(scope, receive, send)


class PulsarRebalancerPlugin(AirflowPlugin):
    """The link to validation results and the pages behind it; the connection type is registered by `provider`."""

    name = "pulsar_rebalancer"
    fastapi_apps = [{"app": pages, "url_prefix": PREFIX, "name": "Pulsar rebalancer"}]
    operator_extra_links = [ValidationLink()]
