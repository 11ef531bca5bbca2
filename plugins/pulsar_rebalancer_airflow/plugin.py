"""What Airflow loads at start, through the entry point `airflow.plugins`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from pulsar_rebalancer_airflow import listeners
from pulsar_rebalancer_airflow.overview.views import external_views
from pulsar_rebalancer_airflow.replay.replay_link import ReplayLink
from pulsar_rebalancer_airflow.validation.validation_link import PREFIX, ValidationLink

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the application, loaded with the first request: Airflow loads plugins in every process it has."""
    from pulsar_rebalancer_airflow.overview.app import app

    await app(scope, receive, send)


class PulsarRebalancerPlugin(AirflowPlugin):
    """The page of a cluster, the links to validation results and replay reports, what keeps the schedule going.

    The connection type is registered by `provider`.
    """

    name = "pulsar_rebalancer"
    fastapi_apps = [{"app": pages, "url_prefix": PREFIX, "name": "Pulsar rebalancer"}]
    external_views = external_views()
    operator_extra_links = [ValidationLink(), ReplayLink()]
    listeners = [listeners]
