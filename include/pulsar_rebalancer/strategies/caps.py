"""Apply caps to a plan's moves, and assign the moves to waves. Bundles that would exceed a cap wait for a later run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Protocol

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import namespace_of, range_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import MAX_BUNDLES_PER_WAVE, MAX_WAVES
from pulsar_rebalancer.run.tables import BrokerSample, java_sum
from pulsar_rebalancer.strategies.sample import CandidateMove

_TAKEN = Reason.TAKEN  # looked up once instead of for each of a million moves

_RELEASE_NUMBER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.\d+)*")
"""Pattern of a release number; a distributor may have added numbers. A version with a suffix does not match."""

_FIRST_OF_40, _FIRST = (4, 0, 10), (4, 2, 1)
"""First releases whose leader stores destinations by bundle, not by hash range; no 4.1 release does (release notes of
4.0.10 and 4.2.1, 27 April 2026)."""


class CapacityCheck(Protocol):
    """An additional check that can reject a unit (see `group_into_units`), given the units accepted so far."""

    def fit_to_capacity(self, unit: list[CandidateMove]) -> list[CandidateMove]:
        """Return the unit with its old or new destinations, or with the reason why it must not be moved."""
        ...

    def record_taken_moves(self, unit: list[CandidateMove]) -> None:
        """Count an accepted unit, which must be a result of `fit_to_capacity`."""
        ...


def apply_caps(
    moves: Iterable[CandidateMove],
    settings: Settings,
    groups: Mapping[str, str],
    brokers: Iterable[BrokerSample],
    capacity: CapacityCheck | None = None,
) -> list[CandidateMove]:
    """Apply the caps; return the moves sorted by pair and rank, with a wave for each accepted move.

    The order is: one bundle per anti-affinity group; bundles leaving or entering each broker; bundles per namespace;
    throughput; bundles per run, outer pairs first; waves. Only one bundle of a group may move, because its destination
    depends on the owners of the others, whose moves might fail. Waves have a fixed size, because the gate decides again
    before each wave. Under `needs_waves`, the n-th move of a hash range is in wave n instead. Caps do not affect hit
    counters. If both a cap and `capacity` (an additional check) reject a unit, the cap is the reason.
    """
    taken, result = group_into_units(moves)
    caps = _CapCounters(settings, groups, counts_ranges=bool(taken) and needs_waves(brokers))
    for unit in taken:
        fitted = capacity.fit_to_capacity(unit) if capacity else unit
        capped = caps.capped_moves(fitted if fitted[0].is_taken else unit, is_counted=fitted[0].is_taken)
        if capacity and capped[0].is_taken and fitted[0].is_taken:
            capacity.record_taken_moves(capped)
        result += capped if fitted[0].is_taken or not capped[0].is_taken else fitted
    return sort_by_pair_rank(result)


def group_into_units(moves: Iterable[CandidateMove]) -> tuple[list[list[CandidateMove]], list[CandidateMove]]:
    """Return the units of accepted moves, sorted by pair and rank, and all other moves.

    A unit is an accepted bundle with the bundles that move back in exchange for it; without the exchange, it
    would be too large to move.
    """
    taken: list[list[CandidateMove]] = []
    others: list[CandidateMove] = []
    first: CandidateMove | None = None
    for move in sort_by_pair_rank(moves):
        if move.reason is not _TAKEN:
            others.append(move)
            first = None
        elif first is not None and move.pair == first.pair and move.source == first.destination:
            taken[-1].append(move)
        else:
            taken.append([move])
            first = move
    return taken, others


def sort_by_pair_rank(moves: Iterable[CandidateMove]) -> list[CandidateMove]:
    return sorted(moves, key=attrgetter("pair", "rank"))


class _CapCounters:
    def __init__(self, settings: Settings, groups: Mapping[str, str], *, counts_ranges: bool) -> None:
        self._settings = settings
        self._groups = groups
        self._by_range = counts_ranges
        self._moving: set[str] = set()
        self._of_broker: Counter[str | None] = Counter()
        self._of_namespace: Counter[str] = Counter()
        self._bytes = 0.0
        self._of_range: Counter[str] = Counter()
        self._of_run = 0
        self._in_waves = 0

    def capped_moves(self, unit: list[CandidateMove], *, is_counted: bool = True) -> list[CandidateMove]:
        """Return a unit with its waves, or with the reason why it is rejected; count it if `is_counted`."""
        names = [namespace_of(move.bundle) for move in unit]
        groups = [self._groups[name] for name in names if name in self._groups]
        reason = self._why_rejected(unit, names, groups)
        if is_counted:
            self._add_unit(unit, names, groups, reason)
        if reason is not None:
            return [move._replace(reason=reason, wave=None) for move in unit]
        if not is_counted:
            return unit
        if not self._by_range:
            self._in_waves += len(unit)
            return [move._replace(wave=(self._in_waves - len(unit)) // MAX_BUNDLES_PER_WAVE) for move in unit]
        waves = [self._take_wave(move) for move in unit]
        if any(wave >= MAX_WAVES for wave in waves):
            return [move._replace(reason=Reason.CAP_WAVES, wave=None) for move in unit]
        return [move._replace(wave=wave) for move, wave in zip(unit, waves, strict=True)]

    def _why_rejected(self, unit: list[CandidateMove], names: list[str], groups: list[str]) -> Reason | None:
        if len(set(groups)) < len(groups) or self._moving.intersection(groups):
            return Reason.ANTI_AFFINITY
        over_run = _is_above(self._of_run + len(unit), self._settings.max_bundles_per_run)
        return self._exceeded_cap_reason(unit, names) or (Reason.CAP_RUN if over_run else None)

    def _add_unit(self, unit: list[CandidateMove], names: list[str], groups: list[str], reason: Reason | None) -> None:
        if reason is not Reason.ANTI_AFFINITY:
            self._moving.update(groups)
        if reason in (None, Reason.CAP_RUN):
            for move, name in zip(unit, names, strict=True):
                self._of_broker[move.source] += 1
                self._of_broker[move.destination] += 1
                self._of_namespace[name] += 1
            self._bytes += java_sum(move.msg_throughput for move in unit)
            self._of_run += len(unit)

    def _exceeded_cap_reason(self, unit: list[CandidateMove], names: list[str]) -> Reason | None:
        """Return the cap that a unit exceeds, ignoring the cap per run and anti-affinity; None if none."""
        caps = self._settings
        # Only the brokers of this unit are added up: a plan may have a million moves.
        ends = [broker for move in unit for broker in (move.source, move.destination)]
        if _is_above(max(self._of_broker[end] + ends.count(end) for end in ends), caps.max_bundles_per_broker):
            return Reason.CAP_BROKER
        if caps.max_bundles_per_namespace is not None:
            namespaces = (self._of_namespace[name] + count for name, count in Counter(names).items())
            if _is_above(max(namespaces), caps.max_bundles_per_namespace):
                return Reason.CAP_NAMESPACE
        if _is_above(self._bytes + java_sum(move.msg_throughput for move in unit), caps.max_bytes_per_run):
            return Reason.CAP_BYTES
        return None

    def _take_wave(self, move: CandidateMove) -> int:
        hash_range = range_of(move.bundle)
        self._of_range[hash_range] += 1
        return self._of_range[hash_range] - 1


def _is_above(count: float, cap: float | None) -> bool:
    return cap is not None and not count <= cap  # NaN is over every cap


def needs_waves(brokers: Iterable[BrokerSample]) -> bool:
    """Return whether bundles with the same hash range, from two namespaces, must not move at the same time.

    Before apache/pulsar #25518, the modular load manager's leader stored planned destinations by hash range,
    without the namespace (ModularLoadManagerImpl.setNamespaceBundleAffinity). One old broker is enough, because any
    can become the leader. The extensible load manager, whose brokers report averages, stores none.
    """
    return any(broker.load_average is None and _is_old_version(broker.version) for broker in brokers)


def _is_old_version(version: str | None) -> bool:
    match = _RELEASE_NUMBER.fullmatch(version or "")
    if match is None:
        return True
    release = tuple(map(int, match.groups()))
    return release < (_FIRST_OF_40 if release[:2] == (4, 0) else _FIRST)
