"""The bundles of a run: one table that feeds its strategy and the means for the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BUNDLES, MEANS, TRAFFIC
from pulsar_rebalancer_spark import means, tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pulsar_rebalancer_spark.run_input import RunInput


def of_run(spark: SparkSession, run: RunInput) -> DataFrame:
    """Return the bundles with their means, this sample in them.

    Returns:
        The bundles table, of AvgShedder what it looks at, with what `means.update` adds, and `stays`: why the run keeps
        a bundle where it is, or null. A large one is cached: to be unpersisted.
    """
    bundles = tables.read(spark, [run.folder / "input" / "bundles.parquet"], BUNDLES)
    if run.settings.strategy is Strategy.AVG:
        bundles = bundles.select("cluster", "broker", "bundle", "policy", "owners", *TRAFFIC)
    known = tables.read(spark, [run.known_means], MEANS) if run.known_means else tables.empty(spark, MEANS)
    if run.known_means and run.parts_of_split_bundles:
        known = means.with_parts(known, tables.literal(spark, run.parts_of_split_bundles, tables.PARTS))
    if run.decision.means and not run.known_means:
        print(f"means: {run.decision.means} is gone, bundles start anew with this sample")
    if tables.partitions(spark) == 1:
        bundles, known = bundles.coalesce(1), known.coalesce(1)
    stays = tables.literal(spark, run.bundles_passed_over, tables.PASSED_OVER).withColumnRenamed("reason", "stays")
    joined = bundles.join(F.broadcast(stays), on=["cluster", "bundle"], how="left")
    refused = F.coalesce(F.col("stays") == Reason.BUNDLE_QUARANTINED, F.lit(False))
    updated = means.update(joined.withColumn("refused", refused), known, shared=run.shares_bundles)
    found = updated.drop("owners", "refused", *(TRAFFIC if run.settings.strategy is Strategy.AVG else ()))
    # The join is read twice, by the means and by the strategy. Of a small one that costs less than keeping it.
    return found.cache() if tables.partitions(spark) > 1 else found


def keep_means(run: RunInput, bundles: DataFrame) -> None:
    """Write the means for the next run, when the sample counts.

    Args:
        run: the run.
        bundles: as `of_run` gives them.
    """
    if run.counting.counts and not tables.is_written(run.new_means):
        tables.write(means.table(bundles), run.new_means)
