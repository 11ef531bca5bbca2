"""Messages about a rolling restart: restart a broker or no longer, the roll stopped, or bundles are elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alerts.alert_conditions import Condition, end_of_roll
from pulsar_rebalancer.show.alerts.incidents import Incident, PendingMessage
from pulsar_rebalancer.show.alerts.messages import compose
from pulsar_rebalancer.state.roll_document import Phase
from pulsar_rebalancer_airflow.notifications.alerting import deliver, run_link

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.state.roll_document import Roll


def tell_of_roll(context: Context, entry: ClusterEntry, roll: Roll) -> Roll:
    """Send the messages that are due, and return the document with an updated `asked` and `untold`.

    A restart request, or the end of one, that no receiver accepted is sent again when the roll next changes. A message
    about the roll's end is left to the *report* task then.
    """
    changes: dict[str, Any] = {}
    if _withdrawn(roll) and _sent(context, entry, roll, Condition.ROLL_ASKS, Reason.BROKER_SKIPPED, over=True):
        changes["asked"] = ""
    asks = roll.active and roll.phase is Phase.RESTARTING and not entry.settings.roll_restart_dag
    if asks and roll.asked != roll.broker and _sent(context, entry, roll, Condition.ROLL_ASKS, Reason.ROLLING):
        changes["asked"] = roll.broker
    if roll.ended and (end := end_of_roll(roll)):
        changes["untold"] = not _sent(context, entry, roll, end, roll.ended)
    return roll.model_copy(update=changes)


def _withdrawn(roll: Roll) -> bool:
    """Return whether a person skipped the broker that people were asked to restart."""
    outcome = roll.outcome if roll.broker == roll.asked else roll.done.get(roll.asked)
    return bool(roll.asked) and outcome is Reason.BROKER_SKIPPED


def _sent(
    context: Context, entry: ClusterEntry, roll: Roll, condition: Condition, reason: Reason, *, over: bool = False
) -> bool:
    """Return whether a receiver accepted the message, or there are no receivers."""
    connection, now = entry.settings.alert_connection, datetime.now(UTC)
    if not connection:
        return True
    detail = f"do not restart {roll.asked} for it" if over else roll.progress
    incident = Incident(since=roll.since or now, seen_at=now, reasons={reason: 1}, detail=detail)
    message = compose(entry.name, PendingMessage(condition, over, incident), [roll.progress], run_link(context))
    return any(deliver(connection, [message]))
