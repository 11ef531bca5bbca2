"""Short-term and long-term moving averages of bundle traffic in Spark, equal to `strategies.means`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.run.tables import LONG_TERM, MEANS, TRAFFIC
from pulsar_rebalancer.strategies.means import LONG_TERM_SAMPLES, MAX_SAMPLES, with_sample

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY = ["cluster", "bundle"]


def update(bundles: DataFrame, previous: DataFrame, *, shared: bool, keep_missing: bool = False) -> DataFrame:
    """Return the bundles with their moving averages, which include this sample.

    The table is written to a file, from which strategies read the means.

    Args:
        bundles: the bundles table with the column `refused`, true if validation left out the bundle. The means of such
            a bundle do not change, because invalid figures would affect them for ten samples.
        previous: the means table of the last counted sample.
        shared: True if two brokers might report the same bundle (column `owners`). The larger figure is then used.
        keep_missing: True to keep the means of bundles that are not in the sample, as if they had been refused. Use
            this while a broker has no report: its bundles are still loaded.

    Returns:
        The bundles with additional columns: `samples`, a column `mean_…` for each traffic column, and the long-term
        means. All of these are null for a refused bundle without earlier means. The column `keeps` is true in one row
        per bundle. A bundle that is not in the sample has no broker.
    """
    known = previous.select(
        *_KEY,
        F.col("samples").alias("samples_before"),
        *(F.col(name).alias(f"{name}_before") for name in (*TRAFFIC, *LONG_TERM)),
    )
    reported = _largest(bundles) if shared else bundles.withColumn("keeps", F.lit(True))
    now = {name: F.coalesce(*([f"{name}_largest"] if shared else []), name, F.lit(0.0)) for name in TRAFFIC}
    long = F.least(F.coalesce("samples_before", F.lit(0)) + 1, F.lit(LONG_TERM_SAMPLES))
    short = F.least(long, F.lit(MAX_SAMPLES))
    updated = {f"mean_{name}": _mean(f"{name}_before", now[name], short) for name in TRAFFIC}
    updated |= {
        f"long_term_{name}": _mean(f"long_term_{name}_before", now[f"{name}_in"] + now[f"{name}_out"], long)
        for name in ("msg_rate", "msg_throughput")
    }
    updated["samples"] = F.when(F.col("refused"), F.col("samples_before")).otherwise(long)
    # Both tables may be large, and a hash table of the known means needs neither a sort nor a second pass.
    joined = reported.join(known.hint("shuffle_hash"), on=_KEY, how="full" if keep_missing else "left")
    if keep_missing:
        joined = joined.fillna({"refused": True, "keeps": True})
    return joined.select(*bundles.columns, "keeps", *(column.alias(name) for name, column in updated.items()))


def table(updated: DataFrame) -> DataFrame:
    """Return the means table for the next run: one row for each bundle that has means.

    Args:
        updated: the result of `update`.
    """
    means = [F.col(f"mean_{name}" if name in TRAFFIC else name).alias(name) for name in MEANS.names]
    return updated.where(F.col("keeps") & F.col("samples").isNotNull()).select(*means)


def with_parts(previous: DataFrame, parts: DataFrame) -> DataFrame:
    """Return the means with additional rows for the parts of split bundles, as in `strategies.means.with_parts`.

    Args:
        previous: the means table of the last counted sample.
        parts: the parts of split bundles (`spark_tables.PARTS`), at most a few rows.
    """
    shared = {name: F.col(name) * F.col("share") for name in (*TRAFFIC, *LONG_TERM)}
    split = previous.join(F.broadcast(parts), on=_KEY, how="inner")
    carried = split.withColumns({"bundle": F.col("part"), **shared}).select(*previous.columns)
    # There are few parts, so the larger table is scanned for parts that already have means.
    known = previous.select(*_KEY).join(F.broadcast(carried.select(*_KEY)), on=_KEY, how="left_semi")
    return previous.union(carried.join(F.broadcast(known), on=_KEY, how="left_anti"))


def _largest(bundles: DataFrame) -> DataFrame:
    """Return the bundles, each with the largest reported figures if several brokers report it."""
    several = bundles.where(F.col("owners") > 1).groupBy(*_KEY)
    largest = several.agg(F.min("broker").alias("keeper"), *(F.max(name).alias(f"{name}_largest") for name in TRAFFIC))
    joined = bundles.join(F.broadcast(largest), on=_KEY, how="left")
    return joined.withColumn("keeps", F.coalesce(F.col("broker") == F.col("keeper"), F.lit(True)))


def _mean(before: str, now: Column, samples: Column) -> Column:
    old = F.col(before)
    mean = F.when(old.isNull(), now).otherwise(with_sample(old, now, samples))
    return F.when(F.col("refused"), old).otherwise(mean)
