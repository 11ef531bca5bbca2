"""The moving averages of all bundles after a run's sample, for this run's strategy and for the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.run.tables import BUNDLES, MEANS, TRAFFIC
from pulsar_rebalancer_spark import means, spark_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer.storage.path import StoragePath


def of_run(spark: SparkSession, run: RunInput) -> DataFrame:
    """Return the run's bundles with their moving averages, which include this sample.

    Returns:
        A table with the columns from which the means are computed, and the columns that `means.update` adds.
    """
    bundles = spark_tables.read(spark, [run.folder / "input" / "bundles.parquet"], BUNDLES)
    bundles = bundles.select("cluster", "broker", "bundle", "owners", *TRAFFIC)
    known = spark_tables.read(spark, [run.known_means], MEANS) if run.known_means else spark_tables.empty(spark, MEANS)
    if run.known_means and run.parts_of_split_bundles:
        known = means.with_parts(known, spark_tables.literal(spark, run.parts_of_split_bundles, spark_tables.PARTS))
    if run.before.decision.means and not run.known_means:
        print(f"means: {run.before.decision.means} is gone: bundles start again with this sample")
    if spark_tables.partitions(spark) == 1:
        bundles, known = bundles.coalesce(1), known.coalesce(1)
    if run.validation.quarantined:
        left_out = spark_tables.literal(spark, run.bundles_quarantined, spark_tables.QUARANTINED).withColumn(
            "refused", F.lit(True)
        )
        bundles = bundles.join(F.broadcast(left_out), on=["cluster", "bundle"], how="left").fillna({"refused": False})
    else:
        bundles = bundles.withColumn("refused", F.lit(False))
    return means.update(bundles, known, shared=run.shares_bundles, keep_missing=bool(run.silent))


def keep_means(run: RunInput, bundles: DataFrame) -> None:
    """Write the means for the next run if the sample counts."""
    if run.counting.counts:
        _write_means(run, bundles)


def means_of_sample(run: RunInput, held: Callable[[], DataFrame], kept: Callable[[], None]) -> StoragePath:
    """Write the means after this sample if necessary, and return their file. The next run uses it if the sample counts.

    Args:
        held: function that returns the bundles with their means.
        kept: function that waits until `keep_means` has finished.
    """
    kept()
    _write_means(run, held())
    return run.new_means


def forget_means(run: RunInput) -> None:
    """Delete the means of a sample that does not count."""
    if not run.counting.counts:
        run.new_means.delete()


def _write_means(run: RunInput, bundles: DataFrame) -> None:
    # Even means that only this plan needs are written to the state's folder: executors may not write to other folders.
    if not spark_tables.is_written(run.new_means):
        spark_tables.write(means.table(bundles), run.new_means)
