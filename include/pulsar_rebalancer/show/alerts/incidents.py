"""Which conditions of a cluster are told to people, and when: once when one starts, once when it is over.

A run sees a condition, sees that it is not there, or cannot tell. What was seen before is kept between runs, so a
condition that lasts is told once. It is over when it has stayed away for a quiet time; one that comes back earlier
never ended. A message counts as told when a receiver has taken it; until then every run tries it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alerts.alert_conditions import Condition
from pulsar_rebalancer.storage.layout import time_of

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from pulsar_rebalancer.show.alerts.alert_conditions import Observation

VERSION = 1


class Incident(BaseModel):
    """One condition from its start until its end was told.

    Attributes:
        since: when it was first seen.
        seen_at: when it was last seen.
        over_at: the first run since then that saw it gone; None while it lasts.
        unwatched: why nobody looks for it any more; None when it was seen to be gone.
        reasons, detail: as last seen.
        told: whether the message of its start was sent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: AwareDatetime
    seen_at: AwareDatetime
    over_at: AwareDatetime | None = None
    unwatched: Reason | None = None
    reasons: dict[Reason, int] = {}
    detail: str = ""
    told: bool = False


class AlertsState(BaseModel):
    """The open conditions of a cluster, one document with one writer.

    Attributes:
        began_at: when the writer first looked.
        run_at: when it last looked.
        run: name of the newest run's folder that it looked at; empty before the first.
        incidents: the open conditions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = VERSION
    began_at: AwareDatetime | None = None
    run_at: AwareDatetime | None = None
    run: str = ""
    incidents: dict[Condition, Incident] = {}


@dataclass(frozen=True)
class PendingMessage:
    """A message that no receiver has taken yet.

    Attributes:
        condition: what it is about.
        over: whether it tells the end.
        incident: the condition's.
    """

    condition: Condition
    over: bool
    incident: Incident


def parse_alerts(document: object) -> AlertsState:
    """Return the stored document; one that is missing, damaged or of another version is an empty one.

    Telling a condition once more is the lesser evil than never telling any again.
    """
    if not isinstance(document, Mapping) or document.get("version") != VERSION:
        return AlertsState()
    try:
        return AlertsState.model_validate(document)
    except ValidationError:
        return AlertsState()


def advance(
    state: AlertsState, observations: Mapping[Condition, Observation], now: datetime, run: str = ""
) -> AlertsState:
    """Return the state after a run.

    Args:
        state: before it.
        observations: what was seen; a condition that is left out stays as it was.
        now: the present.
        run: name of the run's folder, which sorts by time. What is seen in an older run than the newest one is not
            taken: somebody cleared it. Empty when it has none.
    """
    state = state.model_copy(update={"began_at": min(state.began_at or now, now), "run_at": now})
    newest_at = time_of(state.run)
    if run and run < state.run and not (newest_at is not None and newest_at > now):  # a clock was set back
        return state
    incidents = dict(state.incidents)
    for condition, seen in observations.items():
        incident = incidents.get(condition)
        if seen.present:
            incidents[condition] = _there(incident, seen, now)
        elif incident is not None:
            unwatched = incident.unwatched if incident.over_at else seen.unwatched
            over_at = min(incident.over_at or now, now)
            incidents[condition] = incident.model_copy(update={"over_at": over_at, "unwatched": unwatched})
    return state.model_copy(update={"run": run or state.run, "incidents": incidents})


def _there(incident: Incident | None, seen: Observation, now: datetime) -> Incident:
    incident = incident or Incident(since=now, seen_at=now)
    found = {"seen_at": now, "reasons": dict(seen.reasons), "detail": seen.detail, "over_at": None, "unwatched": None}
    return incident.model_copy(update=found)


def pending_messages(state: AlertsState, now: datetime, quiet: timedelta) -> list[PendingMessage]:
    """Return the messages to be sent now, in the order of `Condition`.

    A condition that ended before its start could be told is told once, as over.
    """
    found = []
    for condition in Condition:
        incident = state.incidents.get(condition)
        if incident is None:
            continue
        over = incident.over_at is not None and now - incident.over_at >= quiet
        if over or (incident.over_at is None and not incident.told):
            found.append(PendingMessage(condition, over, incident))
    return found


def delivered(state: AlertsState, message: PendingMessage) -> AlertsState:
    """Return the state after a pending message was sent: a condition whose end was told is no longer kept."""
    incidents = dict(state.incidents)
    if message.over:
        del incidents[message.condition]
    else:
        incidents[message.condition] = message.incident.model_copy(update={"told": True})
    return state.model_copy(update={"incidents": incidents})
