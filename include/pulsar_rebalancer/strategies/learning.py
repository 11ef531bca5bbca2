"""Learn what a message costs from each counted sample, for GainShedder (docs/gain-shedder.md).

The learned values are the part of each broker's score, in points, that its bundles do not explain; the points
per msg/s, k (per kB/s if the network is the bottleneck); and bundles' relative costs (`BundleCosts`).

A broker's score is expected to differ from its quarter-hour average by k/C times the sum of e (x - u), where
x is a bundle's rate, u its quarter-hour average, e its relative cost, and C the broker's limit for the
bottleneck resource as a multiple of the median. As in a Kalman filter, the error corrects a cost the more,
the more the bundle's rate changed and the less certain the cost is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.tables import BrokerSample, java_sum
from pulsar_rebalancer.state import NOTHING_LEARNED, SETTLED, LearnedBroker, LearnedValues
from pulsar_rebalancer.strategies.scoring import relative_limits, score

if TYPE_CHECKING:
    import numpy.typing as npt

    from pulsar_rebalancer.strategies.sample import RecentMove

    Floats = npt.NDArray[np.float64]


LAG_MINUTES = 4.0  # minutes for which a broker's report may not yet show a move
_AVERAGE_STEPS = (1 - 2 ** (-1 / 60), 0.25, 0.045, 0.045)  # steps per minute, in the order of `run.tables.RATES`
_PERSISTENCE_STEP = 1 - 2 ** (-1 / 720)  # step per minute: half-life 12 hours
_PRIOR_SAMPLES = 60  # samples with which the persistence starts at one half
_POINTS, _RESIDUAL, _VARIANCE, _SCORE = 0.01, 0.05, 0.02, 0.045  # further steps, per minute
_IDLE_STEP = 0.002  # step per minute back to the start value: a process that starts may report 0
_FULL_SCORE = 97.0  # percent; above it, a score no longer grows with the load
_FRESH = 2  # host intervals after which a broker's value is not of this sample


class BundleSums(NamedTuple):
    """Sums over a broker's bundles; x, u and e as in the module's docstring. Only x includes this sample.

    Attributes:
        rate_sum: sum of e x in msg/s.
        change_sum: sum of e (x - u) in msg/s.
        doubt_sum: sum of P (x - u)^2, msg/s squared, where P is the variance of e.
        quick_sum, hour_sum: sums of e times the quick and the hourly average of x, in msg/s, with this sample.
        lasted_sum: sum of e^2 (x - h) (u - h), where h is the hourly average of a quarter of an hour ago.
        deviation_sum: sum of the squared differences between the summands of `quick_sum` and `hour_sum`.
    """

    rate_sum: float = 0.0
    change_sum: float = 0.0
    doubt_sum: float = 0.0
    quick_sum: float = 0.0
    hour_sum: float = 0.0
    lasted_sum: float = 0.0
    deviation_sum: float = 0.0


class CostCorrection(NamedTuple):
    """Factors that correct the costs of a broker's bundles and their variances P.

    A cost changes by `cost_factor` P (x - u); its variance decreases by `variance_factor` P^2 (x - u)^2.
    """

    cost_factor: float = 0.0
    variance_factor: float = 0.0


class LearningResult(NamedTuple):
    """The values known after a sample, by broker; `correction_by_broker` omits brokers that are left out."""

    learned: LearnedValues = NOTHING_LEARNED
    sums: Mapping[str, BundleSums] = MappingProxyType({})
    correction_by_broker: Mapping[str, CostCorrection] = MappingProxyType({})


def step_size(per_minute: float, minutes: float, samples: float) -> float:
    """Return a new sample's weight in a moving average, which starts as the plain mean of its samples."""
    return max(1 - float((1 - per_minute) ** minutes), 1 / samples)


def sample_weights(samples: npt.NDArray[np.float64], minutes: float) -> tuple[npt.NDArray[np.float64], ...]:
    """Return a sample's weight in each average of bundles' rates (`run.tables.RATES`).

    Args:
        samples: number of counted samples of each bundle, including this one.
    """
    return tuple((1 / samples).clip(step_size(usual, minutes, math.inf)) for usual in _AVERAGE_STEPS)


