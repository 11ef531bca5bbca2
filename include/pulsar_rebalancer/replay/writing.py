"""Write a recording sample by sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulsar_rebalancer.replay.recording import Coverage, Index

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.policies.cluster_policies import Policies
    from pulsar_rebalancer.replay.columns import Ints
    from pulsar_rebalancer.replay.recording import KeptSample
    from pulsar_rebalancer.storage.path import StoragePath

_SHOWN = 10

_BYTES = 16 << 20
"""Minimum size of a sample file, in bytes; only the last file may be smaller."""


class Names:
    """Assigns numbers to names, in order of first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._last: tuple[Any, Ints] | None = None

    def number(self, name: str) -> int:
        """Return the number of a name."""
        return self._numbers.setdefault(name, len(self._numbers))

    def numbers(self, column: Any) -> Ints:
        """Return the numbers for an Arrow column of names; each distinct name is looked up only once."""
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
        """Return all names, in order of their numbers."""
        return tuple(self._numbers)


@dataclass
class Writer:
    """Writes samples to a recording's files."""

    folder: StoragePath
    brokers: Names = field(default_factory=Names)
    bundles: Names = field(default_factory=Names)
    versions: Names = field(default_factory=Names)
    policies: list[Policies] = field(default_factory=list)
    places: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _file: int = 0
    _waiting: bytearray = field(default_factory=bytearray)

    def policies_number(self, policies: Policies) -> int:
        """Return the number of these policies; new policies get the next number."""
        parsed = policies.model_copy(update={"problem": ""})
        if parsed not in self.policies:
            self.policies.append(parsed)
        return self.policies.index(parsed)

    def add(self, minute: int, snapshot: KeptSample) -> None:
        """Add one sample; many small samples go into one file."""
        data = snapshot.packed()
        self.places[minute] = (self._file, len(self._waiting), len(data))
        self._waiting += data
        if len(self._waiting) >= _BYTES:
            self._flush()

    def _flush(self) -> None:
        (self.folder / str(self._file)).write_bytes(bytes(self._waiting))
        self._file, self._waiting = self._file + 1, bytearray()

    def finish(self, coverage: Coverage) -> Index:
        """Write the index of the recording's files, and return it."""
        self._flush()
        minutes = sorted(self.places)
        index = Index(
            brokers=self.brokers.names,
            bundles=self.bundles.names,
            minutes=tuple(minutes),
            places=tuple(self.places[minute] for minute in minutes),
            versions=self.versions.names,
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
    unreadable: list[str],
    *,
    repeated: int,
    blocked: int,
) -> Coverage:
    """Return the part of a requested period that the samples cover."""
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
        unreadable=tuple(unreadable[:_SHOWN]),
        unreadable_count=len(unreadable),
        repeated=repeated,
        blocked=blocked,
    )
