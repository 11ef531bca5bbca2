"""Whether the clusters file's maintenance windows and blackouts let anything be moved now, and when they will.

A window begins and ends by the local clock, whatever a change to or from summer time does to its length. Of an hour
that comes twice, a blackout begins with the first and ends with the second. A maintenance window begins with the second
and ends with the first, so one that lies within that hour is left out. What begins or ends in an hour that is left out
does so at the change of the clock; there a blackout lasts longer rather than shorter.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pendulum
from croniter import croniter

from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.config.windows import Window

_LONGEST_SHIFT = timedelta(hours=3)
"""A clock is never changed by more."""

_MOST_STEPS = 100
"""Blackouts and gaps between windows that are passed over in search of the next opening."""


class Shut(NamedTuple):
    """Why the calendar lets nothing be moved.

    Attributes:
        reason: `blackout` or `outside_window`.
        opens: when something may be moved again, in the zone of what shuts it; None: not in sight.
        why: as the clusters file says.
    """

    reason: Reason
    opens: datetime | None
    why: str


def within(window: Window, now: datetime) -> bool:
    """Return whether it is the time of a window."""
    span = next(_spans(window, now, blackout=False), None)
    return span is not None and span.begin <= now


class _Span(NamedTuple):
    begin: datetime
    end: datetime


def shut(settings: Settings, now: datetime) -> Shut | None:
    """Return why nothing may be moved now, and until when; None: the calendar lets it."""
    first = found = _shut(settings, now)
    steps = 0
    while found is not None and found.opens is not None and steps < _MOST_STEPS:
        opens = found.opens
        found = _shut(settings, opens)
        steps += 1
        if found is None and first is not None:
            return first._replace(opens=opens)
    return first if found is None or first is None else first._replace(opens=None)


def _shut(settings: Settings, at: datetime) -> Shut | None:
    """Return what lets nothing be moved at this moment, and until when it alone does."""
    for blackout in settings.blackouts:
        span = next(_spans(blackout, at, blackout=True), None)
        if span is not None and span.begin <= at:
            return Shut(Reason.BLACKOUT, _in_zone(span.end, blackout), blackout.reason)
    following = [
        (span, window)
        for window in settings.maintenance_windows
        for span in [next(_spans(window, at, blackout=False), None)]
        if span is not None
    ]
    if not settings.maintenance_windows or any(span.begin <= at for span, _ in following):
        return None
    span, window = min(following, key=lambda item: item[0].begin, default=(None, None))
    opens = _in_zone(span.begin, window) if span is not None and window is not None else None
    return Shut(Reason.OUTSIDE_WINDOW, opens, "")


def _in_zone(at: datetime, window: Window) -> datetime:
    return pendulum.instance(at).in_timezone(window.timezone)


def _spans(window: Window, at: datetime, *, blackout: bool) -> Iterator[_Span]:
    """Yield the times of a window that end after a moment, in their order."""
    zone = pendulum.timezone(window.timezone)

    for begin, end in _local_spans(window, at.astimezone(zone).replace(tzinfo=None)):
        begins, ends = _moments(begin, zone, widest=blackout), _moments(end, zone, widest=blackout)
        span = _Span(min(begins), max(ends)) if blackout else _Span(max(begins), min(ends))
        if span.begin < span.end and span.end > at:
            yield span


def _moments(local: datetime, zone: tzinfo, *, widest: bool) -> tuple[datetime, datetime]:
    """Return the two moments that a local time may mean, mostly the same.

    Args:
        local: without a zone.
        zone: of it.
        widest: of a time that the clock leaves out, both moments it may mean; otherwise twice the change of the clock.
    """
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first <= second or widest:
        return first, second
    after = first.astimezone(zone).utcoffset()

    def changed(seconds: int) -> bool:
        return (second + timedelta(seconds=seconds)).astimezone(zone).utcoffset() == after

    change = second + timedelta(seconds=bisect_left(range(int((first - second).total_seconds())), True, key=changed))
    return change, change


def _local_spans(window: Window, at: datetime) -> Iterator[tuple[datetime, datetime]]:
    if window.start is not None and window.end is not None:
        yield window.start, window.end
        return
    length = timedelta(minutes=window.minutes or 0)
    for begin in croniter(window.cron, at - length - _LONGEST_SHIFT).all_next(datetime):
        yield begin, begin + length