def learn(
    learned: LearnedValues,
    brokers: Sequence[BrokerSample],
    sums: Mapping[str, BundleSums],
    recent_moves: Iterable[RecentMove],
    settings: Settings,
    minutes: float,
) -> LearningResult:
    """Learn from a sample, and return the resulting values; those of unlisted brokers are forgotten.

    Args:
        learned: values known after the last counted sample (`learned_before_sample`).
        recent_moves: moves that were carried out in the last `SETTLED` minutes.
        minutes: time since the last counted sample, at least the interval.
    """
    samples, longest = learned.samples + 1, settings.state_max_gap * max(settings.interval_seconds / 60, 1.0)
    limits, oldest = relative_limits(brokers, learned.bottleneck), _FRESH * settings.host_usage_interval_minutes * 60
    present = [broker for broker in brokers if broker.left_out is None]
    scores = {broker.broker: score(broker, settings) for broker in present}
    # Only brokers that report averages say when they measured; others say when they last wrote a report.
    old = {b.broker for b in present if b.load_average is not None and (b.report_age_seconds or 0) > oldest}
    risen = learned.idle + step_size(_IDLE_STEP, minutes, math.inf) * (NOTHING_LEARNED.idle - learned.idle)
    idle = min([risen, *scores.values()])
    usable = [name for name, now in scores.items() if name not in old and now < _FULL_SCORE]
    rate, points = java_sum(sums.get(name, BundleSums()).rate_sum for name in usable), learned.points
    if rate > 0:
        of_one = java_sum(max((scores[name] - idle) * limits[name], 0.1) for name in usable) / rate
        points += step_size(_POINTS, minutes, samples) * (of_one - points)
    known = {of.broker: learned.brokers.get(of.broker, LearnedBroker()).for_process(of.started_at) for of in brokers}
    # A broker that restarted came and went, even if it was never missing. In a gap, anything may have.
    ages, before_ages = ({name: broker.samples for name, broker in of.items()} for of in (known, learned.brokers))
    disturbed = learned.samples and (ages != before_ages or minutes > longest)
    calm = 0.0 if disturbed else min(learned.quiet + minutes, SETTLED)
    after = _update_persistence(replace(learned, samples=samples, points=points, idle=idle, quiet=calm), sums, minutes)
    quiet = {end: move.minutes for move in sorted(recent_moves, key=lambda move: -move.minutes) for end in move[:2]}
    corrections = {}
    for name, now in scores.items():
        seen = _ObservedBroker(
            now, points / limits[name], sums.get(name, BundleSums()), quiet.get(name, SETTLED), name not in old
        )
        known[name], corrections[name] = _update_learned_broker(known[name], seen, after, minutes)
    return LearningResult(replace(after, brokers=known), sums, corrections)


def _update_persistence(learned: LearnedValues, sums: Mapping[str, BundleSums], minutes: float) -> LearnedValues:
    weight = step_size(_PERSISTENCE_STEP, minutes, learned.samples)
    lasted, deviation = (
        before + weight * (java_sum(getattr(of, name) for of in sums.values()) - before)
        for name, before in (("lasted_sum", learned.lasted), ("deviation_sum", learned.deviation))
    )
    start = _PRIOR_SAMPLES * weight * deviation or 1.0
    persistence = min(max((lasted + start / 2) / (deviation + start), 0.0), 1.0)
    return replace(learned, lasted=lasted, deviation=deviation, persistence=persistence)


class _ObservedBroker(NamedTuple):
    """A broker in a sample: points per msg/s, minutes since its last move, whether its score is up to date."""

    score: float
    points_per_rate: float
    bundle_sums: BundleSums
    quiet_minutes: float
    is_fresh: bool


