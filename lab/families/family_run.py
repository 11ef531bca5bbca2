"""One run of a family: its measures over days of load."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lab.experiments.measures import Recorder
from lab.experiments.run import balance
from lab.families.drawing_clusters import draw
from pulsar_simulator.minutes.workload import MINUTES_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.experiments.variants import Variant
    from lab.families.family import Family
    from lab.families.family_results import Values
    from pulsar_rebalancer.replay.columns import Flags, Floats

SETTLED_RANGE = 20.0
"""Points: a cluster has settled after a change once its range is at most this for `SETTLED_MINUTES` in a row."""

SETTLED_MINUTES = 5
_DIGITS = 3


def run(family: Family, variant: Variant, seed: int) -> Values:
    """Let a strategy balance the cluster that the seed draws, and return the measures."""
    spec = draw(family, seed, direct=variant.direct)
    recorder = DaysRecorder(0)
    balance(spec, variant.settings, family.minutes, recorder)
    return recorder.sustained(sorted({event.minute for event in spec.events if event.minute < family.minutes}))


@dataclass
class DaysRecorder(Recorder):
    """Records days of load."""

    _carried: list[float] = field(default_factory=list)

    def minute(self, scores: Floats, alive: Flags, throughput: Floats, client_seconds: float = 0.0) -> None:
        """Record a minute, see `Recorder.minute`."""
        super().minute(scores, alive, throughput, client_seconds)
        self._carried.append(float(throughput[alive].sum()) / (1 << 20))

    def sustained(self, changes: Sequence[int]) -> Values:
        """Return the measures of the run by name, rounded (`family_page.MEASURES` says what they mean).

        Args:
            changes: minutes in which brokers start or stop, ascending.
        """
        least, _, largest, _ = np.array(self._scores).T
        days, measures = len(largest) / MINUTES_PER_DAY, self.measures()
        values = {
            "moves_per_day": measures.bundles_moved / days,
            "disturbed_per_day": 100 * measures.disturbed / float(np.mean(self._carried)) / days,
            "client_seconds_per_day": measures.client_seconds / days,
            "range_mean": measures.range_mean,
            "range_p95": float(np.percentile(largest - least, 95)),
            "hottest_p99": float(np.percentile(largest, 99)),
            "minutes_above_80_per_day": measures.minutes_above_80 / days,
            "over_unloaded_per_day": measures.overshoots / days,
            "settling": _settling(largest - least, changes),
        }
        return {name: None if value is None else round(value, _DIGITS) for name, value in values.items()}


def _settling(ranges: Floats, changes: Sequence[int]) -> float | None:
    """Return the mean number of minutes until the cluster has settled after a change, at most until the next one."""
    close = np.convolve(ranges <= SETTLED_RANGE, np.ones(SETTLED_MINUTES), "valid") == SETTLED_MINUTES
    waits = []
    for change, following in pairwise([*changes, len(ranges)]):
        settled = np.flatnonzero(close[change:following])
        waits.append(int(settled[0]) if len(settled) else following - change)
    return float(np.mean(waits)) if waits else None
