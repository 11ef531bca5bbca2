"""The bundles of a run: one table that feeds its strategy and the means for the next run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BUNDLES, MEANS, TRAFFIC
from pulsar_rebalancer_spark import means, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer_spark.run_input import RunInput


def of_run(spark: SparkSession, run: RunInput) -> DataFrame:
    """Return the bundles with their means, this sample in them.

    Returns:
        The bundles table, for AvgShedder what means are made of, with what `means.update` adds. Other strategies read
        it as well: with `stays`, why the run keeps a bundle where it is, or null. A large one is then cached, and is to
        be unpersisted.
    """
    bundles = tables.read(spark, [run.folder / "input" / "bundles.parquet"], BUNDLES)
    only_means = run.settings.strategy is Strategy.AVG
    if only_means:
        bundles = bundles.select("cluster", "broker", "bundle", "owners", *TRAFFIC)
    known = tables.read(spark, [run.known_means], MEANS) if run.known_means else tables.empty(spark, MEANS)
    if run.known_means and run.parts_of_split_bundles:
        known = means.with_parts(known, tables.literal(spark, run.parts_of_split_bundles, tables.PARTS))
    if run.decision.means and not run.known_means:
        print(f"means: {run.decision.means} is gone, bundles start anew with this sample")
    if tables.partitions(spark) == 1:
        bundles, known = bundles.coalesce(1), known.coalesce(1)
    passed_over = run.bundles_quarantined if only_means else run.bundles_passed_over
    if passed_over:
        stays = tables.literal(spark, passed_over, tables.PASSED_OVER).withColumnRenamed("reason", "stays")
        bundles = bundles.join(F.broadcast(stays), on=["cluster", "bundle"], how="left")
    else:
        bundles = bundles.withColumn("stays", F.lit(None).cast("string"))
    refused = F.coalesce(F.col("stays") == Reason.BUNDLE_QUARANTINED, F.lit(False))
    updated = means.update(bundles.withColumn("refused", refused), known, shared=run.shares_bundles)
    found = updated.drop("owners", "refused")
    # Means and strategy read the join. Of a small one, reading twice costs less than keeping it.
    return found if only_means or tables.partitions(spark) == 1 else found.cache()


def keep_means(run: RunInput, bundles: DataFrame) -> None:
    """Write the means for the next run, when the sample counts.

    Args:
        run: the run.
        bundles: as `of_run` gives them.
    """
    if run.counting.counts and not tables.is_written(run.new_means):
        tables.write(means.table(bundles), run.new_means)


@contextmanager
def means_of_sample(run: RunInput, held: Callable[[], DataFrame], kept: Callable[[], None]) -> Iterator[StoragePath]:
    """Give the file of the means with this sample: what the next run starts from, or a draft when it does not count.

    Args:
        run: the run.
        held: gives the bundles (`of_run`).
        kept: waits until `keep_means` is done.
    """
    kept()
    if run.counting.counts:
        yield run.new_means
        return
    draft = run.folder / "plan" / "means.parquet"
    tables.write(means.table(held()), draft)
    yield draft
    draft.delete()
