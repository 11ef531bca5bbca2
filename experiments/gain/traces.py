"""A day of CSV traces, replayed with AvgShedder and GainShedder.

Eight brokers follow a daily curve, each with its own phase; now and then, all of a broker's load rises for a while.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from experiments import result_files
from experiments.families.contestants import AVG, avg, joined_later
from pulsar_rebalancer.replay import traces
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.traces import MadeBundles
from pulsar_rebalancer.replay.variants import Variant
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from collections.abc import Mapping

SEEDS = (1, 2, 3, 4, 5)
BROKERS, MINUTES = 8, 24 * 60
_BURSTS = 24
"""Of the day, each on one broker: 15 to 45 minutes with 15 to 35 percent more."""


def csv_of(seed: int, minutes: int = MINUTES) -> str:
    """Return a trace with a figure of each broker in every minute."""
    random = Random(seed)
    levels = [(random.uniform(35, 50), random.uniform(0, 2 * math.pi)) for _ in range(BROKERS)]
    bursts = [
        (random.randrange(BROKERS), random.randrange(MINUTES), random.randrange(15, 46), random.uniform(15, 35))
        for _ in range(_BURSTS)
    ]
    rows = [",".join(["Time", *(f"broker-{number}" for number in range(BROKERS))])]
    for minute in range(minutes):
        figures = [
            level + 12 * math.sin(2 * math.pi * minute / MINUTES + phase) + random.gauss(0, 1)
            for level, phase in levels
        ]
        for broker, begin, lasting, more in bursts:
            figures[broker] += more if begin <= minute < begin + lasting else 0
        rows.append(",".join([str(60 * minute), *(f"{min(max(figure, 1), 100):.2f}" for figure in figures)]))
    return "\n".join(rows) + "\n"


def replayed(seed: int, minutes: int = MINUTES) -> dict[str, tuple[int, float]]:
    """Return the number of bundles that each strategy moves, and the mean range of the scores, points."""
    (gain,), usual = joined_later(), avg(AVG, {})
    variants = [Variant(of.name, of.settings) for of in (usual, gain)]
    with TemporaryDirectory() as place:
        trace, samples = Path(place) / "cpu.csv", StoragePath(f"{place}/samples")
        trace.write_text(csv_of(seed, minutes), encoding="utf-8")
        traces.record([trace], MadeBundles(seed=seed), usual.settings, samples)
        outcomes = replay(Recording.read(samples), variants, usual.settings, seed=seed)
    return {of.variant: (of.moved, round(fmean(of.ranges), 3)) for of in outcomes}


def run_traces(file: Path, commit: str) -> None:
    """Replay the traces of all seeds, and write the results."""
    runs = {str(seed): replayed(seed) for seed in SEEDS}
    result_files.save(file, json.dumps({"commit": commit, "runs": runs}, indent=1) + "\n")


def read_traces(file: Path) -> tuple[str, Mapping[str, Mapping[str, tuple[int, float]]]]:
    """Return the commit, and the results by seed and strategy."""
    document = result_files.load(file)
    return document["commit"], document["runs"]
