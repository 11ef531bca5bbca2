"""Bundle traffic minute by minute: noise, daily cycles, trends, on/off topics and spikes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pulsar_simulator.load import Floats, Ints, Rates

MINUTES_PER_DAY = 1440
BLOCK = 256
"""Minutes per block. Each block has its own random stream, so it can be drawn without the earlier blocks."""

_SHAPE, _NOISE = 11, 12  # one random stream each, so that one never shifts another
_LARGEST_DEVIATION = 3.0
_LEAST_FACTOR = 0.0


@dataclass(frozen=True, slots=True)
class OnOff:
    """Topics that alternate between busy and idle periods.

    While a topic is busy, it carries `(on + off) / on` times its mean, which keeps its long-term mean unchanged.

    Attributes:
        bundles: indices of the bundles.
        on: length of a busy period in minutes.
        off: length of an idle period in minutes.
        consume_only: True if only consumers pause, and then catch up.
    """

    bundles: Ints
    on: int
    off: int
    consume_only: bool = False


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
        series: further factors by which each bundle's traffic is multiplied (`load_series`), one row per minute; the
            last row is repeated.
    """

    bundles: BundleColumns
    on_off: tuple[OnOff, ...] = ()
    spikes: tuple[Spike, ...] = ()
    seed: int = 1
    series: Floats | None = field(default=None, repr=False)
    _block: tuple[int, Floats, Floats] | None = field(default=None, repr=False)

    def at(self, minute: int) -> Rates:
        """Return the traffic offered in a minute (counted from 0), in msg/s and bytes/s per bundle."""
        number, row = divmod(minute, BLOCK)
        if self._block is None or self._block[0] != number:
            self._block = (number, *self._factors(number))
        _, published, delivered = self._block
        columns = self.bundles
        rate_in = columns.msg_rate_in * published[row]
        rate_out = columns.msg_rate_in * columns.fan_out * delivered[row]
        return Rates(rate_in, rate_out, rate_in * columns.msg_size, rate_out * columns.msg_size)

    def _factors(self, number: int) -> tuple[Floats, Floats]:
        """Return the factors applied to published and delivered messages, one row per minute of a block."""
        columns, count = self.bundles, len(self.bundles.names)
        minutes = np.arange(number * BLOCK, (number + 1) * BLOCK)
        days = minutes[:, None] / MINUTES_PER_DAY
        stream = np.random.default_rng((self.seed, _NOISE, number))
        # Draw bundle by bundle, so that additional bundles do not change the noise of these.
        deviation = np.ascontiguousarray(stream.standard_normal((count, BLOCK)).T)
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
            factor = np.where(minutes % period < pauses.on, period / pauses.on, 0.0)[:, None]
            delivered[:, pauses.bundles] *= factor
            if not pauses.consume_only:
                published[:, pauses.bundles] *= factor
        return published, delivered


def random_shape(seed: int, use: int, number: int = 0) -> np.random.Generator:
    """Return the random stream for one set of values that is drawn at startup, such as the bundle sizes of one group.

    Args:
        seed: seed of the run.
        use: integer that identifies the kind of values.
        number: number of the group, counted from 0.
    """
    return np.random.default_rng((seed, _SHAPE, use, number))


def indices(mask: npt.NDArray[np.bool_]) -> Ints:
    """Return the indices at which a mask is true."""
    return np.flatnonzero(mask).astype(np.int64)
