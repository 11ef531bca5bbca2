"""Caps on a plan and its waves: what selection took may still be left for a later run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.plan import MAX_WAVES
from pulsar_rebalancer.snapshot import namespace_of, range_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulsar_rebalancer.settings import Settings

CAPPED = ("cap_broker", "cap_run", "cap_waves")
"""Reasons of bundles that selection took and a cap put back."""


def apply(moves: Iterable[Mapping[str, Any]], settings: Settings, groups: Mapping[str, str]) -> list[dict[str, Any]]:
    """Moves after the caps, each taken one with its wave.

    Caps bite in this order: one bundle of each anti-affinity group, because destinations are right only while the
    group's others are where they were counted, and a move may be capped or fail; bundles off or onto one broker;
    bundles per run, outer pairs first; waves. The n-th move of the same hash range goes to wave n. Counters never feel
    a cap.

    Args:
        moves: rows of the moves table as selection made them.
        settings: `max_bundles_per_broker` and `max_bundles_per_run`.
        groups: anti-affinity group by namespace.

    Returns:
        Rows of the moves table, by pair and rank.
    """
    caps = _Caps(settings, groups)
    result = []
    for unit in units(moves):
        rows = [{**row, "wave": None} for row in unit]
        result += rows
        if not rows[0]["taken"]:
            continue
        reason = caps.bite(rows)
        for row in rows if reason else ():
            row |= {"taken": False, "reason": reason, "wave": None}
    return result


def units(moves: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Rows by pair and rank; a taken bundle and those that come back for it are one unit, all others stand alone.

    Half a swap would be worse than none: a bundle that was too large to go alone would go alone.
    """
    found: list[list[Mapping[str, Any]]] = []
    for row in sorted(moves, key=lambda move: (move["pair"], move["rank"])):
        first = found[-1][0] if found else None
        comes_back = (
            first is not None
            and first["taken"]
            and row["taken"]
            and row["pair"] == first["pair"]
            and row["source"] == first["destination"]
        )
        if comes_back:
            found[-1].append(row)
        else:
            found.append([row])
    return found


class _Caps:
    """What the units of one plan have used up so far."""

    def __init__(self, settings: Settings, groups: Mapping[str, str]) -> None:
        self._settings = settings
        self._groups = groups
        self._moving: set[str] = set()
        self._of_broker: Counter[str] = Counter()
        self._of_range: Counter[str] = Counter()
        self._of_run = 0

    def bite(self, rows: list[dict[str, Any]]) -> str | None:
        """The reason why a unit has to wait; None when it goes, then its rows have their waves."""
        names = [namespace_of(row["bundle"]) for row in rows]
        groups = [self._groups[name] for name in names if name in self._groups]
        if len(set(groups)) < len(groups) or self._moving.intersection(groups):
            return "anti_affinity"
        self._moving.update(groups)
        ends = Counter(row[end] for row in rows for end in ("source", "destination"))
        cap = self._settings.max_bundles_per_broker
        if any(_over(self._of_broker[broker] + count, cap) for broker, count in ends.items()):
            return "cap_broker"
        self._of_broker += ends
        self._of_run += len(rows)
        if _over(self._of_run, self._settings.max_bundles_per_run):
            return "cap_run"
        for row in rows:
            row["wave"] = self._of_range[range_of(row["bundle"])]
            self._of_range[range_of(row["bundle"])] += 1
        return "cap_waves" if any(row["wave"] >= MAX_WAVES for row in rows) else None


def _over(count: int, cap: int | None) -> bool:
    return cap is not None and count > cap
