"""Compute a broker's load, its highest weighted resource usage: current, averaged, and after moves."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BrokerSample, Measure, ResourceUsage
from pulsar_rebalancer.state import LearnedValues

if TYPE_CHECKING:
    import numpy.typing as npt

    from pulsar_rebalancer.strategies.sample import CandidateMove


SCORED = ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
"""Resources that the score includes; the JVM heap is ignored (LocalBrokerData.getMaxResourceUsageWithWeight)."""

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


def usage_percents(usage: npt.NDArray[np.float64], limit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the result of `percent` for arrays of one shape, identical to the last digit; NaN if unknown."""
    usage32, limit32 = _to_float32s(usage), _to_float32s(limit)
    measured = ~np.isnan(usage32) & (limit32 > 0)
    ratio = _to_float32s(np.divide(usage32, limit32, out=np.zeros_like(usage32), where=measured))
    return _to_float32s(ratio * 100)


def _to_float32s(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
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
    usages: npt.NDArray[np.float64], names: Sequence[str], settings: Settings, resources: Sequence[str] = SCORED
) -> npt.NDArray[np.float64]:
    """Return the result of `weighted_usage` for many brokers at once, identical to the last digit.

    `usages` is a result of `usage_percents`, with a row for each of `names` and a column per broker.
    """
    idle = np.zeros(usages.shape[1])
    rows = [
        usages[names.index(name)] * getattr(settings, f"{name}_weight") if name in names else idle for name in resources
    ]
    return np.asarray(np.max(rows, axis=0) / 100)


def score(broker: BrokerSample, settings: Settings) -> float:
    # Pulsar divides in that function and multiplies here: the last digit depends on both steps.
    return weighted_usage(broker, settings) * 100


class Brokers(Sequence[BrokerSample]):
    """All brokers that one cluster lists, in any order."""

    def __init__(self, brokers: Iterable[BrokerSample]) -> None:
        self._given = list(brokers)

    @classmethod
    def wrap(cls, brokers: Sequence[BrokerSample]) -> Brokers:
        return brokers if isinstance(brokers, Brokers) else cls(brokers)

    @cached_property
    def _samples(self) -> list[BrokerSample]:
        return self._given

    def __getitem__(self, index: Any) -> Any:
        return self._samples[index]

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[BrokerSample]:
        return iter(self._samples)

    def find_broker(self, name: str) -> BrokerSample:
        """Return a broker; raises KeyError if the cluster does not list it."""
        return self._sample_by_name[name]

    @cached_property
    def left_out_reasons(self) -> Mapping[str, Reason]:
        return {broker.broker: broker.left_out for broker in self._samples if broker.left_out is not None}

    @cached_property
    def names(self) -> Collection[str]:
        return self._sample_by_name.keys()

    @cached_property
    def policy_by_reserved_broker(self) -> Mapping[str, str]:
        return {each.broker: each.reserved_by for each in self._samples if each.reserved_by}

    @cached_property
    def compared_brokers(self) -> list[BrokerSample]:
        """Return those that are not left out, sorted by name, so that ties are broken by name."""
        return sorted((broker for broker in self._samples if broker.left_out is None), key=lambda broker: broker.broker)

    def usage_by_broker(self, settings: Settings) -> Mapping[str, float]:
        """Return the results of `weighted_usage` by name, to the last digit, in the order of `compared_brokers`."""
        brokers = self.compared_brokers
        if all(SCORED in broker.weighted for broker in brokers):
            return {broker.broker: broker.weighted[SCORED] for broker in brokers}
        values = [[broker.resources.get(name, ResourceUsage()) for name in SCORED] for broker in brokers]
        usage, limit = np.array(values, dtype=np.float64).reshape(-1, len(SCORED), 2).T
        weighted = weighted_usages(usage_percents(usage, limit), SCORED, settings).tolist()
        return {broker.broker: usage for broker, usage in zip(brokers, weighted, strict=True)}

    def traffic_by_broker(self, measure: Measure) -> Mapping[str, float]:
        """Return the traffic by name, in msg/s or bytes/s, in the order of `compared_brokers`."""
        return {broker.broker: broker.traffic(measure) for broker in self.compared_brokers}

    @cached_property
    def report_age_by_broker(self) -> Mapping[str, float]:
        """Return the age, in seconds, of what brokers report that measure their averages themselves."""
        return {each.broker: each.report_age_seconds or 0 for each in self._samples if each.load_average is not None}

    @cached_property
    def _sample_by_name(self) -> dict[str, BrokerSample]:
        return {broker.broker: broker for broker in self._samples}


def relative_limits(brokers: Iterable[BrokerSample], resource: str) -> dict[str, float]:
    limits = {broker.broker: broker.resources.get(resource, ResourceUsage()).limit or 0.0 for broker in brokers}
    usual = median([limit for limit in limits.values() if limit > 0] or [1.0])
    return {name: limit / usual if limit > 0 else 1.0 for name, limit in limits.items()}


def smooth(average: float | None, sample: float, settings: Settings) -> float:
    """Return a moving average after a sample, as ThresholdShedder and BrokerLoadData; the first is the average."""
    history = settings.history_percentage
    return sample if average is None else average * history + (1 - history) * sample


def predict_scores(
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

LASTING_SAMPLES = 10
"""A resource becomes the bottleneck when it has determined the score of this number of counted samples in a row."""

UNIT_DIVISORS = {Measure.RATE: 1.0, Measure.THROUGHPUT: 1000.0}
"""Divisors from msg/s and bytes/s to msg/s and kB/s, in which the values of learned loads are of similar size."""


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


def learned_before_sample(
    learned: LearnedValues, brokers: Iterable[BrokerSample], settings: Settings, *, is_counted: bool
) -> LearnedValues:
    """Return the values learned before a sample; empty if the sample changes the bottleneck.

    A sample that does not count changes it only if nothing has been learned yet.
    """
    if learned.samples and not is_counted:
        return learned
    now = bottleneck_of(brokers, settings)
    others = learned.others + 1 if now != learned.bottleneck else 0
    is_kept = learned.samples and others < LASTING_SAMPLES
    return replace(learned, others=others) if is_kept else LearnedValues(bottleneck=now)
