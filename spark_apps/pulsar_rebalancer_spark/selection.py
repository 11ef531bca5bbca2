"""The walk over a fired source's bundles, the busiest first (see `strategies.avg_shedder.select`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer_spark.candidates import is_heartbeat

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PAIR = ("cluster", "pair", "source", "destination", "measure", "target")


def select(firing: DataFrame, bundles: DataFrame) -> DataFrame:
    """Return every bundle of a fired source, taken or passed over.

    Args:
        firing: pairs that move something (`tables.FIRING`).
        bundles: cluster, broker, bundle, msg_rate, msg_throughput, reason (why it must stay, or null).

    Returns:
        The moves table without `wave`.
    """
    held = bundles.withColumnRenamed("broker", "source")
    return (
        held.join(F.broadcast(firing), on=["cluster", "source"], how="inner")
        .groupBy("cluster", "pair")
        .agg(
            *(F.first(name).alias(name) for name in _PAIR if name not in ("cluster", "pair")),
            F.sort_array(F.collect_list(_candidate())).alias("walk"),
        )
        .withColumn("reasons", F.aggregate("walk", _start(), _step, lambda state: state["reasons"]))
        .select(*_PAIR, F.posexplode(F.arrays_zip("walk", "reasons")).alias("rank", "bundle"))
        .select(*_moves_columns())
    )


def _candidate() -> Column:
    """Return a bundle in the order of the walk: traffic descending, then name."""
    traffic = F.when(F.col("measure") == "msg_rate", F.col("msg_rate")).otherwise(F.col("msg_throughput"))
    return F.struct(
        (F.lit(0.0) - traffic).alias("order"),
        "bundle",
        traffic.alias("traffic"),
        "msg_rate",
        "msg_throughput",
        F.when(is_heartbeat(), Reason.SYSTEM_NAMESPACE).otherwise(F.col("reason")).alias("reason"),
    )


def _start() -> Column:
    return F.struct(F.col("target").alias("remaining"), F.expr("cast(array() as array<string>)").alias("reasons"))


def _step(state: Column, bundle: Column) -> Column:
    """One bundle of the walk: taken when it fits into what remains."""
    carried, remaining = bundle["traffic"], state["remaining"]
    reason = (
        F.when(bundle["reason"].isNotNull(), bundle["reason"])
        .when(carried <= 0, F.lit(Reason.NO_TRAFFIC))
        .when(carried > remaining, F.lit(Reason.OVER_REMAINING))
        .otherwise(F.lit(Reason.TAKEN))
    )
    takes = bundle["reason"].isNull() & (carried > 0) & (carried <= remaining)
    return F.struct(
        F.when(takes, remaining - carried).otherwise(remaining).alias("remaining"),
        F.concat(state["reasons"], F.array(reason)).alias("reasons"),
    )


def _moves_columns() -> list[Column]:
    walk = F.col("bundle.walk")
    return [
        F.col("cluster"),
        F.col("pair"),
        F.col("source"),
        F.col("destination"),
        walk["bundle"].alias("bundle"),
        F.col("rank").cast("bigint").alias("rank"),
        F.col("measure"),
        walk["traffic"].alias("traffic"),
        walk["msg_rate"].alias("msg_rate"),
        walk["msg_throughput"].alias("msg_throughput"),
        (F.col("bundle.reasons") == Reason.TAKEN).alias("taken"),
        F.col("bundle.reasons").alias("reason"),
    ]
