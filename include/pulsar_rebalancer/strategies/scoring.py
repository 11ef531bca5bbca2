"""Compute a broker's load, its highest weighted resource usage: current, averaged, and after moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.tables import BrokerSample, Measure, ResourceUsage
from pulsar_rebalancer.state import Learned

if TYPE_CHECKING:
    import numpy.typing as npt

    from pulsar_rebalancer.strategies.sample import CandidateMove


SCORED = ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
"""Resources that the score includes; it ignores the JVM heap (LocalBrokerData.getMaxResourceUsageWithWeight)."""

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
"""Largest 32-bit float; above it, Pulsar gets infinity, or NaN if the weight is 0."""


def percent(usage: float | None, limit: float | None) -> float:
    """Return the usage in percent of its limit, as a 32-bit float (ResourceUsage.percentUsage).

    It can exceed 100, and is 0 without a limit (0, -1 or None). A usage of -1 or None is not measured.
    """
    if usage is None or limit is None:
        return 0.0
    limit32 = _float32(limit)
    if not limit32 > 0:
        return 0.0
    return _float32(_float32(_float32(usage) / limit32) * 100)


def percents(usage: npt.NDArray[np.float64], limit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the result of `percent` for arrays of one shape, identical to the last digit; NaN if unknown."""
    usage32, limit32 = _floats32(usage), _floats32(limit)
    measured = ~np.isnan(usage32) & (limit32 > 0)
    ratio = _floats32(np.divide(usage32, limit32, out=np.zeros_like(usage32), where=measured))
    return _floats32(ratio * 100)


def _floats32(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.clip(values, -LARGEST_FLOAT32, LARGEST_FLOAT32).astype(np.float32).astype(np.float64)


def _float32(value: float) -> float:
    """Return the nearest finite 32-bit float, so that scores are always finite.

    A quotient or product of two such floats, computed in double precision and rounded, equals 32-bit arithmetic.
    """
    return float(np.float32(min(max(value, -LARGEST_FLOAT32), LARGEST_FLOAT32)))


def weighted_usage(broker: BrokerSample, settings: Settings, resources: Sequence[str] = SCORED) -> float:
    """Return the highest weighted usage; 1 is 100 percent (LocalBrokerData.getMaxResourceUsageWithWeight).

    Resources that the broker does not measure count as idle.
    """
    if resources in broker.weighted:
        return broker.weighted[resources]
    weighted: list[float] = [
        percent(*broker.resources.get(name, (None, None))) * getattr(settings, f"{name}_weight") for name in resources
    ]
    return max(weighted) / 100


def weighted_usages(
    measured: npt.NDArray[np.float64], names: Sequence[str], settings: Settings, resources: Sequence[str] = SCORED
) -> npt.NDArray[np.float64]:
    """Return the result of `weighted_usage` for many brokers at once, identical to the last digit.

    `measured` is a result of `percents`, with a row for each of `names` and a column per broker.
    """
    idle = np.zeros(measured.shape[1])
    rows = [
        measured[names.index(name)] * getattr(settings, f"{name}_weight") if name in names else idle
        for name in resources
    ]
    return np.asarray(np.max(rows, axis=0) / 100)


def score(broker: BrokerSample, settings: Settings) -> float:
    # Pulsar divides in that function and multiplies here: the last digit depends on both steps.
    return weighted_usage(broker, settings) * 100


def scores_of(brokers: Sequence[BrokerSample], settings: Settings) -> npt.NDArray[np.float64]:
    """Return the result of `score` for many brokers at once, identical to the last digit."""
    if all(SCORED in broker.weighted for broker in brokers):
        return np.array([broker.weighted[SCORED] for broker in brokers]) * 100
    values = [[broker.resources.get(name, ResourceUsage()) for name in SCORED] for broker in brokers]
    usage, limit = np.array(values, dtype=np.float64).reshape(-1, len(SCORED), 2).T
    return weighted_usages(percents(usage, limit), SCORED, settings) * 100


def relative_limits(brokers: Iterable[BrokerSample], resource: str) -> dict[str, float]:
    limits = {broker.broker: broker.resources.get(resource, ResourceUsage()).limit or 0.0 for broker in brokers}
    usual = median([limit for limit in limits.values() if limit > 0] or [1.0])
    return {name: limit / usual if limit > 0 else 1.0 for name, limit in limits.items()}


def smooth(before: float | None, sample: float, settings: Settings) -> float:
    """Return a moving average after a sample, as ThresholdShedder and BrokerLoadData; the first is the average."""
    history = settings.history_percentage
    return sample if before is None else before * history + (1 - history) * sample


def scores_after(
    scores: Mapping[str, float], moves: Iterable[CandidateMove], source_traffic: Mapping[str, float]
) -> dict[str, float]:
    """Return predicted scores in percent, assuming that scores are proportional to traffic.

    `source_traffic` has each source's traffic in the same measure as its moves.
    """
    carried: dict[str, dict[str, list[float]]] = {}
    for move in moves:
        if move.destination is not None:
            carried.setdefault(move.source, {}).setdefault(move.destination, []).append(move.traffic)
    after = dict(scores)
    for source in sorted(carried):
        flows = {destination: math.fsum(values) for destination, values in sorted(carried[source].items())}
        # The sum of the bundles' means may exceed the traffic that the broker reports now.
        whole = max(source_traffic[source], math.fsum(flows.values()))
        for destination, traffic in flows.items():
            moved = scores[source] * traffic / whole if whole > 0 else 0.0
            after[source] -= moved
            after[destination] = after.get(destination, 0.0) + moved
    return after


MEMORY, NETWORK = "direct_memory", "bandwidth_out"

LASTING = 10
"""Consecutive counted samples after which a resource that determines the scores is the bottleneck."""

UNIT = {Measure.RATE: 1.0, Measure.THROUGHPUT: 1000.0}
"""Divisor for loads: learned ones are in msg/s or kB/s, of similar size, so that sums are exact."""


def measure_of(bottleneck: str) -> Measure:
    """Return the measure for bundle loads: throughput if the network is the bottleneck, else message rate."""
    return Measure.THROUGHPUT if bottleneck == NETWORK else Measure.RATE


def bottleneck_of(brokers: Iterable[BrokerSample], settings: Settings) -> str:
    """Return the resource with the highest total score of the brokers that it determines; network is one."""
    if not any(getattr(settings, f"{name}_weight") for name in SCORED if name != "cpu"):
        return "cpu"
    sums = dict.fromkeys(SCORED, 0.0)
    for broker in brokers:
        if broker.left_out is None:
            usages = {name: weighted_usage(broker, settings, (name,)) for name in SCORED}
            highest = max(SCORED, key=usages.__getitem__)
            sums[highest] += usages[highest]
    sums[NETWORK] += sums.pop("bandwidth_in")
    return max(sums, key=sums.__getitem__)


def continued(before: Learned, brokers: Iterable[BrokerSample], settings: Settings, *, counts: bool) -> Learned:
    """Return the values learned before a sample; empty if the sample changes the bottleneck.

    A sample that does not count changes it only if nothing has been learned yet.
    """
    if before.samples and not counts:
        return before
    now = bottleneck_of(brokers, settings)
    others = before.others + 1 if now != before.bottleneck else 0
    return replace(before, others=others) if before.samples and others < LASTING else Learned(bottleneck=now)