def _update_learned_broker(
    broker: LearnedBroker, observed: _ObservedBroker, learned: LearnedValues, minutes: float
) -> tuple[LearnedBroker, CostCorrection]:
    samples, residual, variance, correction = broker.samples + 1, broker.residual, broker.variance, CostCorrection()
    if observed.quiet_minutes >= LAG_MINUTES or not broker.samples:
        unexplained = observed.score - learned.idle - observed.points_per_rate * observed.bundle_sums.rate_sum
        residual += step_size(_RESIDUAL, minutes, samples) * (unexplained - residual)
    # Without moves, only changes of the bundles' rates change the score.
    if min(learned.quiet, observed.quiet_minutes) >= SETTLED and observed.is_fresh and broker.samples:
        error = observed.score - broker.score - observed.points_per_rate * observed.bundle_sums.change_sum
        variance += step_size(_VARIANCE, minutes, samples) * (error**2 - variance)
        expected = observed.points_per_rate**2 * observed.bundle_sums.doubt_sum + 3 * variance + 0.5
        correction = CostCorrection(observed.points_per_rate * error / expected, observed.points_per_rate**2 / expected)
    usual = broker.score + step_size(_SCORE, minutes, samples) * (observed.score - broker.score)
    return LearnedBroker(samples, residual, usual, variance, broker.started), correction


START_COST, START_VARIANCE = 1.0, 0.25  # relative cost of a new bundle's messages, and its variance
_LEAST_COST, _LARGEST_COST = 0.25, 4.0
_VARIANCE_DRIFT = 2e-6  # by which a cost's variance grows with every sample


class BundleCosts(NamedTuple):
    """A column for each of `run.tables.COSTS`, with a value for each bundle; rates are NaN if nothing is known.

    Attributes:
        hour_rate, quick_rate, quarter_rate: averages of msg/s, or of kB/s; hour_before: average of `hour_rate`.
        cost, variance: relative cost of a message, and its variance.
        samples: number of counted samples since the bundle appeared.
    """

    hour_rate: Floats
    quick_rate: Floats
    quarter_rate: Floats
    hour_before: Floats
    cost: Floats
    variance: Floats
    samples: Floats

    @classmethod
    def all_unknown(cls, bundle_count: int) -> Self:
        return cls(*np.full((len(cls._fields), bundle_count), np.nan))

    def with_sample(self, rate: Floats, minutes: float, *, is_counted: bool) -> tuple[Self, Floats]:
        """Return the columns after a sample, and the differences of the rates from their quarter-hour averages.

        Args:
            rate: msg/s or kB/s. A bundle whose rate is NaN is forgotten.
            minutes: time since the last counted sample.
            is_counted: False if the sample changes no average.
        """
        new = np.isnan(self.quick_rate)
        before = [np.where(new, rate, average) for average in self[:4]]
        samples = np.where(new, 0.0, self.samples) + is_counted
        weights: tuple[Any, ...] = sample_weights(samples, minutes) if is_counted else (0.0,) * len(before)
        hour, quick, quarter = (old + step * (rate - old) for old, step in zip(before[:3], weights, strict=False))
        hour_before = before[3] + weights[3] * (hour - before[3])
        cost, variance = np.where(new, START_COST, self.cost), np.where(new, START_VARIANCE, self.variance)
        return type(self)(hour, quick, quarter, hour_before, cost, variance, samples), rate - before[2]

    def summands(self, rate: Floats, change: Floats) -> tuple[Floats, ...]:
        """Return a column for each of `BundleSums`, with what each bundle adds."""
        of_sample = self.cost * rate, self.cost * change, self.variance * change**2
        lasted = self.cost**2 * (rate - self.hour_before) * (rate - change - self.hour_before)
        deviation = (self.cost * (self.quick_rate - self.hour_rate)) ** 2
        return *of_sample, self.cost * self.quick_rate, self.cost * self.hour_rate, lasted, deviation

    def expected_loads(self, persistence: float) -> Floats:
        return self.cost * (self.hour_rate + persistence * (self.quick_rate - self.hour_rate))

    def with_correction(self, change: Floats, gain: Floats, shrinkage: Floats) -> Self:
        known = self.variance * change
        cost = np.clip(self.cost + known * gain, _LEAST_COST, _LARGEST_COST)
        variance = np.clip(self.variance - known * known * shrinkage + _VARIANCE_DRIFT, 0.0, START_VARIANCE)
        return self._replace(cost=cost, variance=variance)
