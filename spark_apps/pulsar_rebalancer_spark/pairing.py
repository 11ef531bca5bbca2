"""Brokers paired from the outside in: the hottest with the coldest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame


def pairs(loads: DataFrame) -> DataFrame:
    """Return pairs of each pool of brokers; brokers left out stand alone.

    Brokers are ordered by score and name. The middle one of an odd number is its own partner.

    Args:
        loads: brokers as `scoring.loads` gives them.

    Returns:
        cluster, left_out, pool, pair (0 is the outermost of its pool; arbitrary for brokers left out), source,
        destination (structs of broker, score, msg_rate, msg_throughput, high, low, counted_score), rules.
    """
    group = Window.partitionBy("cluster", F.isnull("left_out"), "pool")
    ordered = group.orderBy("score", "broker")
    position = (F.row_number().over(ordered) - 1).alias("position")
    member = F.struct("position", "broker", "score", "msg_rate", "msg_throughput", "high", "low", "counted_score")
    from_outside = F.least(F.col("position"), F.col("size") - 1 - F.col("position"))
    return (
        loads.select("*", position, F.count(F.lit(1)).over(group).alias("size"))
        .withColumn("pair", F.when(F.isnull("left_out"), from_outside).otherwise(F.col("position")).cast("bigint"))
        .groupBy("cluster", "left_out", "pool", "pair")
        # The position comes first in the struct, so the larger struct is the hotter broker.
        .agg(F.max(member).alias("source"), F.min(member).alias("destination"), F.first("rules").alias("rules"))
    )


def numbered(decisions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return decisions, pairs numbered through the whole cluster, pool after pool, brokers left out at the end.

    Args:
        decisions: rows of one cluster as `hit_counting.decide` gives them, `pair` counted within each pool.
    """
    ordered = sorted(
        decisions, key=lambda row: (row["pair"] is None, row["pool"] or "", row["pair"] or 0, row["source"])
    )
    return [row if row["pair"] is None else {**row, "pair": number} for number, row in enumerate(ordered)]
