"""A replay's progress: each part writes its completed fraction to a file; a thread prints the sum of the fractions."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import RebalancerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_rebalancer.storage.path import StoragePath

_FOLDER = "progress"
_SECONDS_BETWEEN_LINES = 5.0


def say(line: str) -> None:
    """Print a line that starts with the current time."""
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", flush=True)


def share_of(work: StoragePath, part: int) -> Callable[[float], None]:
    """Return a function that stores the completed fraction of a part, 0 to 1."""
    return partial(_write, work / _FOLDER / str(part))


def _write(file: StoragePath, share: float) -> None:
    file.write_bytes(f"{share:.3f}".encode())


class Progress:
    """A context manager that prints the progress of the replays at regular intervals.

    Args:
        works: work folders of the current replays.
        parts: total number of parts of these replays.
    """

    def __init__(self, works: Iterable[StoragePath], parts: int) -> None:
        self._folders = [work / _FOLDER for work in works]
        self._parts = parts
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = -1
        while not self._over.wait(_SECONDS_BETWEEN_LINES):
            try:
                shares = [float((folder / name).read_bytes()) for folder in self._folders for name in folder.names()]
            except (RebalancerError, ValueError):
                continue
            percent = int(100 * sum(shares) / self._parts)
            if percent > before:
                before = percent
                say(f"{percent} % replayed")
