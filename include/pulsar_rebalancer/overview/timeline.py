"""What happened over an hour, a day or a month: from folders of runs and tables of closed days."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.maintenance.history import RUNS, batches, table_file
from pulsar_rebalancer.overview.model import Bucket, Timeline
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import LONGEST_RUN
from pulsar_rebalancer.storage.layout import day_of, time_of
from pulsar_rebalancer.storage.path import json_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

_Document = TypeVar("_Document", bound=BaseModel)

READING = 1.0
"""Seconds that one answer may read files for."""

_MOST_KEPT = 200_000
_SEEN_TO = Trait.ON_PLANNED_BROKER | Trait.SETTLED


class Span(StrEnum):
    """How far back; each has its own length of a bucket."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"

    @property
    def length(self) -> timedelta:
        """Return the whole stretch."""
        return {Span.HOUR: timedelta(hours=1), Span.DAY: timedelta(days=1), Span.MONTH: timedelta(days=30)}[self]

    @property
    def bucket(self) -> timedelta:
        """Return the length of a bucket."""
        minutes = {Span.HOUR: 1, Span.DAY: 5, Span.MONTH: 120}
        return timedelta(minutes=minutes[self])


class Point(NamedTuple):
    """One run on the timeline; thresholds are those that it judged by."""

    at: datetime
    score_range: float | None
    moved: int
    failed: int
    verdict: str
    low_threshold: float | None
    high_threshold: float | None


class _Figures(BaseModel):
    """What is read of a summary, of any release."""

    model_config = ConfigDict(extra="ignore")

    score_min: float | None = None
    score_max: float | None = None
    resolved: dict[str, Any] = {}


class _Move(BaseModel):
    model_config = ConfigDict(extra="ignore")

    reason: str


class _Ended(BaseModel):
    """What is read of an outcome, of any release."""

    model_config = ConfigDict(extra="ignore")

    ended_at: AwareDatetime
    verdict: str
    moves: tuple[_Move, ...] = ()


_points: dict[str, Point] = {}
"""Runs that have ended, by folder: what they left does not change."""

_days: dict[tuple[str, int], list[Point]] = {}
"""Closed days, by table and its number of bytes: a day that is compacted again has another one."""


def timeline(storage: ClusterStorage, span: Span, now: datetime, reading: float = READING) -> Timeline:
    """Return what the runs of a stretch of time came to.

    Args:
        storage: of the cluster.
        span: how far back.
        now: the present.
        reading: seconds after which no further file is read: the newest come first.

    Raises:
        SnapshotError: `storage_failed`.
    """
    begin, until = now - span.length, time.monotonic() + reading
    points: list[Point] = []
    unread = 0
    for source in _sources(storage, begin, now):
        if time.monotonic() > until and not source.is_known:
            unread += 1
        else:
            points += source.points(now)
    points = sorted((point for point in points if begin <= point.at <= now), key=lambda point: point.at)
    newest = next((point for point in reversed(points) if point.low_threshold is not None), None)
    return Timeline(
        span=span,
        begin=begin,
        end=now,
        seconds=span.bucket.total_seconds(),
        low_threshold=newest.low_threshold if newest else None,
        high_threshold=newest.high_threshold if newest else None,
        buckets=tuple(_buckets(points, begin, span.bucket)),
        unread=unread,
    )


class _Source(NamedTuple):
    """A run's folder, or the table of a closed day."""

    file: StoragePath
    is_day: bool

    @property
    def is_known(self) -> bool:
        return self.file.uri in _points or (self.is_day and _day_key(self.file) in _days)

    def points(self, now: datetime) -> list[Point]:
        return _points_of_day(self.file) if self.is_day else _point_of_run(self.file, now)


