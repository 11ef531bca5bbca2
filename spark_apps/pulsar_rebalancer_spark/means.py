"""Short-term and long-term means of bundle traffic (see `strategies.means`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.run.tables import MEANS, TRAFFIC
from pulsar_rebalancer.strategies.means import LONG_TERM_SAMPLES, MAX_SAMPLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def update(bundles: DataFrame, previous: DataFrame) -> DataFrame:
    """Return means with this sample added; bundles that are not in the sample are forgotten.

    One aggregation over both tables instead of a join of two large ones. Of two reports of one bundle the larger figure
    counts, and a maximum of one known mean is that mean.

    Args:
        bundles: the bundles table.
        previous: the means table of the last counted sample.

    Returns:
        The means table.
    """
    nothing = F.lit(None).cast("double")
    now = bundles.select(
        "cluster",
        "bundle",
        F.lit(None).cast("bigint").alias("samples"),
        *(F.coalesce(name, F.lit(0.0)).alias(name) for name in TRAFFIC),
        *(nothing.alias(f"{name}_before") for name in TRAFFIC),
        nothing.alias("long_term_before"),
    )
    before = previous.select(
        "cluster",
        "bundle",
        "samples",
        *(nothing.alias(name) for name in TRAFFIC),
        *(F.col(name).alias(f"{name}_before") for name in TRAFFIC),
        F.col("long_term_msg_rate").alias("long_term_before"),
    )
    columns = ("samples", *TRAFFIC, *(f"{name}_before" for name in TRAFFIC), "long_term_before")
    rate = F.col("msg_rate_in") + F.col("msg_rate_out")
    return (
        now.union(before)
        .groupBy("cluster", "bundle")
        .agg(*(F.max(name).alias(name) for name in columns))
        .where(F.col("msg_rate_in").isNotNull())
        .withColumn("long", F.least(F.coalesce("samples", F.lit(0)) + 1, F.lit(LONG_TERM_SAMPLES)))
        .withColumn("short", F.least("long", F.lit(MAX_SAMPLES)))
        .select(
            "cluster",
            "bundle",
            F.col("long").alias("samples"),
            *(_mean(F.col(f"{name}_before"), F.col(name), F.col("short")).alias(name) for name in TRAFFIC),
            _mean(F.col("long_term_before"), rate, F.col("long")).alias("long_term_msg_rate"),
        )
        .select(*MEANS.names)
    )


def _mean(old: Column, new: Column, samples: Column) -> Column:
    return F.when(old.isNull(), new).otherwise(((samples - 1) * old + new) / samples)
