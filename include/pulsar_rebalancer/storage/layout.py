"""Where the files of a cluster lie below the storage root, and what its run folders are called."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, date, datetime

from pulsar_rebalancer.storage.path import StoragePath

LOAD_DATA = "load-data.json"
"""Name of the file in a cluster's state folder that holds what brokers of the extensible load manager published."""

DRAINS, CONTROL = "drains.json", "control.json"
"""Names of the copies of what no loss of the state store may end."""

_DAY = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_RUN = re.compile(r"(\d{8}T\d{6}\.\d{6}Z)-[0-9a-f]{8}")


def day_of(name: str) -> date | None:
    """Return the day that `date=YYYY-MM-DD` names; None for any other name."""
    found = _DAY.fullmatch(name)
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def time_of(name: str) -> datetime | None:
    """Return when a run of this folder name took its sample; None when it is no such name."""
    found = _RUN.fullmatch(name)
    try:
        return datetime.strptime(found[1], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC) if found else None
    except ValueError:
        return None


@dataclass(frozen=True)
class ClusterStorage:
    """The folders of one cluster below the root."""

    root: str
    cluster: str

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
        """`<root>/<cluster>/state`: copies of the committed decision state, and the means of bundles."""
        return self.base / "state"

    @property
    def drains(self) -> StoragePath:
        """Return the copy of the marks of brokers that are drained."""
        return self.state / DRAINS

    @property
    def control(self) -> StoragePath:
        """Return the copy of what people ordered."""
        return self.state / CONTROL

    @property
    def replays(self) -> StoragePath:
        """`<root>/<cluster>/replays`."""
        return self.base / "replays"

    def new_replay(self, now: datetime) -> StoragePath:
        """Return a folder for one attempt of a replay, called as those of runs are."""
        return self.replays / self.new_run(now).name

    def replay(self, name: str) -> StoragePath | None:
        """Return the folder of the replay of this name, whether there is one or not; None for what is no such name."""
        return None if time_of(name) is None else self.replays / name

    def new_run(self, now: datetime) -> StoragePath:
        """Return a folder for one attempt: its name holds the time and random hex digits, nothing a user typed."""
        at = now.astimezone(UTC)
        return self.runs / f"date={at:%Y-%m-%d}" / f"{at:%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}"

    def run(self, name: str) -> StoragePath | None:
        """Return the folder of the run of this name, whether there is one or not; None for what is no run's name."""
        at = time_of(name)
        return None if at is None else self.runs / f"date={at:%Y-%m-%d}" / name
