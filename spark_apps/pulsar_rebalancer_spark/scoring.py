"""How loaded a broker is: the weighted maximum of its resources, in percent (see `strategies.scoring`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.scoring import LARGEST_FLOAT32, SCORED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def percent(usage: Column, limit: Column) -> Column:
    """Return usage in percent of its limit with the rounding of 32-bit floats; 0 without a limit."""
    limit32 = _float32(limit)
    share32 = _float32(F.try_divide(_float32(usage), limit32))
    return F.when(limit32 > 0, _float32(share32 * 100)).otherwise(0.0)


def _float32(figure: Column) -> Column:
    largest = F.lit(LARGEST_FLOAT32)
    return F.least(F.greatest(figure, -largest), largest).cast("float").cast("double")


def score() -> Column:
    """Return the score of a broker in percent, from a row of the brokers table with its cluster's `rules`."""
    weighted = [
        F.coalesce(percent(F.col(f"{name}_usage"), F.col(f"{name}_limit")), F.lit(0.0)) * F.col(f"rules.{name}_weight")
        for name in SCORED
    ]
    # Pulsar divides here and multiplies there: the last digit depends on both steps.
    return F.greatest(*weighted) / 100 * 100


def traffic(measure: str) -> Column:
    """Return in plus out of one measure; a missing figure is 0."""
    return F.coalesce(F.col(f"{measure}_in"), F.lit(0.0)) + F.coalesce(F.col(f"{measure}_out"), F.lit(0.0))


def loads(brokers: DataFrame, rules: Column, known: DataFrame) -> DataFrame:
    """Return brokers as they are judged.

    Args:
        brokers: the brokers table.
        rules: of a row's cluster (`rules.of_cluster`).
        known: counts and brokers left out (`tables.KNOWN`); one without a report is left out in any case.

    Returns:
        cluster, broker, left_out (reason or null), pool (policy that reserves the broker, or null), score, msg_rate,
        msg_throughput, high, low, counted_score, rules.
    """
    no_report = F.when(F.col("error").isNotNull(), Reason.BROKER_QUARANTINED)
    return (
        brokers.withColumn("rules", rules)
        .join(F.broadcast(known), on=["cluster", "broker"], how="left")
        .select(
            "cluster",
            "broker",
            F.coalesce("left_out", no_report).alias("left_out"),
            F.col("reserved_by").alias("pool"),
            score().alias("score"),
            traffic("msg_rate").alias("msg_rate"),
            traffic("msg_throughput").alias("msg_throughput"),
            _kept("high"),
            _kept("low"),
            "counted_score",
            "rules",
        )
    )


def _kept(band: str) -> Column:
    return F.when(F.col("rules.clear"), 0).otherwise(F.coalesce(F.col(band), F.lit(0))).cast("bigint").alias(band)
