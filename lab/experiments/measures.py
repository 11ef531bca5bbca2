"""The measures of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.replay.columns import Flags, Floats

HOT = 80.0
"""Percent above which a broker counts as hot in `minutes_above_80`."""

_ROUNDING = 1e-6
"""Points by which arithmetic may be off: a broker that was set up to be at 80 is not above it."""

FROM_MEAN = 5.0
"""Points above the mean of the brokers from which a destination was hot already; below it a source gave too much."""

LAST_MINUTES = 10
"""How many minutes at the end of a run say how it ended; a run in which bundles still move then has not settled."""

_POINTS = 120
"""How many steps of a run are kept at most."""


class Curve(NamedTuple):
    """A run over time, thinned out.

    Attributes:
        step: minutes.
        ranges: largest minus least score, points, mean over each step.
        unloads: minutes with unloads, all of them.
    """

    step: int
    ranges: list[float]
    unloads: list[int]


@dataclass(frozen=True, slots=True)
class Measures:
    """One run.

    Attributes:
        unload_events: minutes in which the strategy unloaded anything.
        bundles_moved: total number of bundles moved.
        disturbed: throughput of the moved bundles when they were moved, MiB/s in plus out, added up.
        settled_after: minutes from the disturbance to the last unload; 0 without any, None when bundles still moved in
            the last minutes.
        range_mean: largest minus least score from the disturbance on, points, mean over time.
        range_end: the same, over the last minutes.
        std_mean: standard deviation of the scores from the disturbance on, points, mean over time.
        std_end: the same, over the last minutes.
        minutes_above_80: minutes in which a broker was above 80 percent.
        hot_placements: bundles that were given to a broker already above the mean by 5 points; without what came back
            in a swap that the shedder declared.
        overshoots: bundles moved whose source was 5 points below the mean within the ten minutes after; without what
            came back in such a swap.
        traffic_ratio_end: throughput of the busiest broker by that of the idlest over the last minutes; infinite where
            one carries nothing.
        largest_end: score of the hottest broker over the last minutes, percent.
        client_seconds: seconds in which bundles had no broker, each times its clients; those of brokers that stop, too.
    """

    unload_events: int
    bundles_moved: int
    disturbed: float
    settled_after: int | None
    range_mean: float
    range_end: float
    std_mean: float
    std_end: float
    minutes_above_80: int
    hot_placements: int
    overshoots: int
    traffic_ratio_end: float
    largest_end: float
    client_seconds: float


@dataclass
class Recorder:
    """Records a run.

    Attributes:
        disturbed_at: the minute from which settling is counted.
    """

    disturbed_at: int
    _scores: list[tuple[float, float, float, float]] = field(default_factory=list)
    _below: list[Flags] = field(default_factory=list)
    _unloads: dict[int, list[int]] = field(default_factory=dict)
    _gave: dict[int, list[int]] = field(default_factory=dict)
    _disturbed: float = 0.0
    _hot_placements: int = 0
    _ratios: list[float] = field(default_factory=list)
    _client_seconds: float = 0.0

    def minute(self, scores: Floats, alive: Flags, throughput: Floats, client_seconds: float = 0.0) -> None:
        """Record the brokers' true scores in a minute, percent, and their throughput, bytes/s.

        Args:
            scores: one entry per broker.
            alive: True for each broker that runs.
            throughput: one entry per broker.
            client_seconds: how long bundles had no broker, each times its clients.
        """
        self._client_seconds += client_seconds
        there = scores[alive]
        self._scores.append((float(there.min()), float(there.mean()), float(there.max()), float(there.std())))
        self._below.append(alive & (scores <= there.mean() - FROM_MEAN))
        carried = throughput[alive]
        idlest = float(carried.min())
        self._ratios.append(float(carried.max()) / idlest if idlest else math.inf)

    def unloads(self, minute: int, bundles: Iterable[tuple[int, float, bool]]) -> None:
        """Record the bundles that are unloaded after a minute.

        Args:
            minute: after which.
            bundles: the source of each, its throughput, bytes/s, and whether it comes back in a swap.
        """
        for source, throughput, swapped in bundles:
            self._unloads.setdefault(minute, []).append(source)
            if not swapped:
                self._gave.setdefault(minute, []).append(source)
            self._disturbed += throughput / (1 << 20)

    def placed(self, destination: int, scores: Floats, alive: Flags) -> None:
        """Record that a bundle was placed on a broker, with the scores of the previous minute."""
        if scores[destination] >= float(scores[alive].mean()) + FROM_MEAN:
            self._hot_placements += 1

    def measures(self) -> Measures:
        """Return the measures of the run."""
        scores = np.array(self._scores)
        after, end = scores[self.disturbed_at :], scores[-LAST_MINUTES:]
        last = max(self._unloads, default=None)
        settled = None if last is not None and last >= len(scores) - LAST_MINUTES else self._settled(last)
        return Measures(
            unload_events=len(self._unloads),
            bundles_moved=sum(map(len, self._unloads.values())),
            disturbed=self._disturbed,
            settled_after=settled,
            range_mean=float((after[:, 2] - after[:, 0]).mean()),
            range_end=float((end[:, 2] - end[:, 0]).mean()),
            std_mean=float(after[:, 3].mean()),
            std_end=float(end[:, 3].mean()),
            minutes_above_80=int((scores[:, 2] > HOT + _ROUNDING).sum()),
            hot_placements=self._hot_placements,
            overshoots=self._overshoots(),
            traffic_ratio_end=float(np.mean(self._ratios[-LAST_MINUTES:])),
            largest_end=float(end[:, 2].mean()),
            client_seconds=self._client_seconds,
        )

    def curve(self) -> Curve:
        """Return the run over time."""
        scores = np.array(self._scores)
        ranges, step = scores[:, 2] - scores[:, 0], -(-len(scores) // _POINTS)
        starts = np.arange(0, len(ranges), step)
        means = np.add.reduceat(ranges, starts) / np.diff(np.append(starts, len(ranges)))
        return Curve(step, means.tolist(), sorted(self._unloads))

    def _settled(self, last: int | None) -> int:
        return 0 if last is None else max(0, last + 1 - self.disturbed_at)

    def _overshoots(self) -> int:
        return sum(
            any(below[source] for below in self._below[minute + 1 : minute + 1 + LAST_MINUTES])
            for minute, sources in self._gave.items()
            for source in sources
        )
