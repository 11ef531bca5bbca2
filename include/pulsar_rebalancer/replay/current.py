"""A cluster's current settings, taken from its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config.resolution import RunParams
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.compacted_tables import RUNS, table_file
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.storage.layout import day_of
from pulsar_rebalancer.storage.path import json_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath


def current_settings(storage: ClusterStorage, of_file: Settings) -> tuple[Settings, str]:
    """Return the effective settings of the newest run started without parameters, and text that names their source.

    The settings include those that the run read from the brokers. Runs are looked up in their folders and in the
    compacted tables.

    Args:
        of_file: settings from the clusters file, returned if there is no such run.
    """
    tables = [name.removesuffix(".parquet") for name in (storage.base / "history" / RUNS).names()]
    days = {day for name in (*storage.runs.names(), *tables) if (day := day_of(name))}
    for day in sorted(days, reverse=True):
        for name, request in _of_day(storage, day):
            if request.params == RunParams():
                return request.resolved.settings, f"those of run {name}"
    return of_file, "those of the clusters file, without the brokers' own: no run with these was found"


def _of_day(storage: ClusterStorage, day: date) -> Iterator[tuple[str, RunRequest]]:
    """Yield the readable requests of a day's runs, the newest run first."""
    folder = storage.runs / f"date={day.isoformat()}"
    compacted = _compacted(table_file(storage, RUNS, day))
    for name in sorted({*folder.names(), *compacted}, reverse=True):
        text = compacted.get(name)
        try:
            request = (
                RunRequest.read(folder / name) if text is None else RunRequest.parse(json_document(text, name), name)
            )
        except SnapshotError:
            continue
        yield name, request


def _compacted(listed: StoragePath) -> dict[str, str | None]:
    try:
        tables = list(listed.read_batches(["run", "settings"])) if listed.exists() else []
    except SnapshotError:
        return {}
    return {row["run"]: row["settings"] for table in tables for row in table.to_pylist()}
