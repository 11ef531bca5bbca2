"""Make a recording from the DAG's runs, using their folders and the tables that daily upkeep writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.replay.columns import LOADS, Floats, Ints
from pulsar_rebalancer.replay.recording import OF_BROKERS, OF_BUNDLES, KeptSample, SampleWriter, coverage_of, minute_of
from pulsar_rebalancer.run.compacted_tables import RUNS, encoded_batches, read_day_table, read_run_table, table_file
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import AVERAGES, LARGEST, RESOURCES, TRAFFIC
from pulsar_rebalancer.storage.documents import ClusterStorage, time_of
from pulsar_rebalancer.storage.path import StoragePath, json_document

_Document = TypeVar("_Document")


def record(storage: ClusterStorage, settings: Settings, start: datetime, end: datetime, folder: StoragePath) -> None:
    """Make a recording from the samples that runs collected between two times.

    If a minute has several samples, the last one counts. The settings' interval determines the expected
    number of samples; the coverage lists runs that cannot be read.

    Raises SnapshotError `file_missing` if the period has no readable sample.
    """
    writer = SampleWriter(folder)
    reader = _RunReader(storage, writer)
    repeated = blocked = 0
    day = start.astimezone(UTC).date()
    while day <= end.astimezone(UTC).date():
        listed = reader.run_times_of_day(day)
        inside = sorted((at, name) for name, at in listed.items() if start <= at <= end and reader.can_read(name))
        valid = [(at, name) for at, name in inside if not reader.is_blocked(name)]
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
    writer.finish(
        coverage_of(writer.places, start, end, settings, reader.unreadable, repeat_count=repeated, block_count=blocked)
    )


@dataclass(frozen=True)
class RunDocuments:
    """A run's validation result, drained brokers and policies.

    `is_blocked` is by validation; `left_out_names` has drained brokers too; `policies_text` is None without a file.
    """

    is_blocked: bool
    left_out_names: frozenset[str]
    policies_text: str | None

    @classmethod
    def parse(cls, validation: str | None, state: str | None, policies: str | None) -> RunDocuments:
        """Parse the documents except the policies. Raises the same errors as `read_run_table`."""
        validated = _parsed_document(validation, Validation.FILE, Validation.parse)
        drained = _parsed_document(state, StateBefore.FILE, StateBefore.parse).drains.brokers
        blocked = bool(validated.reason_counts(Effect.BLOCK))
        return cls(blocked, frozenset({*validated.quarantine_reasons, *drained}), policies)

    @classmethod
    def read(cls, run: StoragePath) -> RunDocuments:
        """Read the documents from a run's folder. Raises the same errors as `parse`."""
        return cls.parse(*(_text_or_none(run / file) for file in (Validation.FILE, StateBefore.FILE, Policies.FILE)))


def parsed_policies(text: str | None) -> Policies:
    """Parse the policies. Raises SnapshotError `file_missing`, `file_damaged`."""
    return _parsed_document(text, Policies.FILE, Policies.parse)


def _parsed_document(text: str | None, file_name: str, parse: Callable[[Any, str], _Document]) -> _Document:
    if text is None:
        raise SnapshotError(Reason.FILE_MISSING, f"{file_name} is missing")
    return parse(json_document(text, file_name), file_name)


def _text_or_none(file: StoragePath) -> str | None:
    return file.read_bytes().decode(errors="replace") if file.exists() else None


_BROKER_COLUMNS = (
    "broker",
    "error",
    "report_age_seconds",
    *(f"{name}_{part}" for name in RESOURCES for part in ("usage", "limit")),
    *LOADS,
    *AVERAGES,
    "version",
    "started_at",
)
_BUNDLE_COLUMNS = ("broker", "bundle", *LOADS)


@dataclass
class BundleBatch:
    """Some of a run's bundles; `bundles` and `owner` are numbers in `NumberedNames`, `loads` a row per value."""

    bundles: Ints
    owner: Ints
    loads: Floats

    @classmethod
    def from_table(cls, writer: SampleWriter, table: pa.Table) -> BundleBatch:
        bundles, owner = writer.bundles.numbers(table["bundle"]), writer.brokers.numbers(table["broker"])
        return cls(bundles, owner, loads_of_table(table))

    @classmethod
    def concatenate(cls, pieces: list[BundleBatch]) -> BundleBatch:
        return cls(
            np.concatenate([piece.bundles for piece in pieces]),
            np.concatenate([piece.owner for piece in pieces]),
            np.concatenate([piece.loads for piece in pieces], axis=1),
        )


