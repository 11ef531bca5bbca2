"""The timeline of an hour, a day or a month, from run folders and from tables of past days."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ValidationError

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.compacted_tables import RUNS, table_file
from pulsar_rebalancer.run.plan import LONGEST_RUN
from pulsar_rebalancer.show.page.page_model import View
from pulsar_rebalancer.storage.documents import Cache, ClusterStorage, day_of, time_of
from pulsar_rebalancer.storage.path import StoragePath, json_document
from pulsar_rebalancer.strategies.shedders.registry import profile_shown

_SEEN_TO = Trait.ON_PLANNED_BROKER | Trait.SETTLED | Trait.NOT_BEGUN
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bucket(View):
    """The sums for a period of time, or for a single run.

    Attributes:
        lowest, highest: smallest and largest score range, in points; None if no run compared brokers.
        moved, split, failed: number of bundles; `failed` counts failed moves and splits.
        blocked, broken: number of runs that validation stopped, and that failed.
        paused: number of runs that could not move bundles for a reason other than the mode.
        low_threshold, high_threshold: of the last run with a plan, in points; None without a plan.
    """

    at: AwareDatetime
    lowest: float | None = None
    highest: float | None = None
    moved: int = 0
    split: int = 0
    failed: int = 0
    runs: int = 0
    blocked: int = 0
    broken: int = 0
    paused: int = 0
    low_threshold: float | None = None
    high_threshold: float | None = None


class Timeline(View):
    """The timeline of an hour, a day or a month.

    Attributes:
        seconds: length of a bucket; buckets without a run are left out.
        low_threshold, high_threshold: the latest thresholds in points.
        unread: number of runs that have not been read yet; the next request reads them.
    """

    span: str
    begin: AwareDatetime
    end: AwareDatetime
    seconds: float
    low_threshold: float | None
    high_threshold: float | None
    buckets: tuple[Bucket, ...]
    unread: int = 0


def begin_of(at: datetime, length: timedelta) -> datetime:
    """Return the start of the bucket that contains a time. Buckets start at multiples of their length since 1970."""
    return at - (at - _EPOCH) % length


def added_up(buckets: Sequence[Bucket], at: datetime) -> Bucket:
    low = [bucket.lowest for bucket in buckets if bucket.lowest is not None]
    high = [bucket.highest for bucket in buckets if bucket.highest is not None]
    judged = [bucket for bucket in buckets if bucket.low_threshold is not None]
    counts = {
        name: sum(getattr(bucket, name) for bucket in buckets)
        for name in ("moved", "split", "failed", "runs", "blocked", "broken", "paused")
    }
    return Bucket(
        at=at,
        lowest=min(low, default=None),
        highest=max(high, default=None),
        low_threshold=judged[-1].low_threshold if judged else None,
        high_threshold=judged[-1].high_threshold if judged else None,
        **counts,
    )


class _Reason(BaseModel):
    reason: str


class _Document(BaseModel):
    """The fields that are read from a request, a summary or an outcome, whichever release wrote it."""

    closed: str | None = None
    dry_run: bool = False
    score_min: float | None = None
    score_max: float | None = None
    resolved: dict[str, Any] = {}
    verdict: str = ""  # a manual plan that is only shown has no outcome
    moves: tuple[_Reason, ...] = ()
    splits: tuple[_Reason, ...] = ()


def of_run(
    at: datetime, settings: str | bytes | None, summary: str | bytes | None, outcome: str | bytes | None
) -> Bucket:
    """Return the bucket of a single run. An unreadable document counts as missing."""
    request, figures, ended = _parsed(settings), _parsed(summary), _parsed(outcome)
    held = not request.dry_run and request.closed not in (None, "", Reason.OBSERVE)
    moves = [Reason.get(move.reason) for move in ended.moves]
    splits = [Reason.get(split.reason) for split in ended.splits]
    given = figures.resolved.get("settings")
    thresholds = _thresholds(given) if isinstance(given, dict) else {}
    spread = None
    if figures.score_min is not None and figures.score_max is not None:
        spread = round(figures.score_max - figures.score_min, 2)
    failed = sum(reason is None or not reason.has(_SEEN_TO) for reason in moves)
    unsplit = sum(reason is None or not reason.has(Trait.SPLIT_AS_PLANNED) for reason in splits)
    return Bucket(
        at=at,
        lowest=spread,
        highest=spread,
        moved=sum(reason is not None and reason.has(Trait.NEW_OWNER) for reason in moves),
        split=len(splits) - unsplit,
        failed=failed + unsplit,
        runs=not request.dry_run,
        blocked=ended.verdict == Reason.BLOCKED,
        broken=ended.verdict == Reason.UNFINISHED,
        paused=ended.verdict == Reason.PAUSED or held,
        low_threshold=thresholds.get("low"),
        high_threshold=thresholds.get("high"),
    )


def _thresholds(given: dict[str, Any]) -> dict[str, float]:
    settings = Settings.model_construct(**given)  # from any release, so unknown settings are ignored
    return {kind: threshold.gap for kind, threshold in profile_shown(settings).thresholds(settings).items()}


def _parsed(text: str | bytes | None) -> _Document:
    try:
        return _Document.model_validate(json_document(text, "a document of a run")) if text else _Document()
    except (SnapshotError, ValidationError):
        return _Document()


READING = 1.0
"""Maximum time that one request may spend reading files, in seconds."""


class Span(StrEnum):
    """The length of the timeline and of one bucket."""

    length: timedelta
    bucket: timedelta

    def __new__(cls, name: str, length: timedelta, bucket: timedelta) -> Self:
        member = str.__new__(cls, name)
        member._value_, member.length, member.bucket = name, length, bucket
        return member

    HOUR = "hour", timedelta(hours=1), timedelta(minutes=1)
    DAY = "day", timedelta(days=1), timedelta(minutes=5)
    MONTH = "month", timedelta(days=30), timedelta(hours=2)


_runs: Cache[Bucket] = Cache(20_000)
"""Ended runs by folder; their files no longer change."""

_closed: Cache[tuple[Bucket, ...]] = Cache(100_000)
"""Buckets of ended periods and of days stored as tables; the weight is the number of buckets."""


class _Reader:
    """The time limit for reading files in one request.

    `unread` counts runs and days not read; `refused` counts runs that a temporary storage failure made
    unreadable.
    """

    def __init__(self, now: datetime, seconds: float) -> None:
        self.now = now
        self._seconds = seconds
        self._until: float | None = None
        self.unread = self.refused = 0

    def may_read(self) -> bool:
        """Return whether there is time to read another file; always True for the first file."""
        at = time.monotonic()
        if self._until is None:
            self._until = at + self._seconds
            return True
        if at > self._until:
            self.unread += 1
            return False
        return True


class _Stretch(NamedTuple):
    at: datetime
    length: timedelta
    folders: tuple[StoragePath, ...]

    def buckets_read(self, reader: _Reader) -> tuple[Bucket, ...]:
        # The key changes when a run is added or upkeep removes one.
        key = f"{self.folders[-1].uri} {self.length} {len(self.folders)}"
        known = _closed.get(key)
        if known is not None:
            return known
        left = reader.unread + reader.refused
        runs = [bucket for folder in self.folders for bucket in _run(folder, reader)]
        whole = (added_up(runs, self.at),) if runs else ()
        if reader.unread + reader.refused == left and reader.now > self.at + self.length + LONGEST_RUN:
            _closed.put(key, whole)
        return whole


class _Day(NamedTuple):
    """A day whose runs have been compacted into one table."""

    file: StoragePath
    length: timedelta

    def buckets_read(self, reader: _Reader) -> tuple[Bucket, ...]:
        # A rewritten table has a different size.
        key = f"{self.file.uri} {self.length} {_size(self.file)}"
        known = _closed.get(key)
        if known is not None:
            return known
        if not reader.may_read():
            return ()
        try:
            rows = [
                of_run(at, row["settings"], row["summary"], row["outcome"])
                for table in self.file.read_batches(["run", "settings", "summary", "outcome"])
                for row in table.to_pylist()
                if (at := time_of(row["run"])) is not None
            ]
        except SnapshotError:
            return ()
        buckets = tuple(_grouped(rows, self.length))
        return _closed.put(key, buckets, len(buckets) + 1)


def timeline(storage: ClusterStorage, span: Span, now: datetime, reading: float = READING) -> Timeline:
    """Return the timeline of a span that ends now.

    Args:
        reading: time limit for reading files, in seconds. The latest files are read first.

    Raises:
        SnapshotError: `storage_failed`.
    """
    begin, reader = begin_of(now - span.length, span.bucket), _Reader(now, reading)
    parts = [part for source in _sources(storage, span, begin, now) for part in source.buckets_read(reader)]
    buckets = list(_grouped((part for part in parts if begin <= part.at <= now), span.bucket))
    latest = next((bucket for bucket in reversed(buckets) if bucket.low_threshold is not None), None)
    return Timeline(
        span=span,
        begin=begin,
        end=now,
        seconds=span.bucket.total_seconds(),
        low_threshold=latest.low_threshold if latest else None,
        high_threshold=latest.high_threshold if latest else None,
        buckets=tuple(buckets),
        unread=reader.unread,
    )


def _sources(storage: ClusterStorage, span: Span, begin: datetime, now: datetime) -> Iterator[_Stretch | _Day]:
    """Yield the run folders and tables that cover a span, latest first."""
    folders = {day: name for name in storage.runs.names() if (day := day_of(name))}
    closed = {
        day for name in (storage.base / "history" / RUNS).names() if (day := day_of(name.removesuffix(".parquet")))
    }
    for back in range((now.date() - begin.date()).days + 1):
        day = now.date() - timedelta(days=back)
        if day in folders:
            yield from _stretches(storage.runs / folders[day], span.bucket, begin, now)
        if day in closed:
            yield _Day(table_file(storage, RUNS, day), span.bucket)


def _stretches(day: StoragePath, length: timedelta, begin: datetime, now: datetime) -> Iterator[_Stretch]:
    by_bucket: dict[datetime, list[StoragePath]] = {}
    for name in sorted(day.names(), reverse=True):
        at = time_of(name)
        if at is not None and begin <= at <= now:
            by_bucket.setdefault(begin_of(at, length), []).append(day / name)
    for at, folders in by_bucket.items():
        yield _Stretch(at, length, tuple(folders))


def _run(folder: StoragePath, reader: _Reader) -> list[Bucket]:
    known = _runs.get(folder.uri)
    if known is not None:
        return [known]
    if not reader.may_read():
        return []
    at = time_of(folder.name)
    try:
        summary, outcome = _text(folder / "plan" / "summary.json"), _text(folder / "outcome.json")
        settings = _text(folder / "input" / "settings.json")
    except SnapshotError:
        reader.refused += 1
        return []
    if at is None or (outcome is None and reader.now - at < LONGEST_RUN):
        return []  # still under way
    return [_runs.put(folder.uri, of_run(at, settings, summary, outcome))]


def _text(file: StoragePath) -> bytes | None:
    try:
        return file.read_bytes()
    except SnapshotError as error:
        if error.reason is not Reason.FILE_MISSING:
            raise  # a temporary storage failure must not be cached as a run without files
        return None


def _size(file: StoragePath) -> int:
    file_system, path = file.open()
    try:
        return file_system.get_file_info(path).size or 0
    except OSError:
        return 0


def _grouped(parts: Iterable[Bucket], length: timedelta) -> Iterator[Bucket]:
    groups: dict[datetime, list[Bucket]] = {}
    for part in sorted(parts, key=lambda part: part.at):
        groups.setdefault(begin_of(part.at, length), []).append(part)
    for at, group in groups.items():
        yield added_up(group, at)
