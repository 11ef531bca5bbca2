"""Measures of a run over days of load."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lab.experiments.measures import Recorder
from pulsar_simulator.minutes.workload import MINUTES_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.replay.columns import Flags, Floats

SETTLED_RANGE = 20.0
"""Points: a cluster has settled after a change once its range is at most this for `SETTLED_MINUTES` in a row."""

SETTLED_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Sustained:
    """The measures of one run, from its first minute to its last. Scores are true ones, in percent.

    Attributes:
        moves_per_day: bundles that the strategy moved.
        disturbed_per_day: throughput of the moved bundles when they moved, in percent of the cluster's mean throughput.
        client_seconds_per_day: seconds for which clients were without a broker, added up over the clients.
        range_mean: largest minus least score, points, mean over the minutes.
        range_p95: its 95th percentile.
        hottest_p99: 99th percentile of the hottest broker's score.
        minutes_above_80_per_day: minutes in which a broker was above 80.
        over_unloaded_per_day: bundles moved whose source was 5 points below the mean within the ten minutes after.
        settling: minutes from a broker's start or stop until the range was at most 20 points for five minutes in a
            row, at most until the next such change; mean over the changes, None without any.
    """

    moves_per_day: float
    disturbed_per_day: float
    client_seconds_per_day: float
    range_mean: float
    range_p95: float
    hottest_p99: float
    minutes_above_80_per_day: float
    over_unloaded_per_day: float
    settling: float | None


@dataclass
class DaysRecorder(Recorder):
    """Records days of load."""

    _carried: list[float] = field(default_factory=list)

    def minute(self, scores: Floats, alive: Flags, throughput: Floats, client_seconds: float = 0.0) -> None:
        """Record a minute, see `Recorder.minute`."""
        super().minute(scores, alive, throughput, client_seconds)
        self._carried.append(float(throughput[alive].sum()) / (1 << 20))

    def sustained(self, changes: Sequence[int]) -> Sustained:
        """Return the measures of the run.

        Args:
            changes: minutes in which brokers start or stop, ascending.
        """
        least, _, largest, _ = np.array(self._scores).T
        days, measures = len(largest) / MINUTES_PER_DAY, self.measures()
        return Sustained(
            moves_per_day=measures.bundles_moved / days,
            disturbed_per_day=100 * measures.disturbed / float(np.mean(self._carried)) / days,
            client_seconds_per_day=measures.client_seconds / days,
            range_mean=measures.range_mean,
            range_p95=float(np.percentile(largest - least, 95)),
            hottest_p99=float(np.percentile(largest, 99)),
            minutes_above_80_per_day=measures.minutes_above_80 / days,
            over_unloaded_per_day=measures.overshoots / days,
            settling=_settling(largest - least, changes),
        )


def _settling(ranges: Floats, changes: Sequence[int]) -> float | None:
    close = np.convolve(ranges <= SETTLED_RANGE, np.ones(SETTLED_MINUTES), "valid") == SETTLED_MINUTES
    waits = []
    for change, following in pairwise([*changes, len(ranges)]):
        settled = np.flatnonzero(close[change:following])
        waits.append(int(settled[0]) if len(settled) else following - change)
    return float(np.mean(waits)) if waits else None