def bundle_batches(file: StoragePath, writer: SampleWriter) -> Iterator[tuple[str, BundleBatch]]:
    """Yield the bundles of a day's runs in file order, a run's in one or more pieces. Raises as `read_run_table`."""
    for table in encoded_batches(file, "bundles", ("run", *_BUNDLE_COLUMNS), dict_names=["run", "broker", "bundle"]):
        runs: Any = table["run"].combine_chunks()
        codes = runs.indices.to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        held = BundleBatch.from_table(writer, table)
        for start, end in pairwise(bounds):
            part = slice(start, end)
            yield runs[start].as_py(), BundleBatch(held.bundles[part], held.owner[part], held.loads[:, part])


def float_values(column: pa.ChunkedArray[Any], missing_value: float) -> Floats:
    filled: Any = pc.fill_null(column.cast(pa.float64()), pa.scalar(missing_value))
    return np.asarray(filled.to_numpy())


def start_times(brokers: pa.Table) -> Floats:
    """Return the start times of the brokers' processes, in seconds since 1970; NaN where unknown."""
    return float_values(brokers["started_at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), np.nan) / 1e6


def loads_of_table(table: pa.Table) -> Floats:
    """Return the load, a row for each of `LOADS`; 0 if missing, negative, NaN or implausibly large."""
    return np.array([_plausible_values(table[name]) for name in LOADS])


def _plausible_values(column: pa.ChunkedArray[Any]) -> Floats:
    values = np.nan_to_num(float_values(column, 0.0), posinf=0.0, neginf=0.0)
    return np.where((values < 0) | (values > LARGEST["msg_throughput_out"]), 0.0, values)


class _RunReader:
    def __init__(self, storage: ClusterStorage, writer: SampleWriter) -> None:
        self._storage = storage
        self._writer = writer
        self._documents: dict[str, RunDocuments] = {}
        self._bundle_rows: dict[str, int] = {}
        self._refused: dict[str, SnapshotError] = {}
        self._policies: dict[str | None, int] = {}
        self.unreadable: list[str] = []

    def run_times_of_day(self, day: date) -> dict[str, datetime]:
        folder = self._storage.runs / f"date={day.isoformat()}"
        in_folders = {name: at for name in folder.entry_names() if (at := time_of(name)) is not None}
        self._documents, self._bundle_rows, self._refused = {}, {}, {}
        listed = table_file(self._storage, RUNS, day)
        with self._note_unreadable(listed.uri):
            if listed.exists():
                self._read_runs_table(listed)
        compacted = {name: at for name in self._bundle_rows if (at := time_of(name)) is not None}
        return in_folders | compacted

    def _read_runs_table(self, runs_table: StoragePath) -> None:
        texts: dict[str, str] = {}
        for table in runs_table.read_batches(["run", "validation", "state", "documents", "bundles_rows"]):
            for row in table.to_pylist():
                policies = dict(row["documents"] or ()).get(Policies.FILE)
                # Runs with the same policies share one text: a day may have thousands of runs.
                policies = None if policies is None else texts.setdefault(policies, policies)
                self._bundle_rows[row["run"]] = row["bundles_rows"] or 0
                try:
                    self._documents[row["run"]] = RunDocuments.parse(row["validation"], row["state"], policies)
                except SnapshotError as error:
                    self._refused[row["run"]] = error

    def can_read(self, name: str) -> bool:
        if name in self._refused:
            with self._note_unreadable(f"run {name}"):
                raise self._refused[name]
        elif name not in self._documents and (run := self._storage.run_folder(name)) is not None:
            with self._note_unreadable(run.uri):
                self._documents[name] = RunDocuments.read(run)
        return name in self._documents

    def is_blocked(self, name: str) -> bool:
        return self._documents[name].is_blocked

    def write_samples(self, day: date, minutes: Mapping[str, int]) -> None:
        compacted = {name: minute for name, minute in minutes.items() if name in self._bundle_rows}
        if compacted:
            with self._note_unreadable(f"the tables of {day}"):
                self._write_compacted_samples(day, compacted)
        for name, minute in minutes.items():
            run = None if name in compacted else self._storage.run_folder(name)
            if run is None:
                continue
            with self._note_unreadable(run.uri):
                self._add_sample(
                    minute,
                    read_run_table(run, "brokers", _BROKER_COLUMNS),
                    BundleBatch.from_table(self._writer, read_run_table(run, "bundles", _BUNDLE_COLUMNS)),
                    self._documents[name],
                )

    @contextmanager
    def _note_unreadable(self, source: str) -> Iterator[None]:
        """Add files that cannot be read to `unreadable`; storage failures are raised."""
        try:
            yield
        except SnapshotError as error:
            if error.reason is Reason.STORAGE_FAILED:
                raise
            self.unreadable.append(error.message if source in error.message else f"{source}: {error.message}")

    def _write_compacted_samples(self, day: date, minutes: Mapping[str, int]) -> None:
        brokers = read_day_table(table_file(self._storage, "brokers", day), "brokers", _BROKER_COLUMNS, minutes)
        pieces: dict[str, list[BundleBatch]] = {}
        waiting = set(minutes)
        for run, held in bundle_batches(table_file(self._storage, "bundles", day), self._writer):
            if run not in waiting:
                continue
            pieces.setdefault(run, []).append(held)
            if sum(len(piece.bundles) for piece in pieces[run]) >= self._bundle_rows[run]:
                waiting.discard(run)
                of_run, whole = brokers.filter(pc.field("run") == run), BundleBatch.concatenate(pieces.pop(run))
                with self._note_unreadable(f"run {run}"):
                    self._add_sample(minutes[run], of_run, whole, self._documents[run])
        for run in sorted(waiting):
            if self._bundle_rows[run]:
                self.unreadable.append(f"run {run}: bundles of this run are missing from the tables of {day}")

    def _add_sample(self, minute: int, brokers: pa.Table, batch: BundleBatch, documents: RunDocuments) -> None:
        writer, left_out = self._writer, documents.left_out_names
        policies = self._policies_number(documents.policies_text)
        names: list[Any] = brokers["broker"].to_pylist()
        silent = np.array([name in left_out for name in names], dtype=bool)
        silent |= pc.is_valid(brokers["error"]).to_numpy()
        versions: Any = pc.fill_null(brokers["version"], pa.scalar(""))
        snapshot = KeptSample(
            broker_numbers=writer.brokers.numbers(brokers["broker"]),
            usage=np.array([float_values(brokers[f"{name}_usage"], np.nan) for name in RESOURCES]),
            limits=np.array([float_values(brokers[f"{name}_limit"], np.nan) for name in RESOURCES]),
            traffic=loads_of_table(brokers),
            averages=np.array([float_values(brokers[name], np.nan) for name in AVERAGES]),
            version_numbers=writer.broker_versions.numbers(versions),
            report_age_s=float_values(brokers["report_age_seconds"], 0.0),
            started_at_s=start_times(brokers),
            is_reported=~silent,
            bundles=batch.bundles,
            owner=batch.owner,
            loads=batch.loads,
            left_out=np.isin(batch.bundles, [writer.bundles.number(name) for name in left_out if "/" in name]),
            policies_number=np.array([policies]),
        )
        writer.add_sample(minute, _without_duplicates(snapshot))

    def _policies_number(self, text: str | None) -> int:
        if text not in self._policies:
            self._policies[text] = self._writer.policy_set_number(parsed_policies(text))
        return self._policies[text]


def _without_duplicates(snapshot: KeptSample) -> KeptSample:
    """Return the sample without duplicate bundles and brokers, and without bundles on unlisted brokers.

    While a bundle moves, two brokers can report it; the one that reports more traffic counts as its
    owner.
    """
    brokers, first = np.unique(snapshot.broker_numbers, return_index=True)
    kept = np.flatnonzero(np.isin(snapshot.owner, brokers))
    if (np.diff(snapshot.bundles[kept]) <= 0).any():  # else each is there once, in order
        by_traffic = kept[np.argsort(-snapshot.loads[: len(TRAFFIC), kept].sum(axis=0), kind="stable")]
        _, once = np.unique(snapshot.bundles[by_traffic], return_index=True)
        kept = by_traffic[once]
    chosen = dict.fromkeys(OF_BROKERS, first) | dict.fromkeys(OF_BUNDLES, kept)
    return snapshot._replace(**{name: getattr(snapshot, name)[..., at] for name, at in chosen.items()})
