"""Messages about a rolling restart: restart a broker, the roll has stopped, or bundles are elsewhere after its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alerts.alert_conditions import Condition
from pulsar_rebalancer.show.alerts.incidents import Incident, PendingMessage
from pulsar_rebalancer.show.alerts.messages import compose
from pulsar_rebalancer.state.roll_document import Phase
from pulsar_rebalancer_airflow.notifications.alerting import deliver, run_link

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.state.roll_document import Roll


def tell_of_roll(context: Context, entry: ClusterEntry, roll: Roll) -> Roll:
    """Send the message that is due, if any, and return the document with an updated `asked`.

    A restart request that no receiver accepted is sent again when the roll next changes; a message about the roll's end
    is sent only once.
    """
    settings = entry.settings
    asks = roll.active and roll.phase is Phase.RESTARTING and not settings.roll_restart_dag
    if asks and roll.asked != roll.broker:
        condition, reason = Condition.ROLL_ASKS, Reason.ROLLING
    elif roll.ended not in (None, Reason.ROLLED):
        condition, reason = Condition.ROLL_STOPPED, roll.ended
    elif roll.ended and roll.elsewhere:
        condition, reason = Condition.ROLL_ELSEWHERE, roll.ended
    else:
        return roll
    if settings.alert_connection:
        now = datetime.now(UTC)
        incident = Incident(since=roll.since or now, seen_at=now, reasons={reason: 1}, detail=roll.progress)
        message = compose(entry.name, PendingMessage(condition, False, incident), [roll.progress], run_link(context))
        if not any(deliver(settings.alert_connection, [message])):
            return roll
    return roll.model_copy(update={"asked": roll.broker}) if asks else roll
