"""The files of a recording: the load of brokers and bundles in each sample, and the period that the samples cover."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.replay.columns import Flags, Floats, Ints
from pulsar_rebalancer.storage.documents import VersionedDocument
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import number_of

MINUTES_PER_DAY = 1440

_MAX_SHOWN = 10


class KeptSample(NamedTuple):
    """One stored sample; brokers and bundles are given by their numbers in `RecordingIndex`.

    Attributes:
        usage, limits: a row for each of `RESOURCES`, NaN where nothing was measured.
        traffic, loads: the brokers' and the bundles' load, a row for each of `LOADS`.
        averages: brokers' moving averages of load (1 is 100 %) and throughput (bytes/s); NaN if missing.
        version_numbers: the number of each broker's version in the index; an unknown version is an empty string.
        report_age_s: age of each load report in seconds.
        started_at_s: when the broker's process started, in seconds since 1970; NaN where unknown.
        is_reported: True for each broker that has a load report and was not left out.
        bundles: reported bundles, each once.
        left_out: True for each bundle that validation left out.
        policies_number: the number of the sample's policies in the index, as an array of one item.
    """

    broker_numbers: Ints
    usage: Floats
    limits: Floats
    traffic: Floats
    averages: Floats
    version_numbers: Ints
    report_age_s: Floats
    started_at_s: Floats
    is_reported: Flags
    bundles: Ints
    owner: Ints
    loads: Floats
    left_out: Flags
    policies_number: Ints

    def to_bytes(self) -> bytes:
        """Return the sample as bytes, with 32 bits for bundles' values: there can be millions."""
        small = self._replace(
            broker_numbers=self.broker_numbers.astype(np.int32),
            bundles=self.bundles.astype(np.int32),
            owner=self.owner.astype(np.int32),
            loads=self.loads.astype(np.float32),
        )
        out = io.BytesIO()
        for column in small:
            np.save(out, column, allow_pickle=False)
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        source = io.BytesIO(data)
        return cls(*(np.load(source, allow_pickle=False) for _ in cls._fields))


OF_BROKERS, OF_BUNDLES = KeptSample._fields[:9], KeptSample._fields[9:13]
"""Fields of `KeptSample` that have a column per broker, and those that have a column per bundle."""


class Coverage(BaseModel):
    """The part of the requested period that a recording covers.

    Attributes:
        start, end: bounds of the requested period.
        samples: number of samples that count, at most one per minute.
        minutes: time that the samples cover.
        expected: number of samples that the period would have without gaps.
        gaps: number of times that samples were missing for longer than `state_max_gap` intervals.
        blocked: number of samples that validation blocked.
        repeated: number of samples that were not the last of their minute.
        unreadable: the first files that could not be read, and why.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: AwareDatetime
    end: AwareDatetime
    first: AwareDatetime
    last: AwareDatetime
    samples: int
    minutes: float
    expected: int
    gaps: int = 0
    longest_gap_minutes: int = 0
    blocked: int = 0
    repeated: int = 0
    unreadable: tuple[str, ...] = ()
    unreadable_count: int = 0

    @property
    def sentence(self) -> str:
        share = self.samples / self.expected if self.expected else 1.0
        words = [f"{self.samples:,} of {number_of(self.expected, 'sample')} ({share:.1%})"]
        words[0] += f" from {self.first:%Y-%m-%d %H:%M} to {self.last:%Y-%m-%d %H:%M} UTC"
        if self.gaps:
            words.append(f"{number_of(self.gaps, 'gap')} (longest: {number_of(self.longest_gap_minutes, 'minute')})")
        if self.blocked:
            words.append(f"excluding {number_of(self.blocked, 'sample')} that validation blocked")
        if self.repeated:
            words.append(f"excluding {number_of(self.repeated, 'sample')} with a later sample in the same minute")
        if self.unreadable_count:
            words.append(f"{number_of(self.unreadable_count, 'file')} could not be read")
        if self.minutes < MINUTES_PER_DAY:
            words.append(f"daily values are extrapolated from {self.minutes / 60:.1f} hours")
        return "; ".join(words)

    @property
    def notes(self) -> list[str]:
        """Return notes that help readers judge the hits and values that result from these samples."""
        if not self.repeated:
            return []
        return [
            "runs were less than a minute apart, but a replay counts at most one hit a minute, so a variant may take "
            "longer than the recorded runs to reach the same number of hits"
        ]


class RecordingIndex(VersionedDocument):
    """The index of a recording's files; `places` holds file number, byte offset and length by sample."""

    FILE: ClassVar[str] = "index.json"

    brokers: tuple[str, ...]
    bundles: tuple[str, ...]
    minutes: tuple[int, ...]
    places: tuple[tuple[int, int, int], ...]
    versions: tuple[str, ...] = ()
    policies: tuple[Policies, ...]
    coverage: Coverage


