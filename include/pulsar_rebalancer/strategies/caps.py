"""Caps on a plan and its waves: what selection took may still be left for a later run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.plan import MAX_WAVES
from pulsar_rebalancer.snapshot import range_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulsar_rebalancer.settings import Settings

CAPPED = ("cap_broker", "cap_run", "cap_waves")
"""Reasons of bundles that selection took and a cap put back."""


def apply(moves: Iterable[Mapping[str, Any]], settings: Settings) -> list[dict[str, Any]]:
    """Moves after the caps, each taken one with its wave.

    Caps bite in this order: bundles per broker (a broker is in one pair only, so per pair), bundles per run (outer
    pairs first), waves. The n-th move of the same hash range goes to wave n. Counters never feel a cap.

    Args:
        moves: rows of the moves table as selection made them.
        settings: `max_bundles_per_broker` and `max_bundles_per_run`.

    Returns:
        Rows of the moves table, by pair and rank.
    """
    of_pair: Counter[int] = Counter()
    of_range: Counter[str] = Counter()
    of_run = 0
    result = []
    for row in sorted(moves, key=lambda move: (move["pair"], move["rank"])):
        move = {**row, "wave": None}
        result.append(move)
        if not move["taken"]:
            continue
        of_pair[move["pair"]] += 1
        if _over(of_pair[move["pair"]], settings.max_bundles_per_broker):
            move |= {"taken": False, "reason": "cap_broker"}
            continue
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
