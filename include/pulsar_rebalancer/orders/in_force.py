"""The reasons why nothing may be moved now, including who gave the orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from pulsar_rebalancer.config.clusters_file import Origin
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import CAPS, Settings
from pulsar_rebalancer.orders.calendar import Shut, shut
from pulsar_rebalancer.orders.control_document import Control
from pulsar_rebalancer.orders.manual_plans import Answers, Drain, Question
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import time_of
from pulsar_rebalancer.texts import one_line


class Closed(NamedTuple):
    """A reason why nothing is moved. The detail gives the end time, the person and the person's reason."""

    reason: Reason
    detail: str


class PauseInForce(NamedTuple):
    until: datetime
    because: str


class JudgedRun(NamedTuple):
    """The run that the reasons apply to; `previous` is the run id of the last recorded plan, or empty."""

    at: datetime
    previous: str = ""


LASTING = (Reason.OBSERVE, Reason.STATE_LOST)
"""Reasons that close the gate until a person changes something; all others end by themselves."""


def closings(settings: Settings, control: Control, now: datetime, sample: JudgedRun | None = None) -> list[Closed]:
    """Return all reasons why nothing may be moved now; without a sample, no order to skip a run applies."""
    closed = []
    if not settings.mode.moves:
        closed.append(Closed(Reason.OBSERVE, f"mode {settings.mode}"))
    if control.lost:
        closed.append(Closed(Reason.STATE_LOST, control.lost))
    until = control.breaker_open_until(settings.breaker)
    if until is not None and now < until:
        closed.append(Closed(Reason.BREAKER_OPEN, f"until {until:%Y-%m-%d %H:%M %Z}: {control.breaker.why}"))
    pause = pause_of(settings, control)
    if pause is not None and now < pause.until:
        closed.append(Closed(Reason.PAUSED, f"until {pause.until:%Y-%m-%d %H:%M %Z} {pause.because}"))
    calendar = shut(settings, now)
    # A rolling restart finishes its current broker outside the windows too; a blackout holds it.
    if calendar is not None and not (control.rolling and calendar.reason is Reason.OUTSIDE_WINDOW):
        closed.append(Closed(calendar.reason, _until(calendar)))
    if control.skip is not None and sample is not None and _skips(control.skip.at, sample):
        closed.append(Closed(Reason.SKIPPED, control.skip.because))
    return closed


def pause_of(settings: Settings, control: Control) -> PauseInForce | None:
    """Return the pause, current or past, from the clusters file or a person: the one that ends later."""
    pauses = (
        [PauseInForce(settings.pause.until, f"by the clusters file: {settings.pause.reason}")] if settings.pause else []
    )
    pauses += [PauseInForce(control.pause.until, control.pause.because)] if control.pause else []
    return max(pauses, default=None)


def _until(calendar: Shut) -> str:
    until = f"until {calendar.opens:%Y-%m-%d %H:%M %Z}" if calendar.opens else "and none follows"
    return f"{until}: {calendar.why}" if calendar.why else until


def _skips(ordered_at: datetime, sample: JudgedRun) -> bool:
    """Return whether an order to skip a run applies to this run: only to the first run after the order.

    The previous plan shows whether a run has been recorded since. A reset drops it: one more run is skipped.
    """
    previous = time_of(sample.previous)
    return sample.at > ordered_at and (previous is None or previous <= ordered_at)


_NAMED = 3

_WORDS = {
    Reason.STATE_LOST: "the state is lost, and orders may be lost with it:",
    Reason.BREAKER_OPEN: "circuit breaker open",
    Reason.PAUSED: "paused",
    Reason.BLACKOUT: "blackout",
    Reason.OUTSIDE_WINDOW: "outside the maintenance windows",
    Reason.SKIPPED: "one run is skipped",
}

_CAPPED = dict(
    zip(
        CAPS,
        (
            "bundles per run",
            "bundles per broker",
            "bundles off a broker",
            "bundles onto a broker",
            "bundles per namespace",
            "bytes/s per run",
        ),
        strict=True,
    )
)

_BY = {Origin.FILE: "the clusters file", Origin.PARAMS: "this run's parameters", Origin.BROKERS: "the brokers"}


