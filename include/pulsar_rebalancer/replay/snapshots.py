"""From what the DAG keeps of its runs, folders and the tables that daily upkeep made of them, to a recording."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.maintenance.history import RUNS, batches, footer_of, refuse_newer, table_file
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.replay.recording import Snapshot, minute_of
from pulsar_rebalancer.replay.writing import Writer, coverage_of
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, LARGEST, RESOURCES, TRAFFIC
from pulsar_rebalancer.storage.layout import time_of
from pulsar_rebalancer.storage.path import damage_of, failures_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import date, datetime

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.replay.columns import Floats, Ints
    from pulsar_rebalancer.replay.recording import Index
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

_BROKER_COLUMNS = (
    "broker",
    "error",
    "reserved_by",
    "report_age_seconds",
    *(f"{name}_{part}" for name in RESOURCES for part in ("usage", "limit")),
    *TRAFFIC,
)
_BUNDLE_COLUMNS = ("broker", "bundle", *TRAFFIC, "policy")
_TEXTS = {"broker", "bundle", "error", "reserved_by", "policy", "run"}


def record(storage: ClusterStorage, settings: Settings, start: datetime, end: datetime, folder: StoragePath) -> Index:
    """Make a recording of what runs collected between two times.

    Of several samples of a minute the last counts. A run that cannot be read is named in the coverage.

    Args:
        storage: of the cluster.
        settings: its interval says how many samples there should be.
        start: of the stretch.
        end: of the stretch.
        folder: where the files of the recording go.

    Raises:
        SnapshotError: `file_missing`; there is no sample in the stretch that could be read.
    """
    writer = Writer(folder)
    reader = _Reader(storage, writer)
    repeated = blocked = 0
    day = start.astimezone(UTC).date()
    while day <= end.astimezone(UTC).date():
        listed = reader.runs_of(day)
        found = sorted((at, name) for name, at in listed.items() if start <= at <= end)
        inside = [(at, name) for at, name in found if not reader.blocked(name)]
        blocked += len(found) - len(inside)
        last_of = {minute_of(at): name for at, name in inside}
        repeated += len(inside) - len(last_of)
        reader.read(day, {name: minute for minute, name in last_of.items()})
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
    """Reads runs day by day."""

    def __init__(self, storage: ClusterStorage, writer: Writer) -> None:
        self._storage = storage
        self._writer = writer
        self._judged: dict[str, _Judged] = {}
        self._bundle_rows: dict[str, int] = {}
        self.unreadable: list[str] = []

    def runs_of(self, day: date) -> dict[str, datetime]:
        """Return when the runs of a day took their samples, by name."""
        folder = self._storage.runs / f"date={day.isoformat()}"
        found = {name: at for name in folder.names() if (at := time_of(name)) is not None}
        self._judged, self._bundle_rows = {}, {}
        listed = table_file(self._storage, RUNS, day)
        with self._told(listed.uri):
            if listed.exists():
                for table in batches(listed, ["run", "validation", "state", "bundles_rows"]):
                    for row in table.to_pylist():
                        self._judged[row["run"]] = _Judged.of(row["validation"], row["state"])
                        self._bundle_rows[row["run"]] = row["bundles_rows"] or 0
        compacted = {name: at for name in self._bundle_rows if (at := time_of(name)) is not None}
        return found | compacted

    def blocked(self, name: str) -> bool:
        """Return whether validation found that a run of the day cannot be judged."""
        if name not in self._judged:
            run = self._storage.run(name)
            texts = [_text(run / file) for file in ("validation.json", "input/state.json")] if run else [None, None]
            self._judged[name] = _Judged.of(*texts)
        return self._judged[name].blocked

    def read(self, day: date, minutes: Mapping[str, int]) -> None:
        """Write the runs of a day that are named, each as the sample of its minute."""
        compacted = {name: minute for name, minute in minutes.items() if name in self._bundle_rows}
        if compacted:
            with self._told(f"the tables of {day}"):
                self._compacted(day, compacted)
        for name in minutes.keys() - compacted.keys():
            run = self._storage.run(name)
            if run is None:
                continue
            with self._told(run.uri):
                self._folder(run, minutes[name])

    def _told(self, what: str) -> _Told:
        return _Told(self.unreadable, what)

    def _folder(self, run: StoragePath, minute: int) -> None:
        brokers = _whole(run / "input" / "brokers.parquet", _BROKER_COLUMNS)
        bundles = _whole(run / "input" / "bundles.parquet", _BUNDLE_COLUMNS)
        self._add(minute, brokers, _Held.of(self._writer, bundles), self._judged[run.name].left_out)

    def _compacted(self, day: date, minutes: Mapping[str, int]) -> None:
        wanted = pa.array(sorted(minutes))
        file = table_file(self._storage, "brokers", day)
        _check(file, _BROKER_COLUMNS, BROKERS)
        tables = [table.filter(pc.is_in(table["run"], wanted)) for table in batches(file, ["run", *_BROKER_COLUMNS])]
        brokers = pa.concat_tables(tables)
        pieces: dict[str, list[_Held]] = {}
        waiting = set(minutes)
        for run, held in _pieces(table_file(self._storage, "bundles", day), self._writer):
            if run not in waiting:
                continue
            pieces.setdefault(run, []).append(held)
            if sum(len(piece.bundles) for piece in pieces[run]) >= self._bundle_rows[run]:
                waiting.discard(run)
                self._add(
                    minutes[run],
                    brokers.filter(pc.field("run") == run),
                    _Held.joined(pieces.pop(run)),
                    self._judged[run].left_out,
                )
        for run in sorted(waiting):
            if self._bundle_rows[run]:
                self.unreadable.append(f"run {run}: the tables of {day} do not hold all of its bundles")

    def _add(self, minute: int, brokers: pa.Table, held: _Held, left_out: frozenset[str]) -> None:
        writer = self._writer
        names: list[Any] = brokers["broker"].to_pylist()
        policies = zip(names, brokers["reserved_by"].to_pylist(), strict=True)
        writer.reserved.update({name: policy for name, policy in policies if policy is not None})
        numbers = writer.brokers.numbers(brokers["broker"])
        silent = np.array([name in left_out for name in names], dtype=bool)
        silent |= pc.is_valid(brokers["error"]).to_numpy()
        snapshot = Snapshot(
            brokers=numbers,
            usage=np.array([_floats(brokers[f"{name}_usage"], np.nan) for name in RESOURCES]),
            limits=np.array([_floats(brokers[f"{name}_limit"], np.nan) for name in RESOURCES]),
            traffic=np.array([_traffic(brokers[name]) for name in TRAFFIC]),
            age=_floats(brokers["report_age_seconds"], 0.0),
            reported=~silent,
            bundles=held.bundles,
            owner=held.owner,
            carried=held.carried,
            left_out=np.isin(held.bundles, [writer.bundles.number(name) for name in left_out if "/" in name]),
        )
        writer.add(minute, _sound(snapshot))


@dataclass
class _Held:
    """Bundles of one run, or a part of them."""

    bundles: Ints
    owner: Ints
    carried: Floats

    @classmethod
    def of(cls, writer: Writer, table: pa.Table) -> _Held:
        bundles = writer.bundles.numbers(table["bundle"])
        writer.under_policy.update(bundles[pc.is_valid(table["policy"]).to_numpy()].tolist())
        return cls(
            bundles, writer.brokers.numbers(table["broker"]), np.array([_traffic(table[name]) for name in TRAFFIC])
        )

    @classmethod
    def joined(cls, pieces: list[_Held]) -> _Held:
        return cls(
            np.concatenate([piece.bundles for piece in pieces]),
            np.concatenate([piece.owner for piece in pieces]),
            np.concatenate([piece.carried for piece in pieces], axis=1),
        )


def _sound(snapshot: Snapshot) -> Snapshot:
    """Return the sample with each bundle and broker once, and no bundle on a broker that is not listed.

    While a bundle moves two brokers may report it: the one that carries more of it is its owner.
    """
    brokers, first = np.unique(snapshot.brokers, return_index=True)
    by_traffic = np.argsort(-snapshot.carried.sum(axis=0), kind="stable")
    known = by_traffic[np.isin(snapshot.owner[by_traffic], brokers)]
    _, once = np.unique(snapshot.bundles[known], return_index=True)
    kept = known[once]
    return Snapshot(
        brokers=brokers,
        usage=snapshot.usage[:, first],
        limits=snapshot.limits[:, first],
        traffic=snapshot.traffic[:, first],
        age=snapshot.age[first],
        reported=snapshot.reported[first],
        bundles=snapshot.bundles[kept],
        owner=snapshot.owner[kept],
        carried=snapshot.carried[:, kept],
        left_out=snapshot.left_out[kept],
    )


def _pieces(file: StoragePath, writer: Writer) -> Iterator[tuple[str, _Held]]:
    """Yield the bundles of a day's runs in the order of the file; those of a run may come in several pieces."""
    _check(file, _BUNDLE_COLUMNS, BUNDLES)
    file_system, path = file.open()
    coded = ["run", "broker", "bundle"]
    with (
        failures_of(file.uri, "read"),
        damage_of(file.uri),
        pq.ParquetFile(path, filesystem=file_system, read_dictionary=coded) as source,
    ):
        for batch in source.iter_batches(columns=["run", *_BUNDLE_COLUMNS]):
            table = pa.Table.from_batches([batch])
            runs: Any = batch["run"]
            codes = runs.indices.to_numpy()
            bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
            held = _Held.of(writer, table)
            for start, end in pairwise(bounds):
                part = slice(start, end)
                yield runs[start].as_py(), _Held(held.bundles[part], held.owner[part], held.carried[:, part])


