"""What lets nothing be moved now, and who wants it so."""

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
    """Why nothing is moved.

    Attributes:
        reason: the code.
        detail: until when, by whom, why.
    """

    reason: Reason
    detail: str


class JudgedRun(NamedTuple):
    """Which run is judged.

    Attributes:
        at: when it was collected.
        previous: id of the plan that was recorded before it, the name of a run's folder; empty when there is none.
    """

    at: datetime
    previous: str = ""


def closings(settings: Settings, control: Control, now: datetime, sample: JudgedRun | None = None) -> list[Closed]:
    """Return all that lets nothing be moved now; empty: something may be.

    Args:
        settings: of the clusters file, or those of a plan.
        control: what people ordered.
        now: the present.
        sample: the run that is judged; None: no run in particular, so none is skipped.
    """
    found = []
    if not settings.mode.moves:
        found.append(Closed(Reason.OBSERVE, f"mode {settings.mode}"))
    if control.unreadable:
        found.append(Closed(Reason.CONTROL_UNREADABLE, control.unreadable))
    closed_at = control.breaker_closed.at if control.breaker_closed else None
    if settings.breaker is not None and control.breaker.is_open(settings.breaker, closed_at, now):
        found.append(Closed(Reason.BREAKER_OPEN, _opened(control.breaker, settings.breaker)))
    paused = _paused(settings, control, now)
    if paused:
        found.append(Closed(Reason.PAUSED, paused))
    calendar = shut(settings, now)
    if calendar is not None:
        found.append(Closed(calendar.reason, _told(calendar)))
    if control.skip is not None and sample is not None and _skips(control.skip.at, sample):
        found.append(Closed(Reason.SKIPPED, control.skip.because))
    return found


def _paused(settings: Settings, control: Control, now: datetime) -> str:
    """Return until when; of the pause in the clusters file and that of a person the one that ends last holds."""
    pauses = [(settings.pause.until, f"by the clusters file: {settings.pause.reason}")] if settings.pause else []
    pauses += [(control.pause.until, control.pause.because)] if control.pause else []
    until, because = max(pauses, default=(now, ""))
    return f"until {until:%Y-%m-%d %H:%M %Z} {because}" if now < until else ""


def _told(calendar: Shut) -> str:
    until = f"until {calendar.opens:%Y-%m-%d %H:%M %Z}" if calendar.opens else "and none follows"
    return f"{until}: {calendar.why}" if calendar.why else until


def _opened(breaker: Breaker, rules: BreakerRules) -> str:
    closes = breaker.opened_at + timedelta(minutes=rules.minutes) if breaker.opened_at else None
    return f"until {closes:%Y-%m-%d %H:%M %Z}: {breaker.why}"


def _skips(ordered_at: datetime, sample: JudgedRun) -> bool:
    """Return whether a run is the one to be skipped: the first that was collected since.

    Whether one was recorded before it tells the plan before it. Nothing has to be written when a run was skipped, and
    after a reset of the state, which forgets that plan, one run more is.
    """
    previous = time_of(sample.previous)
    return sample.at > ordered_at and (previous is None or previous <= ordered_at)
