"""Daily upkeep over files of a given age."""

from __future__ import annotations

import os
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.include.run_folders import NOW

from pulsar_rebalancer.retention import Held, Report, keep_up
from pulsar_rebalancer.settings import Settings

if TYPE_CHECKING:
    from pulsar_rebalancer.storage import ClusterStorage, Folder

NOTHING = Held(frozenset(), frozenset())
MIDNIGHT = datetime.combine(NOW.date(), time(0, tzinfo=UTC))
SECRET = "nobody deletes this"


def at(days_ago: int, hour: int = 12) -> datetime:
    return MIDNIGHT - timedelta(days=days_ago) + timedelta(hours=hour)


def upkeep(storage: ClusterStorage, held: Held = NOTHING, *, dry_run: bool = False, **settings: Any) -> Report:
    return keep_up(storage, Settings.model_validate(settings), held, NOW, dry_run=dry_run)


def all_files(storage: ClusterStorage) -> dict[str, bytes]:
    base = Path(storage.base.uri)
    return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}


def aged(file: Folder, days: float, content: bytes = b"{}") -> Folder:
    """A file, or a folder of parts, that was written so many days ago."""
    if not file.exists():
        file.write_bytes(content)
    written = (NOW - timedelta(days=days)).timestamp()
    for path in (*Path(file.uri).rglob("*"), Path(file.uri)):
        os.utime(path, (written, written))
    return file
