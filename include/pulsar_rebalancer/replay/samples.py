"""The samples in a recording as columns, in chronological order, computed once for all variants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Self

import numpy as np

from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.names import range_of
from pulsar_rebalancer.replay.columns import LOADS, NOBODY, Flags, Floats, Ints, Roster
from pulsar_rebalancer.replay.minute import BrokerLoads
from pulsar_rebalancer.replay.recording import Coverage, KeptSample, RecordingIndex
from pulsar_rebalancer.run.tables import AVERAGES, RESOURCES
from pulsar_rebalancer.storage.path import StoragePath

CARRIED = tuple(map(RESOURCES.index, ("cpu", "bandwidth_in", "bandwidth_out")))
"""Resources whose usage moves with a bundle; memory does not move."""

_SHARED_LOAD_ROWS = ((0, 1), (2,), (3,))
"""For each of `CARRIED`, the rows of `LOADS` by whose sum bundles share the usage: messages, bytes in, bytes out."""


@dataclass(frozen=True)
class RecordedSample:
    """One sample in a recording; brokers and bundles are given by their positions in the sorted names.

    A broker without a report has its previous values; its bundles, with their previous load, are in
    `repeated`. `left_out` are bundles that validation left out; `reserved_by` has isolation policies.

    Attributes:
        minute: minutes since 1970.
        has_restarted: brokers whose process restarted since their previous report.
        owner, loads: each bundle's broker, and its load by `LOADS`; `NOBODY` and 0 if not reported.
        new_bundles, parent_bundles: bundles in no earlier sample, and the bundle each was split from, else `NOBODY`.
    """

    minute: int
    brokers: BrokerLoads
    has_restarted: Flags
    owner: Ints
    loads: Floats
    new_bundles: Ints
    parent_bundles: Ints
    repeated: Ints
    left_out: Ints
    policies: Policies
    reserved_by: Mapping[int, str]

    @cached_property
    def present_bundles(self) -> Flags:
        return np.asarray(self.owner != NOBODY)

    def bundle_flows(self, costs: Floats | None = None) -> Floats:
        """Return the load that each bundle carries: a row for each of `CARRIED`, then one for each of `LOADS`.

        A broker's bundles share its CPU in proportion to their messages, and its bandwidth in proportion to
        their bytes. Without messages or bytes, nothing is shared.

        Args:
            costs: percent of a core per msg/s, by bundle: bundles use that much CPU, unless their broker used less.
        """
        owned = np.flatnonzero(self.present_bundles)
        brokers = self.owner[owned]
        flows = np.zeros((len(CARRIED) + len(LOADS), len(self.owner)))
        flows[len(CARRIED) :] = self.loads
        for row, (resource, values) in enumerate(zip(CARRIED, _SHARED_LOAD_ROWS, strict=True)):
            cost, most = (costs, 1.0) if row == 0 and costs is not None else (1.0, np.inf)
            weight = (cost * self.loads[list(values)].sum(axis=0))[owned]
            whole = np.bincount(brokers, weights=weight, minlength=len(self.brokers.registered))
            used = np.nan_to_num(self.brokers.usage[resource])
            per_unit = np.divide(used, whole, out=np.zeros_like(whole), where=whole > 0)
            flows[row, owned] = weight * per_unit.clip(max=most)[brokers]
        return flows


@dataclass
class Recording:
    """A cluster's recorded samples, read file by file; `roster` has the sorted names of brokers and bundles."""

    folder: StoragePath
    index: RecordingIndex
    roster: Roster = field(init=False)

    def __post_init__(self) -> None:
        self.roster = Roster(sorted(self.index.brokers), sorted(self.index.bundles))

    @classmethod
    def read(cls, folder: StoragePath) -> Self:
        """Read a recording's index. Raises SnapshotError `file_missing`, `file_damaged`."""
        return cls(folder, RecordingIndex.read(folder))

    @property
    def coverage(self) -> Coverage:
        return self.index.coverage

    @cached_property
    def reserving_policies(self) -> list[dict[int, str]]:
        return [
            {i: name for i, broker in enumerate(self.roster.brokers) if (name := policies.reserving_policy(broker))}
            for policies in self.index.policies
        ]

    def minutes(self, first_minute: int | None = None, last_minute: int | None = None) -> list[int]:
        """Return the minutes that have a sample, `first_minute` and `last_minute` included."""
        minutes = self.index.minutes
        return [
            m
            for m in minutes
            if (first_minute is None or m >= first_minute) and (last_minute is None or m <= last_minute)
        ]

    def samples(self, minutes: Iterable[int]) -> Iterator[RecordedSample]:
        assembler = _SampleAssembler(self)
        place_of = dict(zip(self.index.minutes, self.index.places, strict=True))
        read = lru_cache(maxsize=2)(lambda number: (self.folder / str(number)).read_bytes())
        for minute in minutes:
            file, start, length = place_of[minute]
            yield assembler.assemble_sample(minute, KeptSample.from_bytes(read(file)[start : start + length]))


