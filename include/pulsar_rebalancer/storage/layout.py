"""The layout of a cluster's files under the storage root, and the names of its run folders."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Self

from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from collections.abc import Iterator

SKEW = timedelta(minutes=1)
"""Tolerated difference between the clocks of two machines."""

LOAD_DATA = "load-data.json"
"""File in a cluster's state folder with the load data published by brokers that use the extensible load manager."""

BUNDLE_HARM = "bundle-harm.json"
"""File in a cluster's state folder with the client cost of each bundle's last measured move."""

DRAINS, CONTROL, ROLL = "drains.json", "control.json", "roll.json"
"""Names of files in the state folder: copies of documents that must survive a loss of the state store."""

_DAY = re.compile(r"date=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_RUN = re.compile(r"([0-9]{8}T[0-9]{6}\.[0-9]{6}Z)-[0-9a-f]{8}")


def day_of(name: str) -> date | None:
    """Return the day in a folder name of the form `date=YYYY-MM-DD`; None for any other name."""
    match = _DAY.fullmatch(name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def time_of(name: str) -> datetime | None:
    """Return the sample's time from the name of a run folder; None for any other name."""
    match = _RUN.fullmatch(name)
    try:
        return datetime.strptime(match[1], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC) if match else None
    except ValueError:
        return None


def state_of(run: StoragePath) -> StoragePath:
    """Return the state folder of the cluster that a run's folder belongs to."""
    return ClusterStorage.of_run(run).state


@dataclass(frozen=True)
class ClusterStorage:
    """The folders of one cluster under the storage root."""

    root: str
    cluster: str

    @classmethod
    def of_run(cls, run: StoragePath) -> Self:
        """Return the folders of the cluster that a run's folder belongs to."""
        root, cluster, *_ = run.uri.rsplit("/", 4)
        return cls(root, cluster)

    @property
    def base(self) -> StoragePath:
        """`<root>/<cluster>`."""
        return StoragePath(f"{self.root.rstrip('/')}/{self.cluster}")

    @property
    def runs(self) -> StoragePath:
        """`<root>/<cluster>/runs`."""
        return self.base / "runs"

    @property
    def state(self) -> StoragePath:
        """`<root>/<cluster>/state`: copies of the committed decision state, the bundles' moving averages and costs."""
        return self.base / "state"

    @property
    def drains(self) -> StoragePath:
        """The copy of the list of drained brokers."""
        return self.state / DRAINS

    @property
    def control(self) -> StoragePath:
        """The copy of people's orders."""
        return self.state / CONTROL

    @property
    def roll(self) -> StoragePath:
        """The copy of the `roll` document."""
        return self.state / ROLL

    @property
    def replays(self) -> StoragePath:
        """`<root>/<cluster>/replays`."""
        return self.base / "replays"

    def new_replay(self, now: datetime) -> StoragePath:
        """Return the path of a new folder for one attempt at a replay; the name has the same form as a run's."""
        return self.replays / self.new_run(now).name

    def replay(self, name: str) -> StoragePath | None:
        """Return the path of a replay's folder, which need not exist; None if the name is not a valid replay name."""
        return None if time_of(name) is None else self.replays / name

    def new_run(self, now: datetime) -> StoragePath:
        """Return the path of a new folder for one attempt at a run.

        The name consists of the time and random digits, and contains no user input.
        """
        at = now.astimezone(UTC)
        return self.runs / f"date={at:%Y-%m-%d}" / f"{at:%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}"

    def run(self, name: str) -> StoragePath | None:
        """Return the path of a run's folder, which need not exist; None if the name is not a valid run name."""
        at = time_of(name)
        return None if at is None else self.runs / f"date={at:%Y-%m-%d}" / name

    def newest_runs(self, until: datetime) -> Iterator[StoragePath]:
        """Yield the folder of each run up to a given time, newest first. Raises the same errors as `dated_runs`."""
        return (folder for _, folder in self.dated_runs(until))

    def dated_runs(self, until: datetime) -> Iterator[tuple[datetime, StoragePath]]:
        """Yield the time and folder of each run up to a given time, newest first.

        Raises:
            SnapshotError: `storage_failed`.
        """
        # Names of days and runs sort by time.
        for name in reversed(self.runs.names()):
            day = day_of(name)
            if day is None or day > until.date():
                continue
            for run in reversed((self.runs / name).names()):
                at = time_of(run)
                if at is not None and at <= until:
                    yield at, self.runs / name / run
