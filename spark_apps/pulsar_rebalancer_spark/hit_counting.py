"""Hits of the pairs, which of them fire and how much they move (see `strategies.avg_shedder`)."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import DECISIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COUNTS = [(side, band) for side in ("source", "destination") for band in ("high", "low")]


def decide(pairs: DataFrame) -> DataFrame:
    """Count the sample, say who fires, and how much it moves.

    Args:
        pairs: as `pairing.pairs` gives them.

    Returns:
        The decisions table without what selection adds, pairs still counted within each pool, and `source_traffic`
        (msg/s or bytes/s, in the pair's measure).
    """
    counted = _with_judgement(pairs.withColumns(_gap()))
    fired = counted.withColumn("fired", _fired())
    return fired.withColumns(_amount()).select(
        *_columns(),
        F.when(F.col("measure") == "msg_rate", F.col("source.msg_rate"))
        .otherwise(F.col("source.msg_throughput"))
        .alias("source_traffic"),
    )


def _gap() -> dict[str, Column]:
    gap = F.col("source.score") - F.col("destination.score")
    same = (F.col(f"{side}.score") == F.col(f"{side}.counted_score") for side in ("source", "destination"))
    return {
        "repeated": F.coalesce(reduce(and_, same), F.lit(False)),
        "gap": gap,
        "middle": F.col("source.broker") == F.col("destination.broker"),
        "over_low": gap >= F.col("rules.low_threshold"),
        "over_high": gap >= F.col("rules.high_threshold"),
    }


def _with_judgement(pairs: DataFrame) -> DataFrame:
    """Return the pairs with this sample in their counts (see `strategies.shedders.avg_shedder.count`)."""
    step = F.when(F.col("repeated"), 0).when(F.col("middle"), 2).otherwise(1)
    over = {"high": F.col("over_low") & F.col("over_high"), "low": F.col("over_low")}
    judged = {
        f"{side}_{band}_judged": F.when(~F.col("rules.judges"), F.col(f"{side}.{band}"))
        .when(over[band], F.col(f"{side}.{band}") + step)
        .otherwise(F.lit(0))
        for side, band in _COUNTS
    }
    larger = {
        f"{band}_hits": F.greatest(*(f"{side}_{band}_judged" for side in ("source", "destination")))
        for band in ("high", "low")
    }
    return pairs.withColumns(judged).withColumns(larger)


def _fired() -> Column:
    ready = (F.col("high_hits") >= F.col("rules.hit_count_high")) | (F.col("low_hits") >= F.col("rules.hit_count_low"))
    forced = F.col("rules.force_threshold")
    fires = F.when(forced.isNotNull(), (F.col("gap") >= forced) & ~F.col("middle")).otherwise(
        F.col("rules.judges") & ~F.col("repeated") & F.col("over_low") & ready
    )
    return F.isnull("left_out") & fires


def _amount() -> dict[str, Column]:
    """By message rate, else by throughput; nothing when neither differs by more than its minimum."""
    wanted = {
        measure: (F.col(f"source.{measure}") - F.col(f"destination.{measure}")) * F.col("rules.max_unload_percentage")
        for measure in ("msg_rate", "msg_throughput")
    }
    by_rate = F.col("fired") & (wanted["msg_rate"] > F.col("rules.min_unload_message"))
    by_throughput = F.col("fired") & (wanted["msg_throughput"] > F.col("rules.min_unload_throughput"))
    return {
        "measure": F.when(by_rate, "msg_rate").when(by_throughput, "msg_throughput"),
        "target": F.when(by_rate, wanted["msg_rate"]).when(by_throughput, wanted["msg_throughput"]),
    }


def _reason() -> Column:
    return (
        F.when(F.col("left_out").isNotNull(), F.col("left_out"))
        .when(F.col("middle"), Reason.MIDDLE)
        .when(F.col("fired") & F.col("measure").isNull(), Reason.BELOW_MINIMUM)
        .when(F.col("fired"), Reason.FIRED)
        .when(~F.col("over_low"), Reason.BELOW_LOW)
        .when(F.col("rules.counting") == Reason.FORCED, Reason.BELOW_FORCE)
        .when(F.col("repeated") | (F.col("rules.counting") == Reason.TOO_SOON), Reason.TOO_SOON)
        .when(F.col("over_high"), Reason.HITS_HIGH)
        .otherwise(Reason.HITS_LOW)
    )


def _counts() -> dict[str, Column]:
    """Return counts before and after: they start anew with the firing, whether or not a bundle is found.

    What a run leaves that counts nothing is known once it is known what moves (`strategies.hits.start_anew`).
    """
    columns: dict[str, Column] = {}
    for side, band in _COUNTS:
        before = F.col(f"{side}.{band}")
        stays = F.col("left_out").isNotNull() | ~F.col("rules.counts")
        after = F.when(stays, before).when(F.col("fired"), 0).otherwise(F.col(f"{side}_{band}_judged"))
        columns |= {f"{side}_{band}_before": before, f"{side}_{band}": after}
    return columns


def _columns() -> list[Column]:
    """Return the decisions table; a broker left out has its name, counts and reason alone."""
    alone = {
        "cluster": F.col("cluster"),
        "source": F.col("source.broker"),
        "fired": F.col("fired"),
        "reason": _reason(),
        "bundles_taken": F.lit(0).cast("bigint"),
        "traffic_taken": F.lit(0.0),
    }
    of_pair = {
        "value": F.lit(None).cast("double"),
        "bound": F.lit(None).cast("double"),
        "explanation": F.lit(None).cast("string"),
        "destination": F.col("destination.broker"),
        "source_score": F.col("source.score"),
        "destination_score": F.col("destination.score"),
    }
    for name, column in _counts().items():
        (alone if name.startswith("source") else of_pair)[name] = column
    is_pair = F.isnull("left_out")
    return [
        alone[name].alias(name) if name in alone else F.when(is_pair, of_pair.get(name, F.col(name))).alias(name)
        for name in DECISIONS.names
    ]
