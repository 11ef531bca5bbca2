"""Bundle traffic minute by minute: noise, daily cycles, trends, on/off topics and spikes.

Every function draws from the given random stream. Factors are never negative; their long-term mean is 1, except for
bursts and jobs, which add load, and bundles that appear later, which lack it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pulsar_simulator.load import Floats, Ints, Rates

MINUTES_PER_DAY = 1440
BLOCK_MINUTES = 256
"""Minutes per block. Each block has its own random stream, so a block can be drawn without earlier blocks."""

_SHAPE, _NOISE = 11, 12  # one random stream each, so that one never shifts another
_LARGEST_DEVIATION = 3.0
_LEAST_FACTOR = 0.0


@dataclass(frozen=True, slots=True)
class OnOffTopics:
    """Topics that alternate between busy and idle periods.

    While a topic is busy, it carries `(on + off) / on` times its mean, which keeps its long-term mean unchanged.

    Attributes:
        bundles: indices of the bundles.
        on: length of a busy period in minutes.
        off: length of an idle period in minutes.
        consume_only: True if only consumers pause, and then catch up.
        begun: minutes that the first period, which starts busy, has lasted at minute 0.
    """

    bundles: Ints
    on: int
    off: int
    consume_only: bool = False
    begun: int = 0


@dataclass(frozen=True, slots=True)
class Spike:
    """A temporary change in the traffic of some bundles.

    Attributes:
        bundles: indices of the bundles.
        minute: the first minute.
        minutes: duration in minutes.
        factor: multiplier of the message rates.
    """

    bundles: Ints
    minute: int
    minutes: int
    factor: float


@dataclass(frozen=True, slots=True)
class BundleColumns:
    """The properties of all bundles; each column has one entry per bundle.

    Attributes:
        names: `tenant/namespace/0x…_0x…`.
        msg_rate_in: mean publish rate in msg/s.
        msg_size: bytes per message.
        fan_out: messages delivered per message published.
        cost: CPU cost per message, as a multiple of the mean cost.
        clients: number of producers and consumers; if there are none, a bundle that lost its broker is not looked up.
        noise: relative standard deviation of the minute-to-minute noise.
        daily: relative amplitude of the daily cycle.
        peak: hour at which the daily cycle peaks.
        trend: relative growth per day.
    """

    names: tuple[str, ...]
    msg_rate_in: Floats
    msg_size: Floats
    fan_out: Floats
    cost: Floats
    clients: Ints
    noise: Floats
    daily: Floats
    peak: Floats
    trend: Floats


@dataclass(slots=True)
class Workload:
    """The traffic of every bundle as a pure function of the minute.

    Attributes:
        bundles: columns of all bundles.
        on_off: topics that are alternately busy and idle.
        spikes: temporary changes in the traffic.
        seed: seed of the noise.
        series: further factors by which each bundle's traffic is multiplied, one row per minute; the
            last row is repeated.
    """

    bundles: BundleColumns
    on_off: tuple[OnOffTopics, ...] = ()
    spikes: tuple[Spike, ...] = ()
    seed: int = 1
    series: Floats | None = field(default=None, repr=False)
    _block: tuple[int, Floats, Floats] | None = field(default=None, repr=False)

    def rates_at(self, minute: int) -> Rates:
        """Return the traffic offered in a minute (counted from 0), in msg/s and bytes/s per bundle."""
        number, row = divmod(minute, BLOCK_MINUTES)
        if self._block is None or self._block[0] != number:
            self._block = (number, *self._block_factors(number))
        _, published, delivered = self._block
        columns = self.bundles
        rate_in = columns.msg_rate_in * published[row]
        rate_out = columns.msg_rate_in * columns.fan_out * delivered[row]
        return Rates(rate_in, rate_out, rate_in * columns.msg_size, rate_out * columns.msg_size)

    def _block_factors(self, number: int) -> tuple[Floats, Floats]:
        """Return the factors applied to published and delivered messages, one row per minute of a block."""
        columns, count = self.bundles, len(self.bundles.names)
        minutes = np.arange(number * BLOCK_MINUTES, (number + 1) * BLOCK_MINUTES)
        days = minutes[:, None] / MINUTES_PER_DAY
        stream = np.random.default_rng((self.seed, _NOISE, number))
        # Draw bundle by bundle, so that additional bundles do not change the noise of these.
        deviation = np.ascontiguousarray(stream.standard_normal((count, BLOCK_MINUTES)).T)
        deviation = deviation.clip(-_LARGEST_DEVIATION, _LARGEST_DEVIATION)
        daily = columns.daily * np.cos(2 * np.pi * (days - columns.peak / 24))
        published = (1 + columns.noise * deviation) * (1 + daily) * (1 + columns.trend * days)
        if self.series is not None:
            published *= self.series[np.minimum(minutes, len(self.series) - 1)]
        for spike in self.spikes:
            rows = (minutes >= spike.minute) & (minutes < spike.minute + spike.minutes)
            published[np.ix_(rows, spike.bundles)] *= spike.factor
        published = published.clip(_LEAST_FACTOR)
        delivered = published.copy()
        for pauses in self.on_off:
            period = pauses.on + pauses.off
            factor = np.where((minutes + pauses.begun) % period < pauses.on, period / pauses.on, 0.0)[:, None]
            delivered[:, pauses.bundles] *= factor
            if not pauses.consume_only:
                published[:, pauses.bundles] *= factor
        return published, delivered


def random_stream(seed: int, purpose: int, number: int = 0) -> np.random.Generator:
    """Return the random stream for one set of values that is drawn at startup, such as the bundle sizes of one group.

    Args:
        seed: seed of the run.
        purpose: integer that identifies the kind of values.
        number: number of the group, counted from 0.
    """
    return np.random.default_rng((seed, _SHAPE, purpose, number))


def true_indices(mask: npt.NDArray[np.bool_]) -> Ints:
    """Return the indices at which a mask is true."""
    return np.flatnonzero(mask).astype(np.int64)


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


def weeks(random: np.random.Generator, minutes: int, bundles: int, night: Range, weekend: Range, zones: int) -> Floats:
    """Return working days, busy from 8 to 18 o'clock, and weekends; the first minute is a Thursday's midnight.

    Args:
        night: least traffic, relative to the busy hours, smallest and largest.
        weekend: height of the day at weekends, relative to a working day, smallest and largest.
        zones: number of time zones, evenly around the world; each bundle lives in one of them.
    """
    lowest, free = random.uniform(*night, bundles), random.uniform(*weekend, bundles)
    hours = np.arange(minutes)[:, None] / 60 + random.integers(0, zones, bundles) * 24 / zones
    height = np.where((hours // 24 + 3) % 7 < 5, 1.0, free)
    busy = np.minimum(hours % 24 - 7, 19 - hours % 24).clip(0, 1)
    factors = lowest + (1 - lowest) * height * busy
    return np.asarray(factors / factors.mean(axis=0))


def arrivals(random: np.random.Generator, minutes: int, bundles: int, late: float, ramp: int) -> Floats:
    """Return the traffic of bundles of which some appear only later, and then grow to their full size.

    Args:
        late: share of the bundles that have no traffic at the start.
        ramp: minutes until the full size is reached.
    """
    is_late, starts = random.random(bundles) < late, random.uniform(0, minutes, bundles)
    grown = (np.arange(minutes)[:, None] - np.where(is_late, starts, -ramp)) / ramp
    return np.asarray(grown.clip(0, 1))
