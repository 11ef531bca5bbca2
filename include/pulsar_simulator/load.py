"""The traffic of bundles, and the CPU usage that it causes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NOBODY = -1
"""The owner index of a bundle that has no owner."""

_TRAFFIC, _CPU, _SHAPE = 1, 2, 3  # one random stream each, so that one never shifts another


def sum_by_broker(value_by_bundle: Floats, owner: Ints, broker_count: int) -> Floats:
    """Return the sum of the bundles' values for each broker. Bundles without an owner are left out."""
    return np.bincount(owner + 1, weights=value_by_bundle, minlength=broker_count + 1)[1:].astype(np.float64)


def assign_bundles(cost_by_bundle: Floats, target_by_broker: Floats) -> Ints:
    """Assign each bundle, costliest first, to the broker that is furthest below its target cost."""
    missing = target_by_broker * cost_by_bundle.sum() / max(target_by_broker.sum(), 1e-9)
    owner = np.zeros(len(cost_by_bundle), dtype=np.int64)
    for bundle in np.argsort(-cost_by_bundle, kind="stable"):
        owner[bundle] = int(np.argmax(missing))
        missing[owner[bundle]] -= cost_by_bundle[bundle]
    return owner


def with_split_bundle(values: Floats, bundle: int, shares: list[float]) -> Floats:
    """Replace a bundle's value with the values of its parts: the first in its place, the others at the end."""
    parts = values[bundle] * np.array(shares)
    extended = np.append(values, parts[1:])
    extended[bundle] = parts[0]
    return extended


@dataclass(frozen=True, slots=True)
class Rates:
    """Inbound and outbound msg/s and bytes/s, with one entry per bundle or per broker."""

    msg_rate_in: Floats
    msg_rate_out: Floats
    msg_throughput_in: Floats
    msg_throughput_out: Floats

    @property
    def columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the four arrays, in the same order as the fields."""
        return self.msg_rate_in, self.msg_rate_out, self.msg_throughput_in, self.msg_throughput_out

    def with_split_bundle(self, bundle: int, shares: list[float]) -> Rates:
        """Return the rates with one bundle's rates divided among its parts (see `with_split_bundle`)."""
        return Rates(*(with_split_bundle(column, bundle, shares) for column in self.columns))

    def sum_by_broker(self, owner: Ints, broker_count: int) -> Rates:
        """Return the sum of the bundles' rates for each broker. Bundles without an owner are left out."""
        return Rates(*(sum_by_broker(column, owner, broker_count) for column in self.columns))

    def scaled(self, factor: Floats) -> Rates:
        """Return the rates with each entry multiplied by its factor."""
        return Rates(*(column * factor for column in self.columns))


@dataclass(frozen=True, slots=True)
class Noise:
    """Variations of the load. If all are 0, the load is constant.

    Attributes:
        traffic: relative standard deviation of a bundle's rate between stats periods.
        cpu: relative standard deviation of a broker's CPU sample.
        cost: relative variation, between bundles, of the CPU cost of a message.
        drift: relative amplitude of a slow wave in each bundle's rate.
        drift_period: mean period of the wave in seconds.
    """

    traffic: float = 0.03
    cpu: float = 0.02
    cost: float = 0.1
    drift: float = 0.05
    drift_period: float = 4 * 3600.0


NO_NOISE = Noise(traffic=0.0, cpu=0.0, cost=0.0, drift=0.0)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds per message and per byte, inbound and outbound."""

    per_message: float = 30e-6
    per_byte: float = 10e-9


class Traffic:
    """The traffic of every bundle as a pure function of time.

    Args:
        msg_rate_in: published msg/s per bundle; 0 for an idle bundle (no producers, no loaded topics).
        msg_size: bytes per message, per bundle.
        fan_out: number of messages delivered per published message, per bundle.
        noise: how the traffic varies.
        seed: seed for all random numbers.
        step: seconds for which rates stay constant (a stats period).
        cost: CPU cost of a message and of a byte; `Cost()` by default.
    """

    def __init__(
        self,
        msg_rate_in: Floats,
        msg_size: Floats,
        fan_out: Floats,
        *,
        noise: Noise,
        seed: int,
        step: float,
        cost: Cost | None = None,
    ) -> None:
        self.msg_rate_in = msg_rate_in.astype(np.float64)
        self.msg_size = msg_size
        self.fan_out = fan_out
        self._noise = noise
        self._seed = seed
        self._step = step
        self._cost = cost or Cost()
        shape = np.random.default_rng((seed, _SHAPE))
        size = len(msg_rate_in)
        self._cost_factor = np.exp(noise.cost * shape.standard_normal(size))
        self._phase = shape.uniform(0, 2 * np.pi, size)
        self._wave = 2 * np.pi / (noise.drift_period * shape.uniform(0.5, 1.5, size))
        self._cached: tuple[int, Rates] | None = None

    @property
    def is_active(self) -> Flags:
        """Return whether each bundle has producers.

        If a bundle loses its owner, its producers look up their topics.
        """
        return self.msg_rate_in > 0

    def scale_bundles(self, bundles: list[int], factor: float) -> None:
        """Multiply the load of some bundles permanently."""
        self.msg_rate_in[bundles] *= factor
        self._cached = None

    def split(self, bundle: int, shares: list[float]) -> None:
        """Divide a bundle's load among its parts.

        The first part takes over the bundle's index; the others are added at the end.
        """
        self.msg_rate_in = with_split_bundle(self.msg_rate_in, bundle, shares)
        alike = [1.0] * len(shares)
        for name in ("msg_size", "fan_out", "_cost_factor", "_phase", "_wave"):
            setattr(self, name, with_split_bundle(getattr(self, name), bundle, alike))
        self._cached = None

    def nominal_rates(self) -> Rates:
        """Return the traffic without noise and drift."""
        return self._rates(self.msg_rate_in)

    def rates_at(self, elapsed_s: float) -> Rates:
        """Return the traffic `elapsed_s` seconds after the start of the cluster."""
        tick = int((elapsed_s + 1e-6) // self._step)  # rounding may leave a multiple of the step slightly too small
        if self._cached is None or self._cached[0] != tick:
            stream = np.random.default_rng((self._seed, _TRAFFIC, tick))
            jitter = 1 + self._noise.traffic * stream.standard_normal(len(self.msg_rate_in)).clip(-3, 3)
            wave = 1 + self._noise.drift * np.sin(self._wave * tick * self._step + self._phase)
            self._cached = (tick, self._rates((self.msg_rate_in * jitter * wave).clip(0)))
        return self._cached[1]

    def cpu_of_bundles(self, rates: Rates) -> Floats:
        """Return the CPU usage that each bundle causes on its broker, in percent of one core."""
        messages = rates.msg_rate_in + rates.msg_rate_out
        volume = rates.msg_throughput_in + rates.msg_throughput_out
        seconds = messages * self._cost.per_message + volume * self._cost.per_byte
        return np.asarray(100 * seconds * self._cost_factor)

    def cpu_jitter(self, elapsed_s: float, broker_count: int) -> Floats:
        """Return a random factor for each broker's CPU sample, `elapsed_s` seconds after the start of the cluster."""
        stream = np.random.default_rng((self._seed, _CPU, int(elapsed_s * 1000)))
        return np.asarray(1 + self._noise.cpu * stream.standard_normal(broker_count).clip(-3, 3))

    def _rates(self, msg_rate_in: Floats) -> Rates:
        out = msg_rate_in * self.fan_out
        return Rates(msg_rate_in, out, msg_rate_in * self.msg_size, out * self.msg_size)
