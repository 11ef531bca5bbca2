"""How loaded a broker is: the weighted maximum of its resources, now, on a moving average and after moves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.strategies.sample import CandidateMove

SCORED = ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
"""Resources of the score, which ignores the JVM heap (LocalBrokerData.getMaxResourceUsageWithWeight)."""

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
"""Beyond it, Pulsar's arithmetic gives infinity, and with a weight of 0 NaN."""


def percent(usage: float | None, limit: float | None) -> float:
    """Return the usage of one resource in percent of its limit, rounded as 32-bit floats (ResourceUsage.percentUsage).

    Args:
        usage: in the unit of the limit; -1 or None when there is no measurement.
        limit: 0, -1 or None when there is none.

    Returns:
        Percent, may be above 100; 0 without a limit.
    """
    if usage is None or limit is None:
        return 0.0
    limit32 = _float32(limit)
    if not limit32 > 0:
        return 0.0
    return _float32(_float32(_float32(usage) / limit32) * 100)


def percents(usage: npt.NDArray[np.float64], limit: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return `percent` of many figures at once, to the last digit.

    Args:
        usage: of any shape; NaN where there is no measurement.
        limit: of the same shape; NaN where there is none.
    """
    usage32, limit32 = _floats32(usage), _floats32(limit)
    measured = ~np.isnan(usage32) & (limit32 > 0)
    ratio = _floats32(np.divide(usage32, limit32, out=np.zeros_like(usage32), where=measured))
    return _floats32(ratio * 100)


def _floats32(figures: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.clip(figures, -LARGEST_FLOAT32, LARGEST_FLOAT32).astype(np.float32).astype(np.float64)


def _float32(figure: float) -> float:
    """Return the nearest 32-bit float, finite whatever the figure is: a score is always a number.

    A quotient or product of two such floats, computed in double precision and rounded, is that of 32-bit arithmetic.
    """
    return float(np.float32(min(max(figure, -LARGEST_FLOAT32), LARGEST_FLOAT32)))


def weighted_usage(broker: BrokerSample, settings: Settings, resources: Sequence[str] = SCORED) -> float:
    """Return a broker's most used resource after weighting, 1 is 100 percent.

    (LocalBrokerData.getMaxResourceUsageWithWeight.)

    Args:
        broker: resources that it does not measure count as idle.
        resources: the ones that count.
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
    """Return `weighted_usage` of many brokers at once, to the last digit.

    Args:
        measured: the result of `percents`, a row for each resource, an entry for each broker.
        names: the resource of each row.
        resources: the ones that count; one that is not measured counts as idle.
    """
    idle = np.zeros(measured.shape[1])
    rows = [
        measured[names.index(name)] * getattr(settings, f"{name}_weight") if name in names else idle
        for name in resources
    ]
    return np.asarray(np.max(rows, axis=0) / 100)


def score(broker: BrokerSample, settings: Settings) -> float:
    """Return the score of a broker in percent: its weighted usage (AvgShedder).

    Args:
        broker: resources that it does not measure count as idle.
    """
    # Pulsar divides there and multiplies here: the last digit depends on both steps.
    return weighted_usage(broker, settings) * 100


def smooth(before: float | None, sample: float, settings: Settings) -> float:
    """Return a moving average that includes this sample; the first sample counts in full.

    (ThresholdShedder, BrokerLoadData.)
    """
    history = settings.history_percentage
    return sample if before is None else before * history + (1 - history) * sample


def scores_after(
    scores: Mapping[str, float], moves: Iterable[CandidateMove], source_traffic: Mapping[str, float]
) -> dict[str, float]:
    """Return the scores after the moves, if each bundle takes its share of its source's score along.

    Args:
        scores: of the judged brokers, percent.
        moves: taken candidates of one cluster.
        source_traffic: current traffic of each source that gives bundles, in the measure of its moves.
    """
    carried: dict[str, dict[str, list[float]]] = {}
    for move in moves:
        if move.destination is not None:
            carried.setdefault(move.source, {}).setdefault(move.destination, []).append(move.traffic)
    after = dict(scores)
    for source in sorted(carried):
        flows = {destination: math.fsum(figures) for destination, figures in sorted(carried[source].items())}
        # The bundles' means may exceed what the broker reports now.
        whole = max(source_traffic[source], math.fsum(flows.values()))
        for destination, traffic in flows.items():
            moved = scores[source] * traffic / whole if whole > 0 else 0.0
            after[source] -= moved
            after[destination] = after.get(destination, 0.0) + moved
    return after
