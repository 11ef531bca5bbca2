"""The moving averages of all bundles after a run's sample, for this run's strategy and for the next run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.run.bundle_columns import LONG_TERM_SAMPLES, MAX_SAMPLES, mean_with_sample
from pulsar_rebalancer.run.tables import BUNDLES, LONG_TERM_RATES, MEANS, TRAFFIC, Cell
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_KEY = ["cluster", "bundle"]


def update(bundles: DataFrame, previous_means: DataFrame, *, is_shared: bool, keep_missing: bool = False) -> DataFrame:
    """Return the bundles with their moving averages, which include this sample.

    The table is written to a file, from which strategies read the means.

    Args:
        bundles: the bundles table with the column `refused`, true if validation left out the bundle. Its
            means do not change, because invalid values would affect them for ten samples.
        previous_means: the means table of the last counted sample.
        is_shared: two brokers might report the same bundle (column `owners`); the larger value is then used.
        keep_missing: keep the means of bundles that are not in the sample, as if refused. Use this while a
            broker has no report: its bundles are still loaded.

    Returns:
        The bundles with `samples`, a column `mean_…` for each traffic column, and the long-term means, all
            null for a refused bundle without earlier means. `keeps` is true in one row per bundle. A bundle
            that is not in the sample has no broker.
    """
    known = previous_means.select(
        *_KEY,
        F.col("samples").alias("samples_before"),
        *(F.col(name).alias(f"{name}_before") for name in (*TRAFFIC, *LONG_TERM_RATES)),
    )
    reported = _with_largest_reported_values(bundles) if is_shared else bundles.withColumn("keeps", F.lit(True))
    now = {name: F.coalesce(*([f"{name}_largest"] if is_shared else []), name, F.lit(0.0)) for name in TRAFFIC}
    long = F.least(F.coalesce("samples_before", F.lit(0)) + 1, F.lit(LONG_TERM_SAMPLES))
    short = F.least(long, F.lit(MAX_SAMPLES))
    updated = {f"mean_{name}": _updated_mean(f"{name}_before", now[name], short) for name in TRAFFIC}
    updated |= {
        f"long_term_{name}": _updated_mean(f"long_term_{name}_before", now[f"{name}_in"] + now[f"{name}_out"], long)
        for name in ("msg_rate", "msg_throughput")
    }
    updated["samples"] = F.when(F.col("refused"), F.col("samples_before")).otherwise(long)
    # Both tables may be large, and a hash table of the known means needs neither a sort nor a second pass.
    joined = reported.join(known.hint("shuffle_hash"), on=_KEY, how="full" if keep_missing else "left")
    if keep_missing:
        joined = joined.fillna({"refused": True, "keeps": True})
    return joined.select(*bundles.columns, "keeps", *(column.alias(name) for name, column in updated.items()))


def means_table(updated_bundles: DataFrame) -> DataFrame:
    """Return the means table for the next run, from `update`'s result: one row per bundle that has means."""
    means = [F.col(f"mean_{name}" if name in TRAFFIC else name).alias(name) for name in MEANS.names]
    return updated_bundles.where(F.col("keeps") & F.col("samples").isNotNull()).select(*means)


def add_parts(means: DataFrame, parts: DataFrame) -> DataFrame:
    """Return the means with rows for the parts of split bundles, as in `run.bundle_columns.add_parts`."""
    shared = {name: F.col(name) * F.col("share") for name in (*TRAFFIC, *LONG_TERM_RATES)}
    split = means.join(F.broadcast(parts), on=_KEY, how="inner")
    carried = split.withColumns({"bundle": F.col("part"), **shared}).select(*means.columns)
    # There are few parts, so the larger table is scanned for parts that already have means.
    known = means.select(*_KEY).join(F.broadcast(carried.select(*_KEY)), on=_KEY, how="left_semi")
    return means.union(carried.join(F.broadcast(known), on=_KEY, how="left_anti"))


def _with_largest_reported_values(bundles: DataFrame) -> DataFrame:
    several = bundles.where(F.col("owners") > 1).groupBy(*_KEY)
    largest = several.agg(F.min("broker").alias("keeper"), *(F.max(name).alias(f"{name}_largest") for name in TRAFFIC))
    joined = bundles.join(F.broadcast(largest), on=_KEY, how="left")
    return joined.withColumn("keeps", F.coalesce(F.col("broker") == F.col("keeper"), F.lit(True)))


def _updated_mean(mean_column: str, value: Column, samples: Column) -> Column:
    old = F.col(mean_column)
    mean = F.when(old.isNull(), value).otherwise(mean_with_sample(old, value, samples))
    return F.when(F.col("refused"), old).otherwise(mean)


