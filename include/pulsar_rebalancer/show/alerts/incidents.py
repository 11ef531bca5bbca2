"""When to send alerts about a cluster's conditions: once when a condition starts and once when it ends.

For each run, a condition is present, absent or unknown. Open conditions are stored between runs, so a condition that
lasts is reported only once. A condition ends once it has been absent for a set quiet time. A message counts as
delivered once at least one receiver has accepted it; until then, every run sends it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alerts.alert_conditions import Condition
from pulsar_rebalancer.state.state_documents import StateDocument
from pulsar_rebalancer.storage.layout import time_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from pulsar_rebalancer.show.alerts.alert_conditions import Observation


class Incident(BaseModel):
    """One condition, from its start until a message about its end has been delivered.

    Attributes:
        since: when the condition was first present.
        seen_at: when the condition was last present.
        over_at: time of the first run after `seen_at` without the condition; None while it is present.
        unwatched: why the condition is no longer checked; None if it is checked.
        reasons, detail: as in the last observation of the condition.
        told: True if the message about the condition's start has been delivered.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: AwareDatetime
    seen_at: AwareDatetime
    over_at: AwareDatetime | None = None
    unwatched: Reason | None = None
    reasons: dict[Reason, int] = {}
    detail: str = ""
    told: bool = False


class AlertsState(StateDocument):
    """The `alerts` document: open conditions that the *report* task observed. Only this task writes it.

    Attributes:
        began_at: when the task first ran.
        run_at: when the task last ran.
        run: folder name of the newest run that was checked; empty if there is none yet.
    """

    KEY: ClassVar[str] = "alerts"

    began_at: AwareDatetime | None = None
    run_at: AwareDatetime | None = None
    run: str = ""
    incidents: dict[Condition, Incident] = {}


class WatchState(AlertsState):
    """The `watch` document: open conditions that the watch DAG observed. Only this DAG writes it."""

    KEY: ClassVar[str] = "watch"


_Open = TypeVar("_Open", bound=AlertsState)


@dataclass(frozen=True)
class PendingMessage:
    """A message that no receiver has accepted yet. `over` is True if it reports that a condition has ended."""

    condition: Condition
    over: bool
    incident: Incident


def advance(state: _Open, observations: Mapping[Condition, Observation], now: datetime, run: str = "") -> _Open:
    """Return the state after a run.

    Args:
        observations: results by condition. Conditions without a result keep their state.
        run: name of the run's folder; empty if there is no run. Observations of a run are ignored if a later run has
            already been checked, which means that the older run's tasks were cleared and repeated.
    """
    state = state.model_copy(update={"began_at": min(state.began_at or now, now), "run_at": now})
    newest_at = time_of(state.run)
    if run and run < state.run and not (newest_at is not None and newest_at > now):  # a clock was set back
        return state
    incidents = dict(state.incidents)
    for condition, seen in observations.items():
        incident = incidents.get(condition)
        if seen.present:
            incidents[condition] = _seen_again(incident, seen, now)
        elif incident is not None:
            unwatched = incident.unwatched if incident.over_at else seen.unwatched
            over_at = min(incident.over_at or now, now)
            incidents[condition] = incident.model_copy(update={"over_at": over_at, "unwatched": unwatched})
    return state.model_copy(update={"run": run or state.run, "incidents": incidents})


def _seen_again(incident: Incident | None, seen: Observation, now: datetime) -> Incident:
    incident = incident or Incident(since=now, seen_at=now)
    update = {"seen_at": now, "reasons": dict(seen.reasons), "detail": seen.detail, "over_at": None, "unwatched": None}
    return incident.model_copy(update=update)


def pending_messages(state: AlertsState, now: datetime, quiet: timedelta) -> list[PendingMessage]:
    """Return the messages to send now, in the same order as in `Condition`.

    If a condition ended before the message about its start was delivered, only its end is reported.
    """
    pending = []
    for condition in Condition:
        incident = state.incidents.get(condition)
        if incident is None:
            continue
        over = incident.over_at is not None and now - incident.over_at >= quiet
        if over or (incident.over_at is None and not incident.told):
            pending.append(PendingMessage(condition, over, incident))
    return pending


def delivered(state: _Open, message: PendingMessage) -> _Open:
    """Return the state after a message was delivered.

    If the message reported that a condition has ended, the condition is dropped.
    """
    incidents = dict(state.incidents)
    if message.over:
        del incidents[message.condition]
    else:
        incidents[message.condition] = message.incident.model_copy(update={"told": True})
    return state.model_copy(update={"incidents": incidents})