@dataclass(frozen=True)
class OrdersInForce:
    """Input for the sentence, in addition to the settings and the reasons why nothing is moved.

    Attributes:
        roll: the last rolling restart, which may still be active.
        started: when the run in progress started, to decide whether a stop affects it; None without one.
        origins: source of each setting; those without an entry come from the clusters file.
    """

    control: Control = field(default_factory=Control)
    drains: Mapping[str, Drain] = field(default_factory=dict)
    roll: Roll = field(default_factory=Roll)
    question: Question = field(default_factory=Question)
    answers: Answers = field(default_factory=Answers)
    started: datetime | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def waits_until(self, settings: Settings, now: datetime) -> datetime | None:
        """Return the deadline for approving a plan; None if no plan is awaiting approval."""
        until = self.question.until(settings.max_awaiting_minutes)
        open_question = settings.mode is Mode.APPROVE and self.question.plan_id not in self.answers.plans
        return until if open_question and until is not None and now < until else None


def sentence(settings: Settings, closed: Sequence[Closed], orders: OrdersInForce, now: datetime) -> str:
    """Return the sentence about the current orders, given the effective settings and `closings`."""
    parts = "; ".join([f"mode {settings.mode}", *beside_the_mode(settings, closed, orders, now)])
    carried_out = "Only moves of the rolling restart are carried out" if orders.roll.active else "Moves are carried out"
    moved = carried_out if settings.mode is not Mode.APPROVE else "Moves wait for approval"
    return one_line(f"{'Nothing is moved' if closed else moved}: {parts}")


def beside_the_mode(settings: Settings, closed: Sequence[Closed], orders: OrdersInForce, now: datetime) -> list[str]:
    return [
        *(
            f"{_WORDS.get(closing.reason, closing.reason)} {closing.detail}"
            for closing in closed
            if closing.reason is not Reason.OBSERVE
        ),
        *_ordered(settings, orders, now),
        *(f"{broker} drained by {drain.by or 'unknown'}: {drain.reason}" for broker, drain in orders.drains.items()),
        *([orders.roll.progress] if orders.roll.active or orders.roll.stranded in orders.drains else []),
        *_asked(settings, orders, now),
        *_times(settings),
        *_limits(settings, orders.origins),
    ]


def _ordered(settings: Settings, orders: OrdersInForce, now: datetime) -> Iterator[str]:
    control, rules = orders.control, settings.breaker
    if control.stop is not None and orders.started is not None and control.stopped_since(orders.started):
        yield f"stopped {control.stop.because}"
    closed, breaker = control.breaker_closed, control.breaker
    if closed is not None and breaker.is_open(rules, None, now) and not breaker.is_open(rules, closed.at, now):
        yield f"circuit breaker closed {closed.because}"


def _asked(settings: Settings, orders: OrdersInForce, now: datetime) -> Iterator[str]:
    """Yield texts about the open question, and about rejected plans that are not asked about again."""
    if settings.mode is not Mode.APPROVE:
        return
    minutes, until = settings.max_awaiting_minutes, orders.waits_until(settings, now)
    if until is not None:
        yield f"plan {orders.question.hash[:16]} waits for approval until {until:%Y-%m-%d %H:%M %Z}"
    for answer in sorted(orders.answers.rejected(now, minutes).values(), key=lambda answer: answer.at)[-_NAMED:]:
        again = f"{answer.at + timedelta(minutes=minutes):%H:%M %Z}"
        moves = f"the moves of plan {answer.question.plan_id}"
        yield f"nobody is asked about {moves} again before {again}, because they were rejected {answer.because}"


def _times(settings: Settings) -> Iterator[str]:
    if settings.maintenance_windows:
        yield f"moved only within {_number(settings.maintenance_windows, 'maintenance window')} of the clusters file"
    if settings.blackouts:
        yield f"not moved within {_number(settings.blackouts, 'blackout')} of the clusters file"
    if settings.breaker is not None:
        yield "watched by the circuit breaker of the clusters file"


def _limits(settings: Settings, origins: Mapping[str, Origin]) -> Iterator[str]:
    for origin, by in _BY.items():
        capped = [
            f"{getattr(settings, name):.12g} {words}"
            for name, words in _CAPPED.items()
            if getattr(settings, name) is not None and _origin(origins, name) is origin
        ]
        if capped:
            yield f"capped by {by} at {', '.join(capped)}"
        for name in ("excluded_namespaces", "excluded_brokers", "excluded_bundles"):
            names = getattr(settings, name)
            if names and _origin(origins, name) is origin:
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                yield f"{name.replace('_', ' ')} by {by}: {', '.join(names[:_NAMED])}{more}"


def _origin(origins: Mapping[str, Origin], name: str) -> Origin:
    return origins.get(name, Origin.FILE)


def _number(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}" + ("s" if len(items) != 1 else "")