def minute_of(time: datetime) -> int:
    """Return the minute that contains a time, in minutes since 1970."""
    return int(time.timestamp() // 60)


_MIN_FILE_BYTES = 16 << 20
"""Minimum size of a sample file, in bytes; only the last file may be smaller."""


class NumberedNames:
    """Assigns numbers to names, in order of first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._last: tuple[Any, Ints] | None = None

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def numbers(self, column: Any) -> Ints:
        whole: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        coded = whole if isinstance(whole, pa.DictionaryArray) else whole.dictionary_encode()
        # A day's table repeats its dictionary in every batch.
        if self._last is None or not coded.dictionary.equals(self._last[0]):
            names: list[Any] = coded.dictionary.to_pylist()
            self._last = coded.dictionary, np.array([self.number(name) for name in names], dtype=np.int64)
        of_code = self._last[1]
        codes = coded.indices.to_numpy(zero_copy_only=False)
        return of_code[codes] if len(of_code) else np.zeros(0, dtype=np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._numbers)


@dataclass
class SampleWriter:
    folder: StoragePath
    brokers: NumberedNames = field(default_factory=NumberedNames)
    bundles: NumberedNames = field(default_factory=NumberedNames)
    broker_versions: NumberedNames = field(default_factory=NumberedNames)
    policies: list[Policies] = field(default_factory=list)
    places: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _file_number: int = 0
    _unwritten_bytes: bytearray = field(default_factory=bytearray)

    def policy_set_number(self, policies: Policies) -> int:
        parsed = policies.model_copy(update={"problem": ""})
        if parsed not in self.policies:
            self.policies.append(parsed)
        return self.policies.index(parsed)

    def add_sample(self, minute: int, snapshot: KeptSample) -> None:
        """Add one sample; many small samples go into one file."""
        data = snapshot.to_bytes()
        self.places[minute] = (self._file_number, len(self._unwritten_bytes), len(data))
        self._unwritten_bytes += data
        if len(self._unwritten_bytes) >= _MIN_FILE_BYTES:
            self._write_sample_file()

    def _write_sample_file(self) -> None:
        (self.folder / str(self._file_number)).write_bytes(bytes(self._unwritten_bytes))
        self._file_number, self._unwritten_bytes = self._file_number + 1, bytearray()

    def finish(self, coverage: Coverage) -> RecordingIndex:
        self._write_sample_file()
        minutes = sorted(self.places)
        index = RecordingIndex(
            brokers=self.brokers.names,
            bundles=self.bundles.names,
            minutes=tuple(minutes),
            places=tuple(self.places[minute] for minute in minutes),
            versions=self.broker_versions.names,
            policies=tuple(self.policies),
            coverage=coverage,
        )
        index.write(self.folder)
        return index


def coverage_of(
    minutes: Iterable[int],
    start: datetime,
    end: datetime,
    settings: Settings,
    unreadable_runs: list[str],
    *,
    repeat_count: int,
    block_count: int,
) -> Coverage:
    ordered = np.array(sorted(minutes))
    interval = max(1.0, settings.interval_seconds / 60)
    apart = np.diff(ordered)
    gaps = apart[apart > settings.state_max_gap * interval]
    first, last = (datetime.fromtimestamp(int(minute) * 60, UTC) for minute in (ordered[0], ordered[-1]))
    return Coverage(
        start=start,
        end=end,
        first=first,
        last=last,
        samples=len(ordered),
        minutes=float(np.minimum(apart, interval).sum()) + interval,
        expected=max(len(ordered), int((end - start).total_seconds() / 60 / interval)),
        gaps=len(gaps),
        longest_gap_minutes=int(gaps.max()) if len(gaps) else 0,
        unreadable=tuple(unreadable_runs[:_MAX_SHOWN]),
        unreadable_count=len(unreadable_runs),
        repeated=repeat_count,
        blocked=block_count,
    )
