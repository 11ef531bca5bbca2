"""The reasons why nothing may be moved now, including who gave the orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.orders.calendar import shut
from pulsar_rebalancer.storage.layout import time_of

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.state.orders.calendar import Shut
    from pulsar_rebalancer.state.orders.control_document import Control


class Closed(NamedTuple):
    """A reason why nothing is moved. The detail gives the end time, the person and the person's reason."""

    reason: Reason
    detail: str


class PauseInForce(NamedTuple):
    """The end of a pause, and a phrase that says who ordered it and why."""

    until: datetime
    because: str


class JudgedRun(NamedTuple):
    """The run that the reasons apply to.

    Attributes:
        at: time of the run's sample.
        previous: id of the previously recorded plan (the name of that plan's run folder); empty if there is none.
    """

    at: datetime
    previous: str = ""


LASTING = (Reason.OBSERVE, Reason.CONTROL_UNREADABLE)
"""Reasons that close the gate until a person changes something; all others end by themselves."""


def closings(settings: Settings, control: Control, now: datetime, sample: JudgedRun | None = None) -> list[Closed]:
    """Return all reasons why nothing may be moved now; empty if moves are allowed.

    Args:
        settings: settings from the clusters file or of a plan.
        control: people's orders.
        sample: the run; None if there is no particular run, in which case an order to skip a run does not apply.
    """
    closed = []
    if not settings.mode.moves:
        closed.append(Closed(Reason.OBSERVE, f"mode {settings.mode}"))
    if control.unreadable:
        closed.append(Closed(Reason.CONTROL_UNREADABLE, control.unreadable))
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
    """Return the pause from the clusters file or a person, current or past; of two, the one that ends later."""
    pauses = (
        [PauseInForce(settings.pause.until, f"by the clusters file: {settings.pause.reason}")] if settings.pause else []
    )
    pauses += [PauseInForce(control.pause.until, control.pause.because)] if control.pause else []
    return max(pauses, default=None)


def _until(calendar: Shut) -> str:
    until = f"until {calendar.opens:%Y-%m-%d %H:%M %Z}" if calendar.opens else "and none follows"
    return f"{until}: {calendar.why}" if calendar.why else until


def _skips(ordered_at: datetime, sample: JudgedRun) -> bool:
    """Return whether an order to skip a run applies to this run: only the first run after the order is skipped.

    The order need not be marked as done: the previous plan shows whether a run has been recorded since the order. A
    reset of the state drops that plan, so one more run is skipped.
    """
    previous = time_of(sample.previous)
    return sample.at > ordered_at and (previous is None or previous <= ordered_at)
