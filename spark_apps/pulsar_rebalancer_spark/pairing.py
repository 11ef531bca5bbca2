"""Pairs: of each pool, the hottest broker with the coldest, the second hottest with the second coldest, and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY = ("cluster", "pool")


def broker_pairs(brokers: DataFrame) -> DataFrame:
    """Return the pairs of scored brokers, numbered by pool from the outermost inwards.

    `source` is the hotter broker and `destination` the colder, each with all its columns; names break ties. If the
    number of brokers is odd, the middle one is paired with itself. A pool are the brokers that one isolation policy
    reserves, or all others.
    """
    pool = Window.partitionBy(*_KEY)
    rank = F.row_number().over(pool.orderBy("score", "broker"))
    from_outside = F.least(rank, F.count("*").over(pool) + 1 - rank)
    number = F.row_number().over(Window.partitionBy("cluster").orderBy("pool", "place")) - 1
    broker = F.struct(*(name for name in brokers.columns if name not in _KEY))
    return (
        brokers.withColumns({"rank": rank, "place": from_outside})
        .groupBy(*_KEY, "place")
        .agg(F.max_by(broker, "rank").alias("source"), F.min_by(broker, "rank").alias("destination"))
        .select("cluster", number.alias("pair"), "pool", "source", "destination")
    )