_SPARK_TYPES: dict[pa.DataType, T.DataType] = {
    pa.string(): T.StringType(),
    pa.int64(): T.LongType(),
    pa.float64(): T.DoubleType(),
    pa.bool_(): T.BooleanType(),
    pa.timestamp("us", tz="UTC"): T.TimestampType(),
}

_DICTIONARY_OPTION = "parquet.enable.dictionary"
_DISTINCT_COLUMNS = {"bundle", *(field.name for field in MEANS if pa.types.is_floating(field.type))}

QUARANTINED = pa.schema([MEANS.field(name) for name in ("cluster", "bundle")])
"""Columns of the table of bundles that validation left out."""

PARTS = pa.schema([*QUARANTINED, pa.field("part", pa.string()), pa.field("share", pa.float64())])
"""Columns of the table of recent splits: a row per part of a bundle, with its share of the bundle's traffic."""


def spark_schema(schema: pa.Schema) -> T.StructType:
    return T.StructType([T.StructField(field.name, _SPARK_TYPES[field.type]) for field in schema])


def read_frame(spark: SparkSession, files: Sequence[StoragePath], schema: pa.Schema) -> DataFrame:
    return spark.read.schema(spark_schema(schema)).parquet(*(file.spark_uri for file in files))


def partition_count(spark: SparkSession) -> int:
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 0)


def write_frame(frame: DataFrame, file: StoragePath) -> None:
    """Write a table to a folder of files. Output from an earlier attempt is replaced."""
    # Bundle names and most values occur only once: Parquet would fill a dictionary only to discard it.
    once = {f"{_DICTIONARY_OPTION}#{name}": "false" for name in frame.columns if name in _DISTINCT_COLUMNS}
    frame.write.mode("overwrite").options(**once).parquet(file.spark_uri)


def literal(spark: SparkSession, rows: Iterable[Mapping[str, Cell]], schema: pa.Schema) -> DataFrame:
    """Return a table built from a few rows in the driver, a literal in the query; a missing key is null."""
    text = json.dumps([dict(row) for row in rows])
    parsed = F.from_json(F.lit(text), T.ArrayType(spark_schema(schema)))
    table = spark.range(0, 1, 1, 1).select(F.inline(parsed))
    # Spark drops a join with an empty table from its plan only if it knows that the table is empty.
    return table.limit(0) if text == "[]" else table


def empty_frame(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    return literal(spark, [], schema)


def bundles_of_run(spark: SparkSession, run: RunInput) -> DataFrame:
    """Return the run's bundles with their moving averages (see `update`), which include this sample."""
    bundles = read_frame(spark, [run.folder / "input" / "bundles.parquet"], BUNDLES)
    bundles = bundles.select("cluster", "broker", "bundle", "owners", *TRAFFIC)
    known = read_frame(spark, [run.known_means_file], MEANS) if run.known_means_file else empty_frame(spark, MEANS)
    if run.known_means_file and run.parts_of_split_bundles:
        known = add_parts(known, literal(spark, run.parts_of_split_bundles, PARTS))
    if partition_count(spark) == 1:
        bundles, known = bundles.coalesce(1), known.coalesce(1)
    if run.validation.quarantine_reasons:
        rows = [{"cluster": run.cluster, "bundle": name} for name in run.validation.quarantine_reasons]
        left_out = literal(spark, rows, QUARANTINED).withColumn("refused", F.lit(True))
        bundles = bundles.join(F.broadcast(left_out), on=["cluster", "bundle"], how="left").fillna({"refused": False})
    else:
        bundles = bundles.withColumn("refused", F.lit(False))
    return update(bundles, known, is_shared=run.may_repeat_bundles, keep_missing=bool(run.silent_brokers))


def store_means(run: RunInput, bundles: DataFrame) -> None:
    """Write the means for the next run if the sample counts."""
    if run.hit_rules.counts:
        _write_means(run, bundles)


def write_new_means(run: RunInput, bundles: Callable[[], DataFrame], wait_for_means: Callable[[], None]) -> StoragePath:
    """Write the means after this sample if necessary, and return their file for the next run.

    `bundles` returns the bundles with their means; `wait_for_means` waits until `store_means` has finished.
    """
    wait_for_means()
    _write_means(run, bundles())
    return run.new_means_file


def _write_means(run: RunInput, bundles: DataFrame) -> None:
    # Even means that only this plan needs are written to the state's folder: executors may not write to other folders.
    if not (run.new_means_file / "_SUCCESS").exists():  # Spark writes this file last
        write_frame(means_table(bundles), run.new_means_file)
