"""The last hour of a cluster: the range of scores run by run, and what happened."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import NamedTuple

from pydantic import AwareDatetime

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.show.page.page_model import View
from pulsar_rebalancer.show.page.page_plan import requester_text
from pulsar_rebalancer.show.page.recent_runs import rounded_or_none
from pulsar_rebalancer.storage.documents import Cache, ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import safe_profile_of
from pulsar_rebalancer.texts import number_of

_TIMELINE_LENGTH = timedelta(hours=1)
_MAX_READ_SECONDS = 1.0
"""Maximum time that one request may spend reading files, in seconds."""

_NOT_FAILED = Trait.ON_PLANNED_BROKER | Trait.SETTLED | Trait.NOT_BEGUN


class Point(View):
    """One run; `range` is the score range in points, None if the run failed or validation stopped it."""

    at: AwareDatetime
    range: float | None = None


class Event(View):
    """What happened at a time; `kind` is `moved`, `failed` (moves or runs) or `order` (by a person)."""

    at: AwareDatetime
    kind: str
    text: str


class Timeline(View):
    """The last hour, the events with the latest first.

    Attributes:
        low_threshold, high_threshold: current thresholds in points; None if the strategy has none.
        unread: number of runs that have not been read yet; the next request reads them.
    """

    begin: AwareDatetime
    end: AwareDatetime
    low_threshold: float | None = None
    high_threshold: float | None = None
    points: tuple[Point, ...] = ()
    events: tuple[Event, ...] = ()
    unread: int = 0


def timeline_start(now: datetime) -> datetime:
    return now - _TIMELINE_LENGTH


class _RunPointAndEvent(NamedTuple):
    point: Point
    event: Event | None


_events_cache: Cache[_RunPointAndEvent] = Cache(20_000)
"""Cache of ended runs by folder; the files of these runs no longer change."""


def make_timeline(
    storage: ClusterStorage,
    settings: Settings,
    now: datetime,
    orders: Iterable[Event] = (),
    failure_events: Sequence[Event] = (),
    max_read_s: float = _MAX_READ_SECONDS,
) -> Timeline:
    """Return the timeline of the hour before `now`.

    Args:
        orders, failure_events: operators' orders and failed runs, which Airflow knows.
        max_read_s: time limit for reading files, in seconds. The latest files are read first.

    Raises:
        SnapshotError: `storage_failed`.
    """
    begin, unread = timeline_start(now), 0
    runs: list[_RunPointAndEvent] = []
    until = time.monotonic() + max_read_s
    for at, folder in takewhile(lambda dated: dated[0] >= begin, storage.dated_runs(now)):
        known = _events_cache.get(folder.uri)
        if known is None and runs and time.monotonic() > until:
            unread += 1
        elif known := known or _read_point_and_event(folder, at):
            runs.append(known)
    thresholds = safe_profile_of(settings).thresholds(settings)
    low, high = thresholds.get("low"), thresholds.get("high")
    points = [run.point for run in runs] + [Point(at=failure.at) for failure in failure_events]
    events = [run.event for run in runs if run.event] + [*orders, *_merged_failures(failure_events)]
    return Timeline(
        begin=begin,
        end=now,
        low_threshold=low.gap if low else None,
        high_threshold=high.gap if high else None,
        points=tuple(sorted(points, key=lambda point: point.at)),
        events=tuple(sorted(events, key=lambda event: event.at, reverse=True)),
        unread=unread,
    )


def _read_point_and_event(folder: StoragePath, collected_at: datetime) -> _RunPointAndEvent | None:
    """Return what a run did; None without an outcome: it is under way, was only shown, or failed."""
    outcome, summary = Outcome.read_or_none(folder), Summary.read_or_none(folder)
    if outcome is None:
        return None
    judged = summary is not None and outcome.verdict not in (Reason.BLOCKED, Reason.UNFINISHED)
    known = summary is not None and judged and summary.score_max is not None
    point = Point(at=collected_at, range=rounded_or_none(summary.score_range) if summary and known else None)
    return _events_cache.put(folder.uri, _RunPointAndEvent(point, _change_event(collected_at, outcome, summary)))


def _change_event(ended_at: datetime, outcome: Outcome, summary: Summary | None) -> Event | None:
    moved = sum(move.reason.has(Trait.NEW_OWNER) for move in outcome.moves)
    split = sum(each.ok for each in outcome.splits)
    failed = sum(not move.reason.has(_NOT_FAILED) for move in outcome.moves) + len(outcome.splits) - split
    counted = ((moved, "bundle", "moved"), (split, "bundle", "split"), (failed, "action", "failed"))
    texts = [f"{number_of(count, noun)} {verb}" for count, noun, verb in counted if count]
    by = requester_text(summary) if summary else ""
    return (
        Event(at=ended_at, kind="failed" if failed else "moved", text=", ".join(filter(None, [*texts, by])))
        if texts
        else None
    )


def _merged_failures(failure_events: Sequence[Event]) -> list[Event]:
    """Return failures with the same text, one directly after the other, as one event at the time of the first."""
    groups: list[list[Event]] = []
    for failure in sorted(failure_events, key=lambda failure: failure.at):
        if groups and groups[-1][0].text == failure.text:
            groups[-1].append(failure)
        else:
            groups.append([failure])
    return [
        group[0].model_copy(update={"text": f"{len(group)} runs: {group[0].text}"}) if len(group) > 1 else group[0]
        for group in groups
    ]
