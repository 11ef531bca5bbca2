"""Hits: how many samples in a row a pair's gap has reached a threshold, and the pairs that fire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.strategies.sample import JudgedPair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENDS, _LEVELS = ("source", "destination"), ("high", "low")
_COUNTS = [(end, level) for end in _ENDS for level in _LEVELS]


def remembered(brokers: DataFrame, known: DataFrame) -> DataFrame:
    """Return the brokers with their hits before this sample: `high`, `low`.

    Args:
        known: what the state has about brokers (`rebalance.KNOWN`), with `counted_score`, the score that has recently
            caused a hit.
    """
    return brokers.join(known, ["cluster", "broker"], "left").fillna(0, _LEVELS)


def compared(pairs: DataFrame, rules: DataFrame) -> DataFrame:
    """Return the pairs with their rules (`rebalance.RULES`), their gaps, and what these count.

    `reaches_low`, `reaches_high`: whether the gap is a hit at that threshold; a hit of a hot source is a high one.
    `repeated`: whether the same figures have already caused a hit. `step`: hits to add; the middle broker is both ends
    of its pair.
    """
    reaches_high = (F.col("gap") >= F.col("high_threshold")) | (F.col("source.score") >= F.col("hot_threshold"))
    same = [F.col(f"{end}.score") == F.col(f"{end}.counted_score") for end in _ENDS]
    repeated = F.coalesce(*same, F.lit(False)) & F.coalesce(*reversed(same), F.lit(False))
    return (
        pairs.join(rules, "cluster")
        .withColumn("gap", F.col("source.score") - F.col("destination.score"))
        .withColumn("middle", F.col("source.broker") == F.col("destination.broker"))
        .withColumn("repeated", repeated)
        .withColumn("reaches_low", F.col("gap") >= F.col("low_threshold"))
        .withColumn("reaches_high", F.col("reaches_low") & reaches_high)
        .withColumn("step", F.when(F.col("repeated"), 0).when(F.col("middle"), 2).otherwise(1))
    )


def counted(pairs: DataFrame) -> DataFrame:
    """Return the compared pairs with both brokers' hits, before and after this sample.

    A gap below a threshold clears its hits. A run whose sample does not count keeps all hits, but `high_hits` and
    `low_hits`, the larger counts of the two brokers, may include the sample.
    """
    before = {count: F.col(".".join(count)) for count in _COUNTS}
    hit = {(of, level): F.when(F.col(f"reaches_{level}"), before[of, level] + F.col("step")) for of, level in _COUNTS}
    after = {count: F.when(F.col("judges"), F.coalesce(hit[count], F.lit(0))).otherwise(before[count]) for count in hit}
    kept = {count: F.when(F.col("counts"), after[count]).otherwise(before[count]) for count in hit}
    return pairs.withColumns(
        {f"{of}_{level}_before": before[of, level] for of, level in _COUNTS}
        | {f"{of}_{level}": kept[of, level] for of, level in _COUNTS}
        | {f"{level}_hits": F.greatest(*(after[of, level] for of in _ENDS)) for level in _LEVELS}
    )


def fired(pairs: DataFrame) -> DataFrame:
    """Return the counted pairs with whether they fire, as `JudgedPair` by cluster.

    A pair fires when either broker has enough hits; in a forced run, when its gap reaches that run's threshold.
    """
    enough = (F.col("high_hits") >= F.col("hit_count_high")) | (F.col("low_hits") >= F.col("hit_count_low"))
    ready = F.col("judges") & ~F.col("repeated") & F.col("reaches_low") & enough
    forced = (F.col("gap") >= F.col("force_threshold")) & ~F.col("middle")
    return (
        pairs.withColumn("fired", F.when(F.col("force_threshold").isNull(), ready).otherwise(forced))
        .withColumns({f"{end}_score": F.col(f"{end}.score") for end in _ENDS})
        .withColumns({end: F.col(f"{end}.broker") for end in _ENDS})
        .select("cluster", *JudgedPair._fields)
    )
