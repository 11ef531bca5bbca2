"""Learn what a message costs from each counted sample, for GainShedder (docs/gain-shedder.md).

For every bundle: three moving averages of its message rate, and the cost of its messages relative to an average
message. For every broker: the points of its score that its bundles do not explain. For the cluster: points per msg/s.

The rate x of a bundle, its average u over a quarter of an hour and its relative cost e explain how a broker's score
changes: by k/C times the sum of e (x - u). What remains is the error from which the costs are corrected, as in a Kalman
filter: the more a bundle's rate changed and the less its cost is known, the more its cost changes.

Formulas for bundles use only operators, so that they work for numpy arrays and for Spark's columns.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pulsar_rebalancer.state.learned import NOTHING, SETTLED, Learned, LearnedBroker
from pulsar_rebalancer.strategies.scoring import score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import BrokerSample

    Column: TypeAlias = Any

MOVED = 4.0
"""Minutes for which a broker's report may not yet show a move."""

START_COST, START_VARIANCE = 1.0, 0.25
"""Relative cost of a new bundle's messages, and its variance."""

_HOUR, _QUICK, _QUARTER = 1 - 2 ** (-1 / 60), 0.25, 0.045  # steps of averages, per minute
_LEAST_COST, _LARGEST_COST = 0.25, 4.0
_DRIFT = 2e-6  # by which a cost's variance grows with every sample
_POINTS, _RESIDUAL, _VARIANCE = 0.01, 0.05, 0.02  # further steps, per minute
_FULL = 97.0  # percent; above it, a score no longer grows with the load
_FRESH = 2  # host intervals after which a broker's figure is not of this sample


class Steps(NamedTuple):
    """Steps of the three moving averages of a bundle's rate; all 0 for a sample that does not count."""

    hour: float = 0.0
    quick: float = 0.0
    quarter: float = 0.0


class Sums(NamedTuple):
    """Sums over the bundles that a broker reports, of averages that include this sample and costs that do not.

    Attributes:
        rate: of e x, msg/s.
        change: of e (x - u), msg/s.
        doubt: of P (x - u)^2, msg/s squared, where P is the variance of e.
        now, later: of e times the quick and the hourly average of x, msg/s.
    """

    rate: float = 0.0
    change: float = 0.0
    doubt: float = 0.0
    now: float = 0.0
    later: float = 0.0


class Observed(NamedTuple):
    """One broker in a sample.

    Attributes:
        score: percent.
        cores: number of cores in multiples of the median broker's.
        quiet: minutes since a bundle last moved from or to it.
        fresh: True if it measured its score since the last sample.
    """

    score: float
    cores: float
    sums: Sums
    quiet: float
    fresh: bool


class RecentMove(NamedTuple):
    """A move that was carried out some minutes ago; the destination is the broker that owns the bundle now."""

    source: str
    destination: str
    minutes: float


class Correction(NamedTuple):
    """How the costs of a broker's bundles change, per msg/s by which a bundle's rate differs from its average.

    Attributes:
        gain: of the cost, per unit of its variance.
        shrink: of the variance, per unit of the squared variance.
    """

    gain: float = 0.0
    shrink: float = 0.0


def relative_cores(brokers: Iterable[BrokerSample]) -> dict[str, float]:
    """Return each broker's number of cores in multiples of the median broker's; 1 if the number is unknown."""
    cores = {broker.broker: _cores(broker) for broker in brokers}
    known = [number for number in cores.values() if number]
    usual = median(known) if known else 1.0
    return {broker: number / usual if number else 1.0 for broker, number in cores.items()}


def _cores(broker: BrokerSample) -> float:
    cpu = broker.resources.get("cpu")
    return max(cpu.limit or 0.0, 0.0) if cpu else 0.0


def step(per_minute: float, minutes: float, samples: int) -> float:
    """Return the step of a moving average after some minutes. It begins as the plain mean of its samples."""
    return max(1 - float((1 - per_minute) ** minutes), 1 / samples)


class Lesson(NamedTuple):
    """What is known after a sample.

    Attributes:
        sums: for each broker.
        corrections: of the costs of each broker's bundles; none for a broker that is left out.
    """

    learned: Learned = NOTHING
    sums: Mapping[str, Sums] = MappingProxyType({})
    corrections: Mapping[str, Correction] = MappingProxyType({})


