"""Load that changes over hours and days: random traffic factors, one row per minute and one column per bundle.

Every function draws from the given random stream. Factors are never negative; their long-term mean is 1, except for
bursts and jobs, which add load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulsar_simulator.minutes.workload import MINUTES_PER_DAY

if TYPE_CHECKING:
    from pulsar_simulator.load import Floats

Range = tuple[float, float]
"""The minimum and maximum of a uniform distribution."""


def daily(random: np.random.Generator, minutes: int, bundles: int, amplitude: Range) -> Floats:
    """Return daily cycles; each bundle has its own relative amplitude and its own peak hour."""
    amplitudes, peaks = random.uniform(*amplitude, bundles), random.uniform(0, 1, bundles)
    days = np.arange(minutes)[:, None] / MINUTES_PER_DAY
    return np.asarray(1 + amplitudes * np.cos(2 * np.pi * (days - peaks)))


def drift(random: np.random.Generator, minutes: int, bundles: int, spread: float, hours: float) -> Floats:
    """Return slow random changes: the logarithm is an Ornstein-Uhlenbeck process.

    Args:
        spread: standard deviation of the logarithm.
        hours: hours after which a deviation has decayed to 1/e on average.
    """
    kept = np.exp(-1 / (60 * hours))
    steps = random.standard_normal((minutes, bundles))
    steps[1:] *= np.sqrt(1 - kept**2)
    for minute in range(1, minutes):
        steps[minute] += kept * steps[minute - 1]
    return np.asarray(np.exp(spread * steps - spread**2 / 2))


def shifts(random: np.random.Generator, minutes: int, bundles: int, per_day: float, spread: float) -> Floats:
    """Return levels that change abruptly at random times.

    Args:
        spread: standard deviation of the logarithm of a level.
    """
    jumps = random.random((minutes, bundles)) < per_day / MINUTES_PER_DAY
    number = jumps.cumsum(axis=0)
    levels = random.standard_normal((int(number.max()) + 1, bundles))
    return np.asarray(np.exp(spread * levels[number, np.arange(bundles)] - spread**2 / 2))


def bursts(
    random: np.random.Generator, minutes: int, bundles: int, per_day: float, length: float, factor: Range
) -> Floats:
    """Return factors that repeatedly rise above 1 for some minutes.

    Args:
        per_day: mean number of bursts per bundle and day.
        length: mean duration of a burst, in minutes; durations are exponentially distributed.
        factor: smallest and largest factor during a burst.
    """
    factors = np.ones((minutes, bundles))
    for bundle, count in enumerate(random.poisson(per_day * minutes / MINUTES_PER_DAY, bundles)):
        starts = random.integers(0, minutes, count)
        lengths = 1 + random.exponential(length - 1, count)
        for start, lasts, high in zip(starts, lengths, random.uniform(*factor, count), strict=True):
            during = slice(int(start), int(start + round(lasts)))
            factors[during, bundle] = np.maximum(factors[during, bundle], high)
    return factors


def pauses(random: np.random.Generator, minutes: int, bundles: int, on: float, off: float) -> Floats:
    """Return factors that repeatedly drop to 0; the times with and without traffic are exponentially distributed.

    Args:
        on: mean number of minutes with traffic; the factor is then `(on + off) / on`.
        off: mean number of minutes without traffic.
    """
    is_on = random.random(bundles) < on / (on + off)
    changes = random.random((minutes, bundles))
    factors = np.empty((minutes, bundles))
    for minute in range(minutes):
        is_on = is_on ^ (changes[minute] < 1 / np.where(is_on, on, off))
        factors[minute] = is_on
    return factors * (on + off) / on


def jobs(random: np.random.Generator, minutes: int, bundles: int, every: int, length: int, factor: Range) -> Floats:
    """Return load factors of periodic jobs, such as one that runs for a few minutes every hour.

    Args:
        every: minutes from one start to the next; each bundle has its own first start.
        length: duration of a job in minutes.
        factor: smallest and largest factor during a job.
    """
    first, high = random.integers(0, every, bundles), random.uniform(*factor, bundles)
    running = (np.arange(minutes)[:, None] - first) % every < length
    return np.asarray(np.where(running, high, 1.0))
