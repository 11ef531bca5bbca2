"""JSON documents with a version, and the layout of a cluster's folders under the storage root."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from threading import Lock
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.path import StoragePath

_Model = TypeVar("_Model", bound=BaseModel)

VERSION = 1
"""Version of all documents. Raise it with every change, except when a new field has a default."""


class VersionedModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = VERSION

    @classmethod
    def parse(cls, document: Any, label: str) -> Self:
        """Create the document from parsed JSON.

        Raises SnapshotError `file_damaged`, also if another release wrote it.
        """
        version = document.get("version") if isinstance(document, Mapping) else None
        if version != VERSION:
            raise SnapshotError(
                Reason.FILE_DAMAGED, f"{label} has version {version!r:.80}; this release reads version {VERSION}"
            )
        return validate_document(cls, document, label)


class VersionedDocument(VersionedModel):
    """A JSON document with a fixed path (`FILE`) relative to a folder, such as a run's folder."""

    FILE: ClassVar[str]

    def write(self, folder: StoragePath) -> None:
        (folder / self.FILE).write_json(self.model_dump(mode="json"))

    @classmethod
    def read(cls, folder: StoragePath) -> Self:
        file = folder / cls.FILE
        return cls.parse(file.read_json(), file.uri)

    @classmethod
    def read_or_none(cls, folder: StoragePath) -> Self | None:
        try:
            return cls.read(folder)
        except SnapshotError:
            return None

    @classmethod
    def read_if_exists(cls, folder: StoragePath) -> Self | None:
        return cls.read(folder) if (folder / cls.FILE).exists() else None


def validate_document(model: type[_Model], document: Any, label: str) -> _Model:
    """Validate a document, or part of one, without checking the version.

    Raises SnapshotError `file_damaged`; the message names a field that this release does not have.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise SnapshotError(Reason.FILE_DAMAGED, f"{label} has field {field}, unknown to this release") from None
        raise SnapshotError(Reason.FILE_DAMAGED, f"{label} cannot be read: {field}: {first['msg']}") from None


_Value = TypeVar("_Value")


class Cache(Generic[_Value]):
    """A cache that drops the least recently used values when the sum of weights exceeds its limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[str, tuple[_Value, int]] = OrderedDict()
        self._lock = Lock()  # the API server answers in several threads
        self.weight = 0

    def get(self, key: str) -> _Value | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: str, value: _Value, weight: int = 1) -> _Value:
        with self._lock:
            self.weight += weight - self._values.pop(key, (value, 0))[1]
            self._values[key] = (value, weight)
            while self.weight > self._limit and len(self._values) > 1:
                self.weight -= self._values.popitem(last=False)[1][1]
        return value


MAX_CLOCK_SKEW = timedelta(minutes=1)
"""Tolerated difference between the clocks of two machines."""

LOAD_DATA_FILE = "load-data.json"
"""File in the state folder with the load data of brokers that use the extensible load manager."""

CLIENT_GAPS_FILE = "bundle-client-gaps.json"
"""File in the state folder with the client cost of each bundle's last measured move."""

_DAY_FOLDER = re.compile(r"date=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_RUN_FOLDER = re.compile(r"([0-9]{8}T[0-9]{6}\.[0-9]{6}Z)-[0-9a-f]{8}")


def day_of(name: str) -> date | None:
    """Return the day in the name of a day's folder or table; None for another name."""
    match = _DAY_FOLDER.fullmatch(name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def time_of(name: str) -> datetime | None:
    """Return the start time in the name of a run's or replay's folder; None for another name."""
    match = _RUN_FOLDER.fullmatch(name)
    try:
        return datetime.strptime(match[1], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC) if match else None
    except ValueError:
        return None


@dataclass(frozen=True)
class ClusterStorage:
    root: str
    cluster: str

    @classmethod
    def of_run(cls, run: StoragePath) -> Self:
        root, cluster, *_ = run.uri.rsplit("/", 4)
        return cls(root, cluster)

    @property
    def base(self) -> StoragePath:
        return StoragePath(f"{self.root.rstrip('/')}/{self.cluster}")

    @property
    def runs(self) -> StoragePath:
        return self.base / "runs"

    @property
    def state(self) -> StoragePath:
        """`<root>/<cluster>/state`: the bundles' moving averages and costs, exports, records of changes."""
        return self.base / "state"

    @property
    def replays(self) -> StoragePath:
        return self.base / "replays"

    def new_replay_folder(self, now: datetime) -> StoragePath:
        return self.replays / self.new_run_folder(now).name

    def replay_folder(self, name: str) -> StoragePath | None:
        return None if time_of(name) is None else self.replays / name

    def new_run_folder(self, now: datetime) -> StoragePath:
        """Return a new folder for one attempt at a run, named by time and random digits, not by user input."""
        at = now.astimezone(UTC)
        return self.runs / f"date={at:%Y-%m-%d}" / f"{at:%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}"

    def run_folder(self, name: str) -> StoragePath | None:
        at = time_of(name)
        return None if at is None else self.runs / f"date={at:%Y-%m-%d}" / name

    def latest_runs(self, until: datetime) -> Iterator[StoragePath]:
        """Yield the folder of each run up to a given time, latest first. Raises the same errors as `dated_runs`."""
        return (folder for _, folder in self.dated_runs(until))

    def dated_runs(self, until: datetime) -> Iterator[tuple[datetime, StoragePath]]:
        """Yield the time and folder of each run up to a given time, latest first.

        Raises SnapshotError `storage_failed`.
        """
        # Names of days and runs sort by time.
        for name in reversed(self.runs.entry_names()):
            day = day_of(name)
            if day is None or day > until.date():
                continue
            for run in reversed((self.runs / name).entry_names()):
                at = time_of(run)
                if at is not None and at <= until:
                    yield at, self.runs / name / run


class CommitMark(VersionedDocument):
    """The mark of a run whose plan's state is in the state store. Only the *record* task writes it.

    It shows that the state store has held documents, and from which plan a lost state can be restored.

    Attributes:
        seq: sequence number of the state.
        at: when the state was stored.
    """

    FILE: ClassVar[str] = "committed.json"

    seq: int
    at: AwareDatetime


def last_committed_run(storage: ClusterStorage, until: datetime) -> StoragePath | None:
    """Return the folder of the latest committed run up to a given time; None if there is none.

    Raises SnapshotError `storage_failed`.
    """
    return next((run for run in storage.latest_runs(until) if (run / CommitMark.FILE).exists()), None)