def _whole(file: StoragePath, columns: Iterable[str]) -> pa.Table:
    _check(file, columns, BROKERS if "broker" in file.name else BUNDLES)
    return file.read_table(list(columns))


def _check(file: StoragePath, columns: Iterable[str], today: pa.Schema) -> None:
    """Refuse a table of a newer release, and one whose columns are missing or hold something else.

    Raises:
        SnapshotError: `file_missing`, `file_version` or `file_damaged`.
    """
    found = footer_of(file)[0]
    refuse_newer(found, today, file.uri)
    for name in columns:
        if name not in found.names:
            raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri} has no column {name}")
        kind = found.field(name).type
        text = pa.types.is_string(kind) or pa.types.is_null(kind)
        if text != (name in _TEXTS) and not pa.types.is_null(kind):
            raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri}: column {name} holds {kind}")


def _floats(column: pa.ChunkedArray[Any], missing: float) -> Floats:
    filled: Any = pc.fill_null(column.cast(pa.float64()), pa.scalar(missing))
    return np.asarray(filled.to_numpy())


def _traffic(column: pa.ChunkedArray[Any]) -> Floats:
    """Return figures of traffic; one that is missing, negative, absurd or no number is 0."""
    figures = np.nan_to_num(_floats(column, 0.0), posinf=0.0, neginf=0.0)
    return np.where((figures < 0) | (figures > LARGEST[TRAFFIC[-1]]), 0.0, figures)


@dataclass(frozen=True)
class _Judged:
    """What validation said of a run, and who was drained then."""

    blocked: bool
    left_out: frozenset[str]

    @classmethod
    def of(cls, validation: str | None, state: str | None) -> _Judged:
        """Read the documents; what is missing or unreadable says nothing."""
        found, kept = _document(validation).get("findings"), _document(state).get("drains")
        findings = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        effects = [(each.get("effect"), str(each.get("subject"))) for each in findings]
        drained = kept.get("brokers") if isinstance(kept, dict) else None
        left_out = {subject for effect, subject in effects if effect == Effect.QUARANTINE} | set(drained or ())
        return cls(any(effect == Effect.BLOCK for effect, _ in effects), frozenset(left_out))


def _document(text: str | None) -> dict[str, Any]:
    try:
        found: Any = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(file: StoragePath) -> str | None:
    return file.read_bytes().decode(errors="replace") if file.exists() else None


class _Told:
    """Takes down that something could not be read, unless it is the store that fails; a context manager."""

    def __init__(self, told: list[str], what: str) -> None:
        self._told = told
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, SnapshotError) and error.reason is not Reason.STORAGE_FAILED:
            self._told.append(error.message if self._what in error.message else f"{self._what}: {error.message}")
            return True
        return False