def steps(minutes: float, samples: int) -> Steps:
    """Return the steps of the averages of bundles' rates for the n-th counted sample."""
    return Steps(*(step(usual, minutes, samples) for usual in (_HOUR, _QUICK, _QUARTER)))


def learn(
    before: Learned,
    brokers: Sequence[BrokerSample],
    sums: Mapping[str, Sums],
    moved: Iterable[RecentMove],
    settings: Settings,
) -> Lesson:
    """Return what is known after a sample.

    Args:
        before: what was known after the last counted sample.
        brokers: all brokers that the cluster lists. What is known about others is forgotten.
        sums: for each broker that reports bundles.
        moved: moves that were carried out in the last `SETTLED` minutes.
    """
    minutes, samples = settings.interval_seconds / 60, before.samples + 1
    observed = _observed(brokers, sums, moved, settings)
    idle = min([before.idle, *(broker.score for broker in observed.values())])
    usable = [broker for broker in observed.values() if broker.fresh and broker.score < _FULL]
    rate, points = sum(broker.sums.rate for broker in usable), before.points
    if rate > 0:
        now = sum(max((broker.score - idle) * broker.cores, 0.1) for broker in usable) / rate
        points += step(_POINTS, minutes, samples) * (now - points)
    names = sorted(broker.broker for broker in brokers)
    same = not before.samples or names == sorted(before.brokers)
    quiet = min(before.quiet + minutes, SETTLED) if same else 0.0
    after = Learned(samples, points, idle, quiet)
    known = {name: before.brokers.get(name, LearnedBroker()) for name in names}
    corrections: dict[str, Correction] = {}
    for name, broker in observed.items():
        known[name], corrections[name] = _learn(known[name], broker, after, minutes)
    return Lesson(replace(after, brokers=known), sums, corrections)


def _observed(
    brokers: Sequence[BrokerSample], sums: Mapping[str, Sums], moved: Iterable[RecentMove], settings: Settings
) -> dict[str, Observed]:
    quiet: dict[str, float] = {}
    for move in moved:
        for end in (move.source, move.destination):
            quiet[end] = min(move.minutes, quiet.get(end, SETTLED))
    cores, longest = relative_cores(brokers), _FRESH * settings.host_usage_interval_minutes * 60
    return {
        broker.broker: Observed(
            score(broker, settings),
            cores[broker.broker],
            sums.get(broker.broker, Sums()),
            quiet.get(broker.broker, SETTLED),
            # Only brokers that report averages say when they measured; others say when they last wrote a report.
            broker.load_average is None or (broker.report_age_seconds or 0) <= longest,
        )
        for broker in brokers
        if broker.left_out is None
    }


def _learn(known: LearnedBroker, seen: Observed, after: Learned, minutes: float) -> tuple[LearnedBroker, Correction]:
    samples, of_rate = known.samples + 1, after.points / seen.cores
    residual, variance, correction = known.residual, known.variance, Correction()
    if seen.quiet >= MOVED or not known.samples:
        unexplained = seen.score - after.idle - of_rate * seen.sums.rate
        residual += step(_RESIDUAL, minutes, samples) * (unexplained - residual)
    # Without moves, only changes of the bundles' rates change the score.
    if min(after.quiet, seen.quiet) >= SETTLED and seen.fresh and known.samples:
        error = seen.score - known.score - of_rate * seen.sums.change
        variance += step(_VARIANCE, minutes, samples) * (error**2 - variance)
        expected = of_rate**2 * seen.sums.doubt + 3 * variance + 0.5
        correction = Correction(of_rate * error / expected, of_rate**2 / expected)
    usual = known.score + step(_QUARTER, minutes, samples) * (seen.score - known.score)
    return LearnedBroker(samples, residual, usual, variance), correction


def corrected(
    cost: Column, variance: Column, change: Column, gain: Column, shrink: Column, bounded: Callable[..., Column]
) -> tuple[Column, Column]:
    """Return the relative costs of bundles and their variances after a correction.

    Args:
        change: by how much each bundle's rate differs from its average over a quarter of an hour, msg/s.
        gain: the `Correction` of each bundle's broker, and so is `shrink`.
        bounded: function that limits a column to a smallest and a largest value.
    """
    known = variance * change
    return (
        bounded(cost + known * gain, _LEAST_COST, _LARGEST_COST),
        bounded(variance - known * known * shrink + _DRIFT, 0.0, START_VARIANCE),
    )
