"""Compare what strategies did on real brokers with what a replay of their load predicts.

`python -m lab.benchmarks.real_replay FOLDER`, with the recording that `real_load` made there.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from pulsar_rebalancer.config.settings import validate
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.recording import minute_of
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.variants import Variant
from pulsar_rebalancer.storage.path import StoragePath

LEARNING, UNSHED = "learning", "no shedding"
STRATEGIES = ("GainShedder", "AvgShedder")
BLOCKS = "blocks.json"
INTERVAL_SECONDS = 60
"""Brokers measure their CPU and compute their rates at this interval: Pulsar's defaults."""

PAUSE_MINUTES = 4
"""Between blocks, while bundles go back: more than `state_max_gap` intervals, so that hits start again."""

SETTINGS: dict[str, Any] = {
    "interval_seconds": INTERVAL_SECONDS,
    "host_usage_interval_minutes": INTERVAL_SECONDS / 60,
    "max_unload_percentage": 0.2,  # as the brokers say: Pulsar's default
    # Half of the default: a block is short.
    "hit_count_low": 4,
    # Bundles that one block moved may move in the next.
    "grace_period_minutes": PAUSE_MINUTES,
    # A bundle has a few messages a second.
    "min_unload_message": 10,
    # Loopback has no bandwidth: brokers report that of the machine's network card.
    "bandwidth_in_weight": 0,
    "bandwidth_out_weight": 0,
}


class Compared(NamedTuple):
    """A strategy's mean range in points, and its number of moves: on the real brokers, and in the replay."""

    strategy: str
    real_range: float
    range: float
    real_moves: int
    moves: int


def compare(folder: StoragePath) -> list[Compared]:
    """Replay the block without shedding, once with each strategy; costs are learned up to its end."""
    recording = Recording.read(folder)
    blocks = {
        block["name"]: [minute_of(datetime.fromisoformat(block[end])) for end in ("begin", "end")]
        for block in (folder / BLOCKS).read_json()
    }
    first, last = blocks[UNSHED]
    rows = []
    for strategy in STRATEGIES:
        settings = validate(SETTINGS | {"strategy": strategy}, label=strategy)
        variants = [Variant(strategy, settings, is_current=True)]
        began, ended = blocks[strategy]
        real = replay(recording, variants, settings, first_minute=began, last_minute=ended)[-1]
        found = replay(recording, variants, settings, last_minute=last, moves_from=first)[0]
        ranges = float(np.mean(real.score_ranges)), float(np.mean(found.score_ranges))
        rows.append(Compared(strategy, *ranges, real.moved_count, found.moved_count))
    return rows


if __name__ == "__main__":
    for row in compare(StoragePath(sys.argv[1])):
        print(row)
