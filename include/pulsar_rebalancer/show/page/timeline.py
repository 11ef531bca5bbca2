"""The timeline of an hour, a day or a month, built from run folders and from tables of past days."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.compacted_tables import RUNS, table_file
from pulsar_rebalancer.run.plan import LONGEST_RUN
from pulsar_rebalancer.show.page.buckets import Bucket, Timeline, added_up, begin_of, of_run
from pulsar_rebalancer.storage.cache import Cache
from pulsar_rebalancer.storage.layout import day_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

READING = 1.0
"""Maximum time that one request may spend reading files, in seconds."""


class Span(StrEnum):
    """The length of the timeline.

    Attributes:
        length: duration of the whole timeline.
        bucket: duration of one bucket.
    """

    length: timedelta
    bucket: timedelta

    def __new__(cls, name: str, length: timedelta, bucket: timedelta) -> Self:
        """Create a member from its name and durations."""
        member = str.__new__(cls, name)
        member._value_, member.length, member.bucket = name, length, bucket
        return member

    HOUR = "hour", timedelta(hours=1), timedelta(minutes=1)
    DAY = "day", timedelta(days=1), timedelta(minutes=5)
    MONTH = "month", timedelta(days=30), timedelta(hours=2)


_runs: Cache[Bucket] = Cache(20_000)
"""Runs that have ended, by folder. Their files no longer change."""

_closed: Cache[tuple[Bucket, ...]] = Cache(100_000)
"""Buckets of periods whose runs have all ended, and of days stored as tables; the weight is the number of buckets."""


class _Reader:
    """The time limit for reading files in one request, and counters for what was not read.

    Attributes:
        unread: number of runs and days that have not been read.
        refused: number of runs that could not be read because of a temporary storage failure.
    """

    def __init__(self, now: datetime, seconds: float) -> None:
        self.now = now
        self._seconds = seconds
        self._until: float | None = None
        self.unread = self.refused = 0

    def may_read(self) -> bool:
        """Return whether there is time to read another file; the first call always returns True."""
        at = time.monotonic()
        if self._until is None:
            self._until = at + self._seconds
            return True
        if at > self._until:
            self.unread += 1
            return False
        return True


class _Stretch(NamedTuple):
    """The run folders in the period of one bucket."""

    at: datetime
    length: timedelta
    folders: tuple[StoragePath, ...]

    def buckets_read(self, reader: _Reader) -> tuple[Bucket, ...]:
        """Return the period's bucket; empty if no run in the period has ended."""
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
        """Return the day's buckets."""
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
        reading: time limit for reading files, in seconds. The newest files are read first.

    Raises:
        SnapshotError: `storage_failed`.
    """
    begin, reader = begin_of(now - span.length, span.bucket), _Reader(now, reading)
    parts = [part for source in _sources(storage, span, begin, now) for part in source.buckets_read(reader)]
    buckets = list(_grouped((part for part in parts if begin <= part.at <= now), span.bucket))
    newest = next((bucket for bucket in reversed(buckets) if bucket.low_threshold is not None), None)
    return Timeline(
        span=span,
        begin=begin,
        end=now,
        seconds=span.bucket.total_seconds(),
        low_threshold=newest.low_threshold if newest else None,
        high_threshold=newest.high_threshold if newest else None,
        buckets=tuple(buckets),
        unread=reader.unread,
    )


def _sources(storage: ClusterStorage, span: Span, begin: datetime, now: datetime) -> Iterator[_Stretch | _Day]:
    """Yield the run folders and tables that cover a span, newest first."""
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
    """Combine the buckets of each period into one, and yield the results in chronological order."""
    groups: dict[datetime, list[Bucket]] = {}
    for part in sorted(parts, key=lambda part: part.at):
        groups.setdefault(begin_of(part.at, length), []).append(part)
    for at, group in groups.items():
        yield added_up(group, at)
