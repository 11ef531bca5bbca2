"""Caps on a plan and its waves: what selection took may still be left for a later run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.plan import MAX_WAVES
from pulsar_rebalancer.snapshot import namespace_of, range_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulsar_rebalancer.settings import Settings

NO_GROUPS: dict[str, str] = {}
CAPPED = ("cap_broker", "cap_run", "cap_waves")
"""Reasons of bundles that selection took and a cap put back."""


def apply(
    moves: Iterable[Mapping[str, Any]], settings: Settings, groups: Mapping[str, str] = NO_GROUPS
) -> list[dict[str, Any]]:
    """Moves after the caps, each taken one with its wave.

    Caps bite in this order: one bundle of each anti-affinity group, because its destination was checked against where
    the others are now; bundles off or onto one broker; bundles per run, outer pairs first; waves. The n-th move of the
    same hash range goes to wave n. Counters never feel a cap.

    Args:
        moves: rows of the moves table as selection made them.
        settings: `max_bundles_per_broker` and `max_bundles_per_run`.
        groups: anti-affinity group by namespace, where the destinations were not checked one after the other.

    Returns:
        Rows of the moves table, by pair and rank.
    """
    of_broker: Counter[str] = Counter()
    of_range: Counter[str] = Counter()
    of_run = 0
    moving: set[str] = set()
    result = []
    for row in sorted(moves, key=lambda move: (move["pair"], move["rank"])):
        move = {**row, "wave": None}
        result.append(move)
        if not move["taken"]:
            continue
        group = groups.get(namespace_of(move["bundle"]))
        if group in moving:
            move |= {"taken": False, "reason": "anti_affinity"}
            continue
        if group is not None:
            moving.add(group)
        ends = (move["source"], move["destination"])
        if any(_over(of_broker[broker] + 1, settings.max_bundles_per_broker) for broker in ends):
            move |= {"taken": False, "reason": "cap_broker"}
            continue
        of_broker.update(ends)
        of_run += 1
        if _over(of_run, settings.max_bundles_per_run):
            move |= {"taken": False, "reason": "cap_run"}
            continue
        wave = of_range[range_of(move["bundle"])]
        of_range[range_of(move["bundle"])] += 1
        if wave >= MAX_WAVES:
            move |= {"taken": False, "reason": "cap_waves"}
        else:
            move["wave"] = wave
    return result


def _over(count: int, cap: int | None) -> bool:
    return cap is not None and count > cap
