"""Caps on a plan and its waves (see `strategies.caps`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import MAX_WAVES
from pulsar_rebalancer.run.tables import MOVES
from pulsar_rebalancer_spark.candidates import namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame


def apply(moves: DataFrame, rules: Column, groups: Mapping[str, Mapping[str, str]]) -> DataFrame:
    """Return the moves after the caps, each taken one with its wave.

    Args:
        moves: as `selection.select` gives them.
        rules: of a row's cluster (`rules.of_cluster`).
        groups: anti-affinity group by namespace, by cluster.

    Returns:
        The moves table.
    """
    of_pair = Window.partitionBy("cluster", "pair").orderBy("rank")
    of_run = Window.partitionBy("cluster").orderBy("pair", "rank")
    of_range = Window.partitionBy("cluster", "range").orderBy("pair", "rank")
    capped = _one_of_each_group(moves, groups) if any(groups.values()) else moves
    capped = _cap(capped, _count(of_pair) > rules["max_bundles_per_broker"], Reason.CAP_BROKER)
    capped = _cap(capped, _count(of_run) > rules["max_bundles_per_run"], Reason.CAP_RUN)
    capped = capped.withColumn("range", F.substring_index("bundle", "/", -1))
    capped = capped.withColumn("wave", _count(of_range) - 1)
    capped = _cap(capped, F.col("wave") >= MAX_WAVES, Reason.CAP_WAVES)
    return capped.withColumn("wave", F.when(F.col("taken"), F.col("wave"))).select(*MOVES.names)


def _one_of_each_group(moves: DataFrame, groups: Mapping[str, Mapping[str, str]]) -> DataFrame:
    known = F.from_json(F.lit(json.dumps(groups)), "map<string, map<string, string>>")
    group = F.try_element_at(F.try_element_at(known, F.col("cluster")), namespace())
    of_group = Window.partitionBy("cluster", "group").orderBy("pair", "rank")
    grouped = moves.withColumn("group", group)
    return _cap(grouped, F.col("group").isNotNull() & (_count(of_group) > 1), Reason.ANTI_AFFINITY).drop("group")


def _count(window: object) -> Column:
    """Return how many bundles are taken up to this one."""
    return F.sum(F.col("taken").cast("bigint")).over(window)  # type: ignore[arg-type]


def _cap(moves: DataFrame, over: Column, reason: str) -> DataFrame:
    bites = F.col("taken") & F.coalesce(over, F.lit(False))
    return moves.withColumn("bites", bites).withColumns(
        {
            "reason": F.when(F.col("bites"), reason).otherwise(F.col("reason")),
            "taken": F.col("taken") & ~F.col("bites"),
        }
    )
