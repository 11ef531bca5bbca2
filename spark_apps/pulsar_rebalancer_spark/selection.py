"""The walk over the bundles of fired sources in columns, the busiest first (see `strategies.shedders.avg_shedder`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import MOVES, Measure
from pulsar_rebalancer.strategies import caps, rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.strategies.sample import Decision

_PAIR = pa.schema([MOVES.field(name) for name in ("pair", "source", "destination", "measure")])
_IN_ORDER: Any = [("pair", "ascending"), ("order", "ascending"), ("bundle", "ascending")]


def select(cluster: str, giving: Sequence[Decision], bundles: pa.Table, min_bundle_share: float) -> pa.Table:
    """Return every bundle of a fired source, taken or passed over.

    Args:
        cluster: whose bundles they are.
        giving: pairs that move something: those with a target.
        bundles: broker, bundle, msg_rate, msg_throughput, reason (why it must stay, or null).
        min_bundle_share: of the target, that a bundle must carry to be moved; ratio.

    Returns:
        The moves table before caps, by pair and rank: no move has a wave.
    """
    pairs = pa.Table.from_pylist([{name: getattr(each, name) for name in _PAIR.names} for each in giving], _PAIR)
    targets = np.array([each.target for each in giving])
    at = pc.index_in(bundles["broker"], pairs["source"].combine_chunks())
    held, at = bundles.filter(pc.is_valid(at)), at.filter(pc.is_valid(at))
    by_rate = pc.equal(pairs["measure"].take(at), pa.scalar(Measure.RATE))
    traffic = pc.if_else(by_rate, held["msg_rate"], held["msg_throughput"])
    held = held.append_column("traffic", traffic).append_column("at", at)
    keys = {"pair": pairs["pair"].take(at), "order": pc.subtract(pa.scalar(0.0), traffic), "bundle": held["bundle"]}
    held = held.take(pc.sort_indices(pa.table(keys), sort_keys=_IN_ORDER))

    places, carried = held["at"].to_numpy(), held["traffic"].to_numpy()
    target = targets[places]
    too_little = carried < target * min_bundle_share
    may = pc.is_null(held["reason"]).to_numpy() & (carried > 0) & ~too_little
    taken = _taken(places, carried, target, may)
    answers = [Reason.TAKEN, Reason.NO_TRAFFIC, Reason.BELOW_SHARE]
    fit = np.select([taken, carried <= 0, too_little], answers, Reason.OVER_REMAINING)
    columns: dict[str, Any] = {name: pairs[name].take(held["at"]) for name in _PAIR.names}
    columns |= {name: held[name] for name in ("bundle", "traffic", "msg_rate", "msg_throughput")}
    columns |= {
        "cluster": pa.repeat(cluster, held.num_rows),
        "rank": _ranks(places),
        "taken": taken,
        "reason": pc.coalesce(held["reason"], pa.array(fit)),
        "wave": pa.nulls(held.num_rows, pa.int64()),
    }
    return pa.table([columns[name] for name in MOVES.names], schema=MOVES)


def _taken(places: np.ndarray, carried: np.ndarray, target: np.ndarray, may: np.ndarray) -> np.ndarray:
    """Return which bundles are taken: each that may go and fits into what remains of its pair's target."""
    taken = np.zeros(len(places), dtype=bool)
    # What is more than the whole target never fits.
    rows = np.flatnonzero(may & (carried <= target))
    walked, remaining = -1, 0.0
    walk = (each[rows].tolist() for each in (places, carried, target))
    for row, place, load, wanted in zip(rows.tolist(), *walk, strict=True):
        if place != walked:
            walked, remaining = place, wanted
        if load <= remaining:
            remaining -= load
            taken[row] = True
    return taken


def _ranks(places: np.ndarray) -> np.ndarray:
    """Return the place of each row among those of its pair, from 0; those of a pair follow each other."""
    first = np.flatnonzero(np.diff(places, prepend=-1))
    return np.arange(len(places)) - np.repeat(first, np.diff(first, append=len(places)))


def cap(moves: pa.Table, settings: Settings, groups: Mapping[str, str], *, by_range: bool) -> pa.Table:
    """Return the moves table after the caps, each taken bundle with its wave (see `strategies.caps`).

    Args:
        moves: as `select` returned them.
        settings: the caps.
        groups: anti-affinity group by namespace.
        by_range: whether moves of the same hash range need waves.
    """
    taken = moves["taken"].combine_chunks()
    after = caps.apply(rows.taken_moves(moves), settings, groups, by_range=by_range)
    reason = pc.replace_with_mask(moves["reason"], taken, pa.array([each.reason for each in after], pa.string()))
    wave = pc.replace_with_mask(moves["wave"], taken, pa.array([each.wave for each in after], pa.int64()))
    columns = {"taken": pc.equal(reason, pa.scalar(Reason.TAKEN)), "reason": reason, "wave": wave}
    return pa.table([columns.get(name, moves[name]) for name in MOVES.names], schema=MOVES)
