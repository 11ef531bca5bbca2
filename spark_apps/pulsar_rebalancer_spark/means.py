"""Short-term means of bundle traffic (see `strategies.means`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.snapshot import MEANS, TRAFFIC
from pulsar_rebalancer.strategies.means import MAX_SAMPLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def update(bundles: DataFrame, previous: DataFrame) -> DataFrame:
    """Means with this sample added; bundles that are not in the sample are forgotten.

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
    )
    before = previous.select(
        "cluster",
        "bundle",
        "samples",
        *(nothing.alias(name) for name in TRAFFIC),
        *(F.col(name).alias(f"{name}_before") for name in TRAFFIC),
    )
    columns = ("samples", *TRAFFIC, *(f"{name}_before" for name in TRAFFIC))
    return (
        now.union(before)
        .groupBy("cluster", "bundle")
        .agg(*(F.max(name).alias(name) for name in columns))
        .where(F.col("msg_rate_in").isNotNull())
        .withColumn("n", F.least(F.coalesce("samples", F.lit(0)) + 1, F.lit(MAX_SAMPLES)))
        .select("cluster", "bundle", F.col("n").alias("samples"), *(_mean(name) for name in TRAFFIC))
        .select(*MEANS.names)
    )


def _mean(name: str) -> Column:
    old, new, samples = F.col(f"{name}_before"), F.col(name), F.col("n")
    return F.when(old.isNull(), new).otherwise(((samples - 1) * old + new) / samples).alias(name)
