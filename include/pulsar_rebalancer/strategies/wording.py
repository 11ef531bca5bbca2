"""Convert amounts of traffic, pairs and moves to text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.strategies.sample import CandidateMove, Decision


def amount(measure: Measure, figure: float) -> str:
    """Return a message rate (msg/s) or a throughput (bytes/s) as text."""
    return f"{figure:,.0f} msg/s" if measure is Measure.RATE else f"{figure / MIB:,.2f} MiB/s"


def gap_and_hits(pair: Decision) -> str:
    """Return a phrase with a pair's gap and hits."""
    hits = f"{pair.low_hits} low and {pair.high_hits} high hits"
    return f"{pair.source} is {pair.gap:.1f} points above {pair.destination}, {hits}"


def moving(moves: Sequence[CandidateMove]) -> str:
    """Return a phrase that says how many bundles move and how much traffic they have."""
    if not moves:
        return "no bundle"
    traffic = amount(moves[0].measure, math.fsum(move.traffic for move in moves))
    return f"{number_of(len(moves), 'bundle')} with {traffic}"