def _sources(storage: ClusterStorage, begin: datetime, now: datetime) -> Iterator[_Source]:
    """Yield where runs of a stretch of time are to be read, the newest first."""
    folders = {day: name for name in storage.runs.names() if (day := day_of(name))}
    closed = {
        day for name in (storage.base / "history" / RUNS).names() if (day := day_of(name.removesuffix(".parquet")))
    }
    days = [now.date() - timedelta(days=back) for back in range((now.date() - begin.date()).days + 1)]
    for day in days:
        for name in sorted((storage.runs / folders[day]).names(), reverse=True) if day in folders else ():
            at = time_of(name)
            if at is not None and begin <= at <= now:
                yield _Source(storage.runs / folders[day] / name, is_day=False)
        if day in closed:
            yield _Source(table_file(storage, RUNS, day), is_day=True)


def _point_of_run(folder: StoragePath, now: datetime) -> list[Point]:
    known = _points.get(folder.uri)
    if known is not None:
        return [known]
    at = time_of(folder.name)
    try:
        texts = [_text(folder / "plan" / "summary.json"), _text(folder / "outcome.json")]
    except SnapshotError:
        return []
    if at is None or (texts[1] is None and now - at < LONGEST_RUN):
        return []  # it is under way
    point = _point(at, *texts)
    if len(_points) > _MOST_KEPT:
        _points.clear()
    _points[folder.uri] = point
    return [point]


def _text(file: StoragePath) -> bytes | None:
    try:
        return file.read_bytes()
    except SnapshotError as error:
        if error.reason is not Reason.FILE_MISSING:
            raise  # a storage that fails for a moment is not remembered as a run without files
        return None


def _day_key(file: StoragePath) -> tuple[str, int]:
    file_system, path = file.open()
    try:
        return file.uri, file_system.get_file_info(path).size or 0
    except OSError:
        return file.uri, 0


def _points_of_day(file: StoragePath) -> list[Point]:
    key = _day_key(file)
    if key not in _days:
        try:
            rows = [row for table in batches(file, ["run", "summary", "outcome"]) for row in table.to_pylist()]
        except SnapshotError:
            return []
        found = ((time_of(row["run"]), row) for row in rows)
        _days[key] = [_point(at, row["summary"], row["outcome"]) for at, row in found if at is not None]
    return _days[key]


def _point(at: datetime, summary: str | bytes | None, outcome: str | bytes | None) -> Point:
    """Return what a run's documents say; one that cannot be read says as much as one that is not there."""
    figures, ended = _parsed(_Figures, summary) or _Figures(), _parsed(_Ended, outcome)
    reasons = [Reason.get(move.reason) for move in ended.moves] if ended else []
    moved = sum(reason is not None and reason.has(Trait.NEW_OWNER) for reason in reasons)
    settings = figures.resolved.get("settings")
    thresholds = settings if isinstance(settings, dict) else {}
    spread = None if figures.score_min is None or figures.score_max is None else figures.score_max - figures.score_min
    return Point(
        at=at,
        score_range=spread,
        moved=moved,
        failed=sum(reason is None or not reason.has(_SEEN_TO) for reason in reasons),
        # Plans that were made by hand and only shown end without an outcome.
        verdict=ended.verdict if ended else "",
        low_threshold=thresholds.get("low_threshold"),
        high_threshold=thresholds.get("high_threshold"),
    )


def _parsed(model: type[_Document], text: str | bytes | None) -> _Document | None:
    try:
        return model.model_validate(json_document(text, "a document of a run")) if text else None
    except (SnapshotError, ValidationError):
        return None


def _buckets(points: Iterable[Point], begin: datetime, length: timedelta) -> Iterator[Bucket]:
    """Yield the buckets that have a run, in order."""
    of_bucket: dict[int, list[Point]] = {}
    for point in points:
        of_bucket.setdefault((point.at - begin) // length, []).append(point)
    for number, found in sorted(of_bucket.items()):
        ranges = [point.score_range for point in found if point.score_range is not None]
        verdicts = [point.verdict for point in found]
        yield Bucket(
            at=begin + number * length,
            lowest=round(min(ranges), 2) if ranges else None,
            highest=round(max(ranges), 2) if ranges else None,
            moved=sum(point.moved for point in found),
            failed=sum(point.failed for point in found),
            runs=len(found),
            blocked=verdicts.count(Reason.BLOCKED),
            broken=verdicts.count(Reason.UNFINISHED),
            paused=verdicts.count(Reason.PAUSED),
        )
