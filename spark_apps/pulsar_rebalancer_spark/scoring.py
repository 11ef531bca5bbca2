"""Scores: a broker's highest weighted resource usage, in percent, with the rounding of Pulsar's 32-bit floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.strategies.scoring import LARGEST_FLOAT32, SCORED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def scored_brokers(brokers: DataFrame, rules: DataFrame) -> DataFrame:
    """Return the brokers with their pools, scores (LocalBrokerData.getMaxResourceUsageWithWeight) and rules.

    Args:
        brokers: rows of the brokers table, of one cluster or of many, without those that are left out.
        rules: one row per cluster (`rebalance.RULES`).
    """
    # Arrays over the resources: an expression per resource would need more than twice as many calls to Java.
    usages, limits, weights = (F.array(*(f"{name}_{part}" for name in SCORED)) for part in ("usage", "limit", "weight"))
    weighted = F.zip_with(F.zip_with(usages, limits, _percent), weights, lambda percent, weight: percent * weight)
    # Pulsar divides by 100 and multiplies again: the last digit depends on both steps.
    score = F.array_max(weighted) / 100 * 100
    pool = F.coalesce("reserved_by", F.lit(""))
    found = brokers.join(rules, "cluster")
    return found.select(*rules.columns, "broker", pool.alias("pool"), score.alias("score"))


def _percent(usage: Column, limit: Column) -> Column:
    """Return the usage in percent of its limit; 0 if either is unknown (ResourceUsage.percentUsage)."""
    known = usage.isNotNull() & limit.isNotNull() & (_float32(limit) > 0)
    # A quotient or product of two floats, computed in double precision and rounded, equals 32-bit arithmetic.
    return F.when(known, _float32(_float32(_float32(usage) / _float32(limit)) * 100)).otherwise(0.0)


def _float32(value: Column) -> Column:
    """Return the nearest finite 32-bit float."""
    clamped = F.greatest(F.least(value, F.lit(LARGEST_FLOAT32)), F.lit(-LARGEST_FLOAT32))
    return clamped.cast("float").cast("double")
