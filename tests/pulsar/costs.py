"""What traffic costs a broker: measured on brokers that carry different amounts of it at the same time."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tests.pulsar.cluster import PulsarCluster

_WINDOW_SECONDS = 20
_STILL_FALLING = 0.95


class Costs(NamedTuple):
    """CPU of a broker, percent of one core.

    Attributes:
        idle: without traffic.
        busy: in addition as soon as there is traffic.
        message: in addition for each message per second.
    """

    idle: float
    busy: float
    message: float


def fitted(rates: Sequence[float], cpu: Sequence[float]) -> Costs:
    """Return the costs that fit best; one broker has no messages, and others have two different rates."""
    rate = np.array(rates)
    equations = np.stack([np.ones(len(rate)), rate > 0, rate], axis=1)
    return Costs(*np.linalg.lstsq(equations, np.array(cpu), rcond=None)[0].tolist())


def settled_cpu(cluster: PulsarCluster, brokers: int) -> list[float]:
    """Return the CPU of each broker, percent of one core, once the total no longer falls: a new JVM has to warm up."""
    before, now = _cpu(cluster, brokers), _cpu(cluster, brokers)
    while now.sum() < _STILL_FALLING * before.sum():
        before, now = now, _cpu(cluster, brokers)
    means: list[float] = ((before + now) / 2).tolist()
    return means


def _cpu(cluster: PulsarCluster, brokers: int) -> npt.NDArray[np.float64]:
    begun, before = time.monotonic(), _cpu_seconds(cluster, brokers)
    time.sleep(_WINDOW_SECONDS)
    return 100 * (_cpu_seconds(cluster, brokers) - before) / (time.monotonic() - begun)


def _cpu_seconds(cluster: PulsarCluster, brokers: int) -> npt.NDArray[np.float64]:
    return np.array([cluster.cpu_seconds(broker) for broker in range(brokers)])
