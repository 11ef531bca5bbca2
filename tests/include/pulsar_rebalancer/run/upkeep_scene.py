import os
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

from tests.include.pulsar_rebalancer.run_folders import NOW

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.retention import NeededData, UpkeepReport, maintain_storage
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

NOTHING = NeededData(frozenset(), frozenset())
MIDNIGHT = datetime.combine(NOW.date(), time(0, tzinfo=UTC))
SECRET = "nobody deletes this"


def at(days_ago: int, hour: int = 12) -> datetime:
    return MIDNIGHT - timedelta(days=days_ago) + timedelta(hours=hour)


def upkeep(storage: ClusterStorage, needed: NeededData = NOTHING, *, dry_run=False, **settings: Any) -> UpkeepReport:
    return maintain_storage(storage, Settings.model_validate(settings), needed, NOW, dry_run=dry_run)


def all_files(storage: ClusterStorage) -> dict[str, bytes]:
    base = Path(storage.base.uri)
    return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}


def aged(file: StoragePath, days: float, content: bytes = b"{}") -> StoragePath:
    """A file, or a folder of parts, that was written this number of days ago."""
    if not file.exists():
        file.write_bytes(content)
    written = (NOW - timedelta(days=days)).timestamp()
    for path in (*Path(file.uri).rglob("*"), Path(file.uri)):
        os.utime(path, (written, written))
    return file
