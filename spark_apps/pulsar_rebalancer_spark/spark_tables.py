"""Spark DataFrames from files with declared columns, and from a few rows in the driver.

No function here infers a schema or starts a Python worker, because either would take seconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulsar_rebalancer.run.tables import MEANS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_rebalancer.run.tables import Cell
    from pulsar_rebalancer.storage.path import StoragePath

_TYPES: dict[pa.DataType, T.DataType] = {
    pa.string(): T.StringType(),
    pa.int64(): T.LongType(),
    pa.float64(): T.DoubleType(),
    pa.bool_(): T.BooleanType(),
    pa.timestamp("us", tz="UTC"): T.TimestampType(),
}

_DICTIONARY = "parquet.enable.dictionary"
_MANY_VALUES = {"bundle", *(field.name for field in MEANS if pa.types.is_floating(field.type))}

QUARANTINED = pa.schema([MEANS.field(name) for name in ("cluster", "bundle")])
"""Columns of the table of bundles that validation left out."""

PARTS = pa.schema([*QUARANTINED, pa.field("part", pa.string()), pa.field("share", pa.float64())])
"""Columns of the table of parts of recently split bundles, with each part's share of the bundle's traffic."""


def spark_schema(schema: pa.Schema) -> T.StructType:
    """Return a table's columns (`pulsar_rebalancer.run.tables`) as a Spark schema."""
    return T.StructType([T.StructField(field.name, _TYPES[field.type]) for field in schema])


def read(spark: SparkSession, files: Sequence[StoragePath], schema: pa.Schema) -> DataFrame:
    """Return a table from Parquet files of one or more clusters."""
    return spark.read.schema(spark_schema(schema)).parquet(*(file.for_spark for file in files))


def partitions(spark: SparkSession) -> int:
    """Return the number of partitions in the session's shuffles, from its settings."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 0)


def write(frame: DataFrame, file: StoragePath) -> None:
    """Write a table. Output from an earlier attempt is replaced.

    Args:
        file: the target, which becomes a folder of files.
    """
    # Bundle names and most figures occur only once: Parquet would fill a dictionary only to discard it.
    once = {f"{_DICTIONARY}#{name}": "false" for name in frame.columns if name in _MANY_VALUES}
    frame.write.mode("overwrite").options(**once).parquet(file.for_spark)


def is_written(file: StoragePath) -> bool:
    """Return whether a table was written completely. Spark writes a marker file last."""
    return (file / "_SUCCESS").exists()


def literal(spark: SparkSession, rows: Iterable[Mapping[str, Cell]], schema: pa.Schema) -> DataFrame:
    """Return a table built from rows in the driver, which become a literal in the query.

    Args:
        rows: a few rows, such as bundles left out. A missing key becomes null.
    """
    text = json.dumps([dict(row) for row in rows])
    parsed = F.from_json(F.lit(text), T.ArrayType(spark_schema(schema)))
    table = spark.range(0, 1, 1, 1).select(F.inline(parsed))
    # Spark drops a join with an empty table from its plan only if it knows that the table is empty.
    return table.limit(0) if text == "[]" else table


def empty(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """Return a table without rows."""
    return literal(spark, [], schema)
