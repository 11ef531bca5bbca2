"""When to send alerts about a cluster's conditions: once when a condition starts and once when it ends.

A run finds a condition present, absent or unknown. Open conditions are stored between runs, so a
lasting one is reported only once; it ends after a set quiet time of absence. A message is sent again
by every run until at least one receiver has accepted it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alert_conditions import Condition, EndedRun, Observation
from pulsar_rebalancer.show.measurements import hits_text
from pulsar_rebalancer.state import StateDocument
from pulsar_rebalancer.storage.documents import time_of
from pulsar_rebalancer.texts import number_of


class Incident(BaseModel):
    """One condition, from its start until a message about its end has been delivered.

    Attributes:
        since, seen_at: when the condition was first and last present.
        over_at: time of the first run after `seen_at` without the condition; None while it is present.
        unwatched: why the condition is no longer checked; None if it is checked.
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

    `began_at` and `run_at` are when it first and last ran, `run` the latest run's folder (empty: none
    yet).
    """

    KEY: ClassVar[str] = "alerts"

    began_at: AwareDatetime | None = None
    run_at: AwareDatetime | None = None
    run: str = ""
    incidents: dict[Condition, Incident] = {}


class WatchState(AlertsState):
    """The `watch` document: open conditions that the watch DAG observed. Only it writes the document."""

    KEY: ClassVar[str] = "watch"


_Open = TypeVar("_Open", bound=AlertsState)


@dataclass(frozen=True)
class PendingMessage:
    """A message that no receiver has accepted yet; `is_over` means that it reports a condition's end."""

    condition: Condition
    is_over: bool
    incident: Incident


def update_state(state: _Open, observations: Mapping[Condition, Observation], now: datetime, run: str = "") -> _Open:
    """Return the state after a run; conditions without an observation keep their state.

    `run` is the name of the run's folder; empty without a run. If a later run has already been checked,
    its observations are ignored: tasks of the older run were cleared and repeated.
    """
    state = state.model_copy(update={"began_at": min(state.began_at or now, now), "run_at": now})
    latest_at = time_of(state.run)
    if run and run < state.run and not (latest_at is not None and latest_at > now):  # a clock was set back
        return state
    incidents = dict(state.incidents)
    for condition, seen in observations.items():
        incident = incidents.get(condition)
        if seen.is_present:
            incidents[condition] = _updated_incident(incident, seen, now)
        elif incident is not None:
            unwatched = incident.unwatched if incident.over_at else seen.why_unwatched
            over_at = min(incident.over_at or now, now)
            incidents[condition] = incident.model_copy(update={"over_at": over_at, "unwatched": unwatched})
    return state.model_copy(update={"run": run or state.run, "incidents": incidents})


def _updated_incident(incident: Incident | None, seen: Observation, now: datetime) -> Incident:
    incident = incident or Incident(since=now, seen_at=now)
    update = {"seen_at": now, "reasons": dict(seen.reasons), "detail": seen.detail, "over_at": None, "unwatched": None}
    return incident.model_copy(update=update)


def pending_messages(state: AlertsState, now: datetime, quiet_period: timedelta) -> list[PendingMessage]:
    """Return the messages to send now, in the order of `Condition`.

    If a condition ended before the message about its start was delivered, only its end is reported.
    """
    pending = []
    for condition in Condition:
        incident = state.incidents.get(condition)
        if incident is None:
            continue
        over = incident.over_at is not None and now - incident.over_at >= quiet_period
        if over or (incident.over_at is None and not incident.told):
            pending.append(PendingMessage(condition, over, incident))
    return pending


def record_delivery(state: _Open, message: PendingMessage) -> _Open:
    """Return the state after a message was delivered; a condition reported as over is dropped."""
    incidents = dict(state.incidents)
    if message.is_over:
        del incidents[message.condition]
    else:
        incidents[message.condition] = message.incident.model_copy(update={"told": True})
    return state.model_copy(update={"incidents": incidents})


MAX_REASONS_LISTED = 10
"""Maximum number of reason codes in a message."""


@dataclass(frozen=True)
class AlertMessage:
    """A one-line title and a plain-text body. Receivers choose colours and icons by `kind`."""

    title: str
    body: str
    kind: Literal["failure", "success"]


def make_message(cluster: str, pending: PendingMessage, values: Sequence[str], link: str) -> AlertMessage:
    """Return the message for a condition that has started or ended; `link` leads to the run in Airflow's UI."""
    condition, incident = pending.condition, pending.incident
    detail = f" ({incident.detail})" if incident.detail else ""
    lines = [f"Cluster: {cluster}", f"Condition: {condition} ({condition.label})", _line("Started", incident.since)]
    if pending.is_over:
        lines.append(_line("Last seen", incident.seen_at) + detail)
        if incident.over_at:
            lines.append(_line("Resolved", incident.over_at))
        if incident.unwatched:
            lines.append(f"The condition is no longer checked ({incident.unwatched}): {incident.unwatched.meaning}")
    else:
        lines.append(f"What: {condition.meaning}{detail}")
    lines += ["Reasons:", *_reason_lines(incident.reasons, with_actions=not pending.is_over)]
    lines += ["Values:", *(f"  {line}" for line in values or ["none, because the run ended too early"])]
    lines.append(f"What to do: {'nothing, because the condition has ended.' if pending.is_over else condition.action}")
    lines.append(f"Run: {link}")
    title = f"{'[Resolved] ' if pending.is_over else ''}Pulsar {cluster}: {condition.label}"
    return AlertMessage(title=title, body="\n".join(lines), kind="success" if pending.is_over else "failure")


def _line(name: str, time: datetime) -> str:
    return f"{name}: {time:%Y-%m-%d %H:%M:%S %Z}"


def _reason_lines(reasons: Mapping[Reason, int], *, with_actions: bool = False) -> list[str]:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    lines = [
        f"  {code} x{count}: {code.meaning} {code.action if with_actions else ''}".rstrip()
        for code, count in ordered[:MAX_REASONS_LISTED]
    ]
    return lines + ([f"  and {len(ordered) - MAX_REASONS_LISTED} more"] if len(ordered) > MAX_REASONS_LISTED else [])


def run_value_lines(run: EndedRun) -> list[str]:
    lines, summary = [], run.summary
    if summary is not None:
        if summary.score_min is not None and summary.score_max is not None:
            span = f"({summary.score_min:.1f} to {summary.score_max:.1f} %) over {number_of(summary.brokers, 'broker')}"
            lines.append(f"score range: {summary.score_range:.1f} points {span}")
        if hits := hits_text(summary):
            lines.append(f"most hits of a pair: {hits}")
    if run.outcome is not None and run.outcome.moves:
        moves = run.outcome.moves
        verified, astray = sum(move.ok for move in moves), run.outcome.move_counts.get(Reason.ASTRAY, 0)
        lines.append(f"moves: {verified} of {len(moves)} verified, {astray} astray")
    if run.validation is not None and run.validation.findings:
        counts = Counter(finding.effect.value for finding in run.validation.findings)
        lines.append("findings: " + ", ".join(f"{count} {effect}" for effect, count in sorted(counts.items())))
    in_force = (run.outcome and run.outcome.in_force) or (run.request and run.request.in_force)
    return [*lines, f"in force: {in_force}"] if in_force else lines
