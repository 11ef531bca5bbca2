"""List a cluster's run folders, and separate the rebalancer's files from other files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer.storage.layout import day_of, time_of
from pulsar_rebalancer.storage.listing import Entry, Kind, entries, walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date, datetime

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

_OUR_FILE = re.compile(
    r"(?:[a-z_]+/)?[a-z0-9_-]+\.(?:json|parquet|html)"
    r"|(?:[a-z_]+/)?\.[a-z0-9_-]+\.(?:json|parquet|html)\.[0-9a-f]{8}"  # a draft left by a killed task
    r"|[a-z_]+/[a-z0-9_-]+\.parquet/.+"  # a part of a table that Spark wrote
)
_OUR_FOLDER = re.compile(r"[a-z_]+(?:/[a-z0-9_-]+\.parquet(?:/.+)?)?")


@dataclass(frozen=True)
class RunFolder:
    """A run's folder and its entries.

    Attributes:
        folder: the folder, whose name is the run's id.
        at: the time of the sample, from the folder's name.
        ours: entries that the rebalancer wrote.
        foreign: paths of all other entries, including links; these are never deleted.
    """

    folder: StoragePath
    at: datetime
    ours: tuple[Entry, ...]
    foreign: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folder's name, which is the run's id."""
        return self.folder.name

    @property
    def files(self) -> dict[str, int]:
        """The sizes of the rebalancer's files, in bytes, by path relative to the folder."""
        return {entry.path: entry.size for entry in self.ours if entry.kind is Kind.FILE}

    @property
    def ended(self) -> bool:
        """True if the *report* task has written the run's outcome."""
        return any(entry.path == "outcome.json" for entry in self.ours)


@dataclass(frozen=True)
class Day:
    """The runs on one day (UTC).

    Attributes:
        foreign: names of entries other than this day's run folders.
    """

    date: date
    folder: StoragePath
    runs: tuple[RunFolder, ...]
    foreign: tuple[str, ...]


def days_before(storage: ClusterStorage, limit: date) -> Iterator[Day]:
    """Yield the days before `limit` that have a folder, oldest first. Each folder is listed when its day is yielded."""
    for entry in entries(storage.runs):
        day = day_of(entry.path)
        if entry.kind is Kind.FOLDER and day is not None and day < limit:
            yield _day(storage.runs / entry.path, day)


def names_of_others(storage: ClusterStorage) -> list[str]:
    """Return the names of all entries in a cluster's `runs` folder that are not a day's folder."""
    return [e.path for e in entries(storage.runs) if e.kind is not Kind.FOLDER or day_of(e.path) is None]


def _day(folder: StoragePath, day: date) -> Day:
    runs, foreign = [], []
    for entry in entries(folder):
        at = time_of(entry.path)
        if entry.kind is Kind.FOLDER and at is not None and at.date() == day:
            runs.append(_run(folder / entry.path, at))
        else:
            foreign.append(entry.path)
    return Day(day, folder, tuple(runs), tuple(foreign))


def _run(folder: StoragePath, at: datetime) -> RunFolder:
    content = walk(folder)
    ours = tuple(entry for entry in content if _is_ours(entry))
    return RunFolder(folder, at, ours, tuple(entry.path for entry in content if not _is_ours(entry)))


def _is_ours(entry: Entry) -> bool:
    if entry.kind is Kind.OTHER:
        return False
    pattern = _OUR_FILE if entry.kind is Kind.FILE else _OUR_FOLDER
    return pattern.fullmatch(entry.path) is not None
