"""Messages about a rolling restart: restart a broker or no longer, the roll stopped, or bundles are elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alerts.alert_conditions import Condition, end_of_roll
from pulsar_rebalancer.show.alerts.incidents import Incident, PendingMessage
from pulsar_rebalancer.show.alerts.messages import compose
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
    asked = roll.broker if roll.may_restart and not entry.settings.roll_restart_dag else ""
    if roll.asked and roll.asked not in (asked, roll.stranded):
        reason = Reason.BROKER_SKIPPED if _skipped(roll) else Reason.ROLLING
        if _sent(context, entry, roll, Condition.ROLL_ASKS, reason, over=True):
            changes["asked"] = ""
    elif asked and not roll.asked and _sent(context, entry, roll, Condition.ROLL_ASKS, Reason.ROLLING):
        changes["asked"] = asked
    if roll.ended and (end := end_of_roll(roll)):
        changes["untold"] = not _sent(context, entry, roll, end, roll.ended)
    return roll.model_copy(update=changes)


def _skipped(roll: Roll) -> bool:
    """Return whether a person skipped the broker that people were asked to restart."""
    outcome = roll.outcome if roll.broker == roll.asked else roll.done.get(roll.asked)
    return outcome is Reason.BROKER_SKIPPED


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
