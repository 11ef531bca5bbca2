"""The reasons why nothing may be moved now, with the people who gave the orders."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.orders.calendar import shut
from pulsar_rebalancer.storage.layout import time_of

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.config.settings import BreakerRules, Settings
    from pulsar_rebalancer.state.orders.breaker import Breaker
    from pulsar_rebalancer.state.orders.calendar import Shut
    from pulsar_rebalancer.state.orders.control_document import Control


class Closed(NamedTuple):
    """A reason why nothing is moved. The detail has the end time, the person and the person's reason."""

    reason: Reason
    detail: str


class JudgedRun(NamedTuple):
    """The run that the reasons apply to.

    Attributes:
        at: time of the run's sample.
        previous: id of the previously recorded plan, which is the name of its run's folder; empty if there is none.
    """

    at: datetime
    previous: str = ""


def closings(settings: Settings, control: Control, now: datetime, sample: JudgedRun | None = None) -> list[Closed]:
    """Return all reasons why nothing may be moved now; empty if moves are allowed.

    Args:
        settings: settings from the clusters file or of a plan.
        control: people's orders.
        sample: the run; None if there is no particular run, so that an order to skip a run does not apply.
    """
    closed = []
    if not settings.mode.moves:
        closed.append(Closed(Reason.OBSERVE, f"mode {settings.mode}"))
    if control.unreadable:
        closed.append(Closed(Reason.CONTROL_UNREADABLE, control.unreadable))
    closed_at = control.breaker_closed.at if control.breaker_closed else None
    if settings.breaker is not None and control.breaker.is_open(settings.breaker, closed_at, now):
        closed.append(Closed(Reason.BREAKER_OPEN, _opened(control.breaker, settings.breaker)))
    paused = _paused(settings, control, now)
    if paused:
        closed.append(Closed(Reason.PAUSED, paused))
    calendar = shut(settings, now)
    if calendar is not None:
        closed.append(Closed(calendar.reason, _until(calendar)))
    if control.skip is not None and sample is not None and _skips(control.skip.at, sample):
        closed.append(Closed(Reason.SKIPPED, control.skip.because))
    return closed


def _paused(settings: Settings, control: Control, now: datetime) -> str:
    """Return the end and reason of the pause, from the clusters file or a person.

    If there are two, the later end applies.
    """
    pauses = [(settings.pause.until, f"by the clusters file: {settings.pause.reason}")] if settings.pause else []
    pauses += [(control.pause.until, control.pause.because)] if control.pause else []
    until, because = max(pauses, default=(now, ""))
    return f"until {until:%Y-%m-%d %H:%M %Z} {because}" if now < until else ""


def _until(calendar: Shut) -> str:
    until = f"until {calendar.opens:%Y-%m-%d %H:%M %Z}" if calendar.opens else "and none follows"
    return f"{until}: {calendar.why}" if calendar.why else until


def _opened(breaker: Breaker, rules: BreakerRules) -> str:
    closes = breaker.opened_at + timedelta(minutes=rules.minutes) if breaker.opened_at else None
    return f"until {closes:%Y-%m-%d %H:%M %Z}: {breaker.why}"


def _skips(ordered_at: datetime, sample: JudgedRun) -> bool:
    """Return whether an order to skip a run applies to this run. It must be the first run collected after the order.

    The order does not need to be marked as done, because the previous plan shows whether a run was recorded after it. A
    reset of the state drops that plan, so one more run is skipped.
    """
    previous = time_of(sample.previous)
    return sample.at > ordered_at and (previous is None or previous <= ordered_at)
