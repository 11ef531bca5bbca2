"""Make a recording from the DAG's runs, using their folders and the tables that daily upkeep writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.recording import OF_BROKERS, OF_BUNDLES, Index, KeptSample, Writer, coverage_of, minute_of
from pulsar_rebalancer.replay.samples import (
    Held,
    RunDocuments,
    brokers_of,
    brokers_of_day,
    bundles_of,
    carried,
    floats,
    pieces_of,
    policies_of,
    started,
)
from pulsar_rebalancer.run.compacted_tables import RUNS, table_file
from pulsar_rebalancer.run.tables import AVERAGES, RESOURCES, TRAFFIC
from pulsar_rebalancer.storage.documents import ClusterStorage, time_of
from pulsar_rebalancer.storage.path import StoragePath


def record(storage: ClusterStorage, settings: Settings, start: datetime, end: datetime, folder: StoragePath) -> Index:
    """Make a recording from the samples that runs collected between two times.

    If a minute has several samples, the last one counts. The settings' interval determines the expected
    number of samples; the coverage lists runs that cannot be read.

    Raises SnapshotError `file_missing` if the period has no readable sample.
    """
    writer = Writer(folder)
    reader = _Reader(storage, writer)
    repeated = blocked = 0
    day = start.astimezone(UTC).date()
    while day <= end.astimezone(UTC).date():
        listed = reader.runs_of(day)
        inside = sorted((at, name) for name, at in listed.items() if start <= at <= end and reader.can_read(name))
        valid = [(at, name) for at, name in inside if not reader.blocked(name)]
        blocked += len(inside) - len(valid)
        last_of = {minute_of(at): name for at, name in valid}
        repeated += len(valid) - len(last_of)
        reader.write_samples(day, {name: minute for minute, name in last_of.items()})
        day += timedelta(days=1)
    if not writer.places:
        why = f"; {reader.unreadable[0]}" if reader.unreadable else ""
        raise SnapshotError(
            Reason.FILE_MISSING,
            f"{storage.base.uri} has no sample from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC{why}",
        )
    return writer.finish(
        coverage_of(writer.places, start, end, settings, reader.unreadable, repeated=repeated, blocked=blocked)
    )


class _Reader:
    def __init__(self, storage: ClusterStorage, writer: Writer) -> None:
        self._storage = storage
        self._writer = writer
        self._documents: dict[str, RunDocuments] = {}
        self._bundle_rows: dict[str, int] = {}
        self._refused: dict[str, SnapshotError] = {}
        self._policies: dict[str | None, int] = {}
        self.unreadable: list[str] = []

    def runs_of(self, day: date) -> dict[str, datetime]:
        folder = self._storage.runs / f"date={day.isoformat()}"
        in_folders = {name: at for name in folder.names() if (at := time_of(name)) is not None}
        self._documents, self._bundle_rows, self._refused = {}, {}, {}
        listed = table_file(self._storage, RUNS, day)
        with self._noting(listed.uri):
            if listed.exists():
                self._list(listed)
        compacted = {name: at for name in self._bundle_rows if (at := time_of(name)) is not None}
        return in_folders | compacted

    def _list(self, listed: StoragePath) -> None:
        texts: dict[str, str] = {}
        for table in listed.read_batches(["run", "validation", "state", "documents", "bundles_rows"]):
            for row in table.to_pylist():
                policies = dict(row["documents"] or ()).get(Policies.FILE)
                # Runs with the same policies share one text: a day may have thousands of runs.
                policies = None if policies is None else texts.setdefault(policies, policies)
                self._bundle_rows[row["run"]] = row["bundles_rows"] or 0
                try:
                    self._documents[row["run"]] = RunDocuments.of(row["validation"], row["state"], policies)
                except SnapshotError as error:
                    self._refused[row["run"]] = error

    def can_read(self, name: str) -> bool:
        if name in self._refused:
            with self._noting(f"run {name}"):
                raise self._refused[name]
        elif name not in self._documents and (run := self._storage.run(name)) is not None:
            with self._noting(run.uri):
                self._documents[name] = RunDocuments.read(run)
        return name in self._documents

    def blocked(self, name: str) -> bool:
        return self._documents[name].blocked

    def write_samples(self, day: date, minutes: Mapping[str, int]) -> None:
        compacted = {name: minute for name, minute in minutes.items() if name in self._bundle_rows}
        if compacted:
            with self._noting(f"the tables of {day}"):
                self._compacted(day, compacted)
        for name, minute in minutes.items():
            run = None if name in compacted else self._storage.run(name)
            if run is None:
                continue
            with self._noting(run.uri):
                self._add(minute, brokers_of(run), bundles_of(run, self._writer), self._documents[name])

    @contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Add files that cannot be read to `unreadable`; storage failures are raised."""
        try:
            yield
        except SnapshotError as error:
            if error.reason is Reason.STORAGE_FAILED:
                raise
            self.unreadable.append(error.message if what in error.message else f"{what}: {error.message}")

    def _compacted(self, day: date, minutes: Mapping[str, int]) -> None:
        brokers = brokers_of_day(table_file(self._storage, "brokers", day), minutes)
        pieces: dict[str, list[Held]] = {}
        waiting = set(minutes)
        for run, held in pieces_of(table_file(self._storage, "bundles", day), self._writer):
            if run not in waiting:
                continue
            pieces.setdefault(run, []).append(held)
            if sum(len(piece.bundles) for piece in pieces[run]) >= self._bundle_rows[run]:
                waiting.discard(run)
                of_run, whole = brokers.filter(pc.field("run") == run), Held.joined(pieces.pop(run))
                with self._noting(f"run {run}"):
                    self._add(minutes[run], of_run, whole, self._documents[run])
        for run in sorted(waiting):
            if self._bundle_rows[run]:
                self.unreadable.append(f"run {run}: the tables of {day} do not hold all of its bundles")

    def _add(self, minute: int, brokers: pa.Table, held: Held, documents: RunDocuments) -> None:
        writer, left_out = self._writer, documents.left_out
        policies = self._policies_number(documents.policies)
        names: list[Any] = brokers["broker"].to_pylist()
        silent = np.array([name in left_out for name in names], dtype=bool)
        silent |= pc.is_valid(brokers["error"]).to_numpy()
        versions: Any = pc.fill_null(brokers["version"], pa.scalar(""))
        snapshot = KeptSample(
            brokers=writer.brokers.numbers(brokers["broker"]),
            usage=np.array([floats(brokers[f"{name}_usage"], np.nan) for name in RESOURCES]),
            limits=np.array([floats(brokers[f"{name}_limit"], np.nan) for name in RESOURCES]),
            traffic=carried(brokers),
            averages=np.array([floats(brokers[name], np.nan) for name in AVERAGES]),
            versions=writer.versions.numbers(versions),
            age=floats(brokers["report_age_seconds"], 0.0),
            started=started(brokers),
            reported=~silent,
            bundles=held.bundles,
            owner=held.owner,
            carried=held.carried,
            left_out=np.isin(held.bundles, [writer.bundles.number(name) for name in left_out if "/" in name]),
            policies=np.array([policies]),
        )
        writer.add(minute, _sound(snapshot))

    def _policies_number(self, text: str | None) -> int:
        if text not in self._policies:
            self._policies[text] = self._writer.policies_number(policies_of(text))
        return self._policies[text]


def _sound(snapshot: KeptSample) -> KeptSample:
    """Return the sample without duplicate bundles and brokers, and without bundles on unlisted brokers.

    While a bundle moves, two brokers can report it; the one that reports more traffic counts as its
    owner.
    """
    brokers, first = np.unique(snapshot.brokers, return_index=True)
    kept = np.flatnonzero(np.isin(snapshot.owner, brokers))
    if (np.diff(snapshot.bundles[kept]) <= 0).any():  # else each is there once, in order
        by_traffic = kept[np.argsort(-snapshot.carried[: len(TRAFFIC), kept].sum(axis=0), kind="stable")]
        _, once = np.unique(snapshot.bundles[by_traffic], return_index=True)
        kept = by_traffic[once]
    chosen = dict.fromkeys(OF_BROKERS, first) | dict.fromkeys(OF_BUNDLES, kept)
    return snapshot._replace(**{name: getattr(snapshot, name)[..., at] for name, at in chosen.items()})
