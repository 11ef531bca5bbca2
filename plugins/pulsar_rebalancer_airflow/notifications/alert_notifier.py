"""Send a message from a callback of your own DAG or task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseNotifier

from pulsar_rebalancer.show.alerts.messages import AlertMessage
from pulsar_rebalancer_airflow.notifications.alerting import deliver

if TYPE_CHECKING:
    from airflow.sdk import Context


class AlertNotifier(BaseNotifier):
    """Send a message to every receiver of an Apprise connection, like the package's own alerts.

    Errors are only logged. The log omits the receivers' URLs, which can contain secrets.

    Args:
        title: the message's title in one line; templated.
        body: the message in plain text; templated.
        alert_connection: Airflow connection of type `apprise`.
    """

    template_fields = ("title", "body")

    def __init__(self, *, title: str, body: str, alert_connection: str = "alerts") -> None:
        super().__init__()
        self.title = title
        self.body = body
        self.alert_connection = alert_connection

    def notify(self, context: Context) -> None:
        """Send the message; receivers show it as a failure."""
        deliver(self.alert_connection, [AlertMessage(self.title, self.body, "failure")])
