"""How loaded a broker is: the weighted maximum of its resources, in percent (see `strategies.scoring`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.strategies.scoring import SCORED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def percent(usage: Column, limit: Column) -> Column:
    """Usage in percent of its limit with the rounding of 32-bit floats; 0 without a limit.

    Spark divides in doubles. The quotient and the product of two floats, computed in double and rounded back, are
    exactly what 32-bit arithmetic gives.
    """
    usage32, limit32 = (figure.cast("float").cast("double") for figure in (usage, limit))
    share32 = F.try_divide(usage32, limit32).cast("float").cast("double")
    return F.when(limit32 > 0, (share32 * 100).cast("float").cast("double")).otherwise(0.0)


def score() -> Column:
    """Score of a broker in percent, from a row of the brokers table with its cluster's `rules`."""
    weighted = [
        F.coalesce(percent(F.col(f"{name}_usage"), F.col(f"{name}_limit")), F.lit(0.0)) * F.col(f"rules.{name}_weight")
        for name in SCORED
    ]
    # Pulsar divides here and multiplies there: the last digit depends on both steps.
    return F.greatest(*weighted) / 100 * 100


def traffic(measure: str) -> Column:
    """In plus out of one measure; a missing figure is 0."""
    return F.coalesce(F.col(f"{measure}_in"), F.lit(0.0)) + F.coalesce(F.col(f"{measure}_out"), F.lit(0.0))


def loads(brokers: DataFrame, rules: Column, known: DataFrame) -> DataFrame:
    """Brokers as they are judged.

    Args:
        brokers: the brokers table.
        rules: of a row's cluster (`rules.of_cluster`).
        known: counts and brokers left out (`tables.KNOWN`); one without a report is left out in any case.

    Returns:
        cluster, broker, left_out (reason or null), pool (policy that reserves the broker, or null), score, msg_rate,
        msg_throughput, high, low, rules.
    """
    no_report = F.when(F.col("error").isNotNull(), "broker_quarantined")
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
            "rules",
        )
    )


def _kept(band: str) -> Column:
    return F.when(F.col("rules.clear"), 0).otherwise(F.coalesce(F.col(band), F.lit(0))).cast("bigint").alias(band)
