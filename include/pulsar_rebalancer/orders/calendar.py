"""The calendar that allows or forbids moves: the maintenance windows and blackouts in the clusters file.

Windows start and end in local time. In an hour that occurs twice, a blackout takes the longer, a window
the shorter reading, so a window inside that hour is dropped. In an hour that the clock skips, a window's
bounds move to the clock change; a blackout starts before the change and ends after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

import pendulum
from croniter import croniter

from pulsar_rebalancer.config.field_types import Window
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.order import Hold, OrderKind, Situation, Wording
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import number_of

_MAX_CLOCK_SHIFT = timedelta(hours=3)
"""Longest possible clock change, such as the start of daylight saving time."""

_MAX_CLOSED_PERIODS = 100
"""Maximum number of closed periods to check in the search for the time when moves are allowed again."""


class CalendarClosure(NamedTuple):
    """The reason, `blackout` or `outside_window`, and when moves are allowed again; None if unknown."""

    reason: Reason
    opens_at: datetime | None
    why_closed: str


class _TimeSpan(NamedTuple):
    begin: datetime
    end: datetime


def calendar_closure(settings: Settings, now: datetime) -> CalendarClosure | None:
    """Return why the calendar forbids moves, and until when; None if it allows moves now."""
    first = _first_closure(settings, now)
    if first is None:
        return None
    opens = first.opens_at
    for _ in range(_MAX_CLOSED_PERIODS):
        following = None if opens is None else _first_closure(settings, opens)
        if following is None:
            return first._replace(opens_at=opens)
        opens = following.opens_at
    return first._replace(opens_at=None)


def _first_closure(settings: Settings, time: datetime) -> CalendarClosure | None:
    """Return the first reason that forbids moves, and when it ends; another may apply after that."""
    for blackout in settings.blackouts:
        span = next(_next_spans(blackout, time, is_blackout=True), None)
        if span is not None and span.begin <= time:
            return CalendarClosure(Reason.BLACKOUT, _to_zone(span.end, blackout), blackout.reason)
    following = [
        (span, window)
        for window in settings.maintenance_windows
        for span in [next(_next_spans(window, time, is_blackout=False), None)]
        if span is not None
    ]
    if not settings.maintenance_windows or any(span.begin <= time for span, _ in following):
        return None
    earliest = min(following, key=lambda item: item[0].begin, default=None)
    return CalendarClosure(Reason.OUTSIDE_WINDOW, earliest and _to_zone(earliest[0].begin, earliest[1]), "")


def _to_zone(time: datetime, window: Window) -> datetime:
    return pendulum.instance(time).in_timezone(window.timezone)


def _next_spans(window: Window, time: datetime, *, is_blackout: bool) -> Iterator[_TimeSpan]:
    zone = pendulum.timezone(window.timezone)

    for begin, end in _local_spans(window, time.astimezone(zone).replace(tzinfo=None)):
        begins, ends = _utc_times(begin, zone, is_widest=is_blackout), _utc_times(end, zone, is_widest=is_blackout)
        span = _TimeSpan(min(begins), max(ends)) if is_blackout else _TimeSpan(max(begins), min(ends))
        if span.begin < span.end and span.end > time:
            yield span


def _utc_times(local_time: datetime, zone: tzinfo, *, is_widest: bool) -> tuple[datetime, datetime]:
    """Return the two moments of a local time; for skipped times, they differ only if `is_widest`."""
    first, second = (local_time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first <= second or is_widest:
        return first, second
    after = first.astimezone(zone).utcoffset()

    def is_shifted(seconds: int) -> bool:
        return (second + timedelta(seconds=seconds)).astimezone(zone).utcoffset() == after

    change = second + timedelta(seconds=bisect_left(range(int((first - second).total_seconds())), True, key=is_shifted))
    return change, change


def _local_spans(window: Window, local_time: datetime) -> Iterator[tuple[datetime, datetime]]:
    if window.one_time_span:
        yield window.one_time_span
        return
    length = timedelta(minutes=window.minutes or 0)
    for begin in croniter(window.cron, local_time - length - _MAX_CLOCK_SHIFT).all_next(datetime):
        yield begin, begin + length


def _calendar_hold(situation: Situation) -> Hold | None:
    calendar = calendar_closure(situation.settings, situation.now)
    # A rolling restart finishes its current broker outside the windows too; a blackout holds it.
    if calendar is None or (calendar.reason is Reason.OUTSIDE_WINDOW and situation.orders.get(Roll).is_under_way):
        return None
    until = f"until {calendar.opens_at:%Y-%m-%d %H:%M %Z}" if calendar.opens_at else "with no known end"
    return Hold(calendar.reason, f"{until}: {calendar.why_closed}" if calendar.why_closed else until)


def _calendar_texts(situation: Situation) -> Iterator[str]:
    windows, blackouts = len(situation.settings.maintenance_windows), len(situation.settings.blackouts)
    if windows:
        yield f"bundles move only within {number_of(windows, 'maintenance window')} of the clusters file"
    if blackouts:
        yield f"no moves during {number_of(blackouts, 'blackout')} of the clusters file"


CALENDAR = OrderKind(
    setting_names=("maintenance_windows", "blackouts"),
    hold_of=_calendar_hold,
    words={
        Reason.BLACKOUT: Wording("blackout", "a blackout was in force."),
        Reason.OUTSIDE_WINDOW: Wording("outside the maintenance windows", "no maintenance window was open."),
    },
    order_texts=_calendar_texts,
)
