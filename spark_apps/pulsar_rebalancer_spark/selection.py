"""The walk over a fired source's bundles, the busiest first (see `strategies.avg_shedder.select`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import MOVES
from pulsar_rebalancer_spark.candidates import is_heartbeat

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PAIR = ("cluster", "pair", "source", "destination", "measure", "target", "least")

_CHUNK = 64
"""Answers that are appended to one array: each step copies what is there, so one array for all of a broker's bundles
would make it quadratic."""


def select(firing: DataFrame, bundles: DataFrame) -> DataFrame:
    """Return every bundle of a fired source, taken or passed over.

    Args:
        firing: pairs that move something (`tables.FIRING`).
        bundles: cluster, broker, bundle, msg_rate, msg_throughput, reason (why it must stay, or null).

    Returns:
        The moves table before caps: no move has a wave.
    """
    held = bundles.withColumnRenamed("broker", "source")
    return (
        held.join(F.broadcast(firing), on=["cluster", "source"], how="inner")
        .groupBy("cluster", "pair")
        .agg(
            *(F.first(name).alias(name) for name in _PAIR if name not in ("cluster", "pair")),
            F.sort_array(F.collect_list(_candidate())).alias("walk"),
        )
        .withColumn("takes", _takes())
        .select(*_PAIR, F.posexplode(F.arrays_zip("walk", "takes")).alias("rank", "bundle"))
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


def _takes() -> Column:
    """Return for each bundle of `walk` whether it is taken: it may go, carries enough and fits into what remains."""
    starts = F.sequence(F.lit(1), F.size("walk"), F.lit(_CHUNK))
    nothing = F.expr("cast(array() as array<boolean>)")

    def state(remaining: Column, taken: Column = nothing) -> Column:
        return F.struct(remaining.alias("remaining"), taken.alias("taken"))

    def step(before: Column, bundle: Column) -> Column:
        load, remaining = bundle["traffic"], before["remaining"]
        takes = bundle["reason"].isNull() & (load > 0) & (load <= remaining) & (load >= F.col("least"))
        return state(F.when(takes, remaining - load).otherwise(remaining), F.concat(before["taken"], F.array(takes)))

    def chunk(before: Column, start: Column) -> Column:
        remaining = F.element_at(before, -1)["remaining"]
        walked = F.aggregate(F.slice("walk", start, _CHUNK), state(remaining), step)
        return F.concat(before, F.array(walked))

    chunks = F.aggregate(starts, F.array(state(F.col("target"))), chunk)
    return F.flatten(F.transform(chunks, lambda each: each["taken"]))


def _moves_columns() -> list[Column]:
    walked, takes = F.col("bundle.walk"), F.col("bundle.takes")
    columns = {
        "bundle": walked["bundle"],
        "rank": F.col("rank").cast("bigint"),
        **{name: walked[name] for name in ("traffic", "msg_rate", "msg_throughput")},
        "taken": takes,
        "reason": F.coalesce(
            walked["reason"],
            F.when(takes, Reason.TAKEN)
            .when(walked["traffic"] <= 0, Reason.NO_TRAFFIC)
            .when(walked["traffic"] < F.col("least"), Reason.BELOW_SHARE)
            .otherwise(Reason.OVER_REMAINING),
        ),
        "wave": F.lit(None).cast("bigint"),
    }
    return [columns.get(name, F.col(name)).alias(name) for name in MOVES.names]
