"""How loaded a broker is: the weighted maximum of its resources, now and on a moving average."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.settings import Settings

SCORED = ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
"""Resources that make the score; the JVM heap is no part of it (LocalBrokerData.getMaxResourceUsageWithWeight)."""


def percent(usage: float | None, limit: float | None) -> float:
    """Usage of one resource in percent of its limit, with the rounding of 32-bit floats (ResourceUsage.percentUsage).

    Args:
        usage: in the unit of the limit; -1 or None when there is no measurement.
        limit: 0, -1 or None when there is none.

    Returns:
        Percent, may be above 100; 0 without a limit.
    """
    if usage is None or limit is None:
        return 0.0
    limit32 = np.float32(limit)
    if not limit32 > 0:
        return 0.0
    return float(np.float32(usage) / limit32 * np.float32(100))


def weighted_usage(broker: Mapping[str, Any], settings: Settings, resources: Sequence[str] = SCORED) -> float:
    """A broker's most used resource after weighting, 1 is 100 percent (LocalBrokerData.getMaxResourceUsageWithWeight).

    Args:
        broker: a row of the brokers table; `<resource>_usage` and `<resource>_limit` may be missing.
        settings: the weights.
        resources: which ones are looked at.
    """
    weighted: list[float] = [
        percent(broker.get(f"{name}_usage"), broker.get(f"{name}_limit")) * getattr(settings, f"{name}_weight")
        for name in resources
    ]
    return max(weighted) / 100


def score(broker: Mapping[str, Any], settings: Settings) -> float:
    """Score of a broker in percent: its weighted usage (AvgShedder).

    Args:
        broker: a row of the brokers table; `<resource>_usage` and `<resource>_limit` may be missing.
        settings: the weights.
    """
    # Pulsar divides there and multiplies here: the last digit depends on both steps.
    return weighted_usage(broker, settings) * 100


def smooth(before: float | None, sample: float, settings: Settings) -> float:
    """A moving average with this sample in it; the first sample counts in full (ThresholdShedder, BrokerLoadData)."""
    history = settings.history_percentage
    return sample if before is None else before * history + (1 - history) * sample


def traffic(row: Mapping[str, Any], measure: str) -> float:
    """In plus out of one measure, `msg_rate` (msg/s) or `msg_throughput` (bytes/s); a missing figure is 0."""
    return float((row.get(f"{measure}_in") or 0.0) + (row.get(f"{measure}_out") or 0.0))