class _SampleAssembler:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._roster = roster = recording.roster
        self._broker_at = _positions_of(recording.index.brokers, roster.broker_at)
        self._bundle_at = _positions_of(recording.index.bundles, roster.bundle_at)
        brokers, bundles = len(roster.brokers), len(roster.bundles)
        self._said = {
            "usage": np.full((len(RESOURCES), brokers), np.nan),
            "limits": np.full((len(RESOURCES), brokers), np.nan),
            "traffic": np.zeros((len(LOADS), brokers)),
            "averages": np.full((len(AVERAGES), brokers), np.nan),
            "version_numbers": np.full(brokers, NOBODY),
        }
        self._started = np.full(brokers, np.nan)
        self._owner = np.full(bundles, NOBODY)
        self._carried = np.zeros((len(LOADS), bundles))
        self._seen = np.zeros(bundles, dtype=bool)
        self._ranges: dict[int, tuple[Ints, Ints, Ints]] = {}

    def assemble_sample(self, minute: int, snapshot: KeptSample) -> RecordedSample:
        restarted, brokers = self._restarted_brokers(snapshot), self._broker_loads(snapshot)
        owner, carried, repeated = self._bundle_loads(snapshot, brokers.registered & ~brokers.is_reported)
        born = np.flatnonzero((owner != NOBODY) & ~self._seen)
        parents = self._parents_of(born) if self._seen.any() else np.full(len(born), NOBODY)
        self._seen[born] = True
        self._owner, self._carried = owner, carried
        left_out = self._bundle_at[snapshot.bundles[snapshot.left_out]]
        number = int(snapshot.policies_number[0])
        policies, reserved = self._recording.index.policies[number], self._recording.reserving_policies[number]
        return RecordedSample(
            minute, brokers, restarted, owner, carried, born, parents, repeated, left_out, policies, reserved
        )

    def _restarted_brokers(self, snapshot: KeptSample) -> Flags:
        restarted = np.zeros(len(self._broker_at), dtype=bool)
        known = snapshot.is_reported & ~np.isnan(snapshot.started_at_s)
        at, started = self._broker_at[snapshot.broker_numbers[known]], snapshot.started_at_s[known]
        restarted[at] = started > self._started[at]
        self._started[at] = started
        return restarted

    def _broker_loads(self, snapshot: KeptSample) -> BrokerLoads:
        listed = self._broker_at[snapshot.broker_numbers]
        registered = np.zeros(len(self._broker_at), dtype=bool)
        registered[listed] = True
        reported = np.zeros_like(registered)
        reported[listed] = snapshot.is_reported
        age = np.zeros(len(registered))
        age[listed] = snapshot.report_age_s
        came = listed[snapshot.is_reported]
        for name, said in self._said.items():
            said[..., came] = getattr(snapshot, name)[..., snapshot.is_reported]
        usage, limits, traffic, averages, versions = (said.copy() for said in self._said.values())
        known = None if np.isnan(averages).all() else averages
        # The last entry, None, is for a broker that has not reported yet.
        names = (*self._recording.index.versions, None)
        of_brokers = tuple(names[number] or None for number in versions.tolist())
        return BrokerLoads(registered, reported, age, usage, limits, traffic, known, of_brokers)

    def _bundle_loads(self, snapshot: KeptSample, silent_brokers: Flags) -> tuple[Ints, Floats, Ints]:
        """Return each bundle's owner and load, and the bundles whose broker has no report; these keep their load."""
        at = self._bundle_at[snapshot.bundles]
        owner = np.full(len(self._owner), NOBODY)
        carried = np.zeros_like(self._carried)
        owner[at] = self._broker_at[snapshot.owner]
        carried[:, at] = snapshot.loads
        held = np.zeros(0, dtype=np.int64)
        if silent_brokers.any():
            held = np.flatnonzero((owner == NOBODY) & (self._owner != NOBODY))
            held = held[silent_brokers[self._owner[held]]]
            owner[held], carried[:, held] = self._owner[held], self._carried[:, held]
        return owner, carried, held

    def _parents_of(self, new_bundles: Ints) -> Ints:
        """Return, for each new bundle, the narrowest known bundle that contains its range; `NOBODY` if none does."""
        return np.array([self._parent_of(number) for number in new_bundles.tolist()], dtype=np.int64)

    def _parent_of(self, number: int) -> int:
        namespace = int(self._roster.namespace[number])
        if namespace not in self._ranges:
            self._ranges[namespace] = self._namespace_ranges(namespace)
        numbers, starts, ends = self._ranges[namespace]
        low, high = _hash_bounds(self._roster.bundles[number])
        holds = self._seen[numbers] & (starts <= low) & (high <= ends) & (ends - starts > high - low)
        wider = np.flatnonzero(holds)
        return int(numbers[wider[np.argmin((ends - starts)[wider])]]) if len(wider) else NOBODY

    def _namespace_ranges(self, namespace: int) -> tuple[Ints, Ints, Ints]:
        numbers = np.flatnonzero(self._roster.namespace == namespace)
        bounds = np.array([_hash_bounds(self._roster.bundles[number]) for number in numbers.tolist()], dtype=np.int64)
        return numbers, bounds[:, 0], bounds[:, 1]


def _positions_of(names: Sequence[str], position_of: Mapping[str, int]) -> Ints:
    return np.array([position_of[name] for name in names], dtype=np.int64)


def _hash_bounds(bundle: str) -> tuple[int, int]:
    """Return the bounds of a bundle's hash range; without a range in its name, one beyond all hashes."""
    first, _, last = range_of(bundle).partition("_")
    beyond = 1 << 32
    try:
        low, high = int(first, 16), int(last, 16)
    except ValueError:
        return beyond, beyond
    return (low, high) if 0 <= low <= high < beyond else (beyond, beyond)
