"""Hits: how many samples in a row a pair's gap has reached a threshold, and the pairs that fire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.strategies.sample import JudgedPair

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ENDS, _LEVELS = ("source", "destination"), ("high", "low")
_COUNTERS = [(end, level) for end in _ENDS for level in _LEVELS]


def with_stored_hits(brokers: DataFrame, stored_hits: DataFrame) -> DataFrame:
    """Return the brokers with their hits before this sample: `high`, `low`.

    Args:
        stored_hits: what the state has about brokers (`rebalance.KNOWN`), with `counted_score`, the score that has
            recently caused a hit.
    """
    return brokers.join(stored_hits, ["cluster", "broker"], "left").fillna(0, _LEVELS)


def with_gaps(pairs: DataFrame) -> DataFrame:
    """Return the pairs with their gaps, and what these count.

    `reaches_low`, `reaches_high`: whether the gap is a hit at that threshold; a hit of a hot source is a high one.
    `repeated`: whether the same values have already caused a hit. `step`: hits to add; the middle broker is both ends
    of its pair.
    """
    gap, middle = (
        F.col("source.score") - F.col("destination.score"),
        F.col("source.broker") == F.col("destination.broker"),
    )
    low, hot = gap >= _rule("low_threshold"), F.col("source.score") >= _rule("hot_threshold")
    same = [F.col(f"{end}.score") == F.col(f"{end}.counted_score") for end in _ENDS]
    repeated = F.coalesce(*same, F.lit(False)) & F.coalesce(*reversed(same), F.lit(False))
    return pairs.withColumns(
        {
            "gap": gap,
            "middle": middle,
            "repeated": repeated,
            "reaches_low": low,
            "reaches_high": low & ((gap >= _rule("high_threshold")) | hot),
            "step": F.when(repeated, 0).when(middle, 2).otherwise(1),
        }
    )


def with_hit_counts(pairs: DataFrame) -> DataFrame:
    """Return the compared pairs with both brokers' hits, before and after this sample.

    A gap below a threshold clears its hits. A run whose sample does not count keeps all hits, but `high_hits` and
    `low_hits`, the larger counts of the two brokers, may include the sample.
    """
    before = {count: F.col(".".join(count)) for count in _COUNTERS}
    hit = {(of, level): F.when(F.col(f"reaches_{level}"), before[of, level] + F.col("step")) for of, level in _COUNTERS}
    after = {count: F.when(_rule("judges"), F.coalesce(hit[count], F.lit(0))).otherwise(before[count]) for count in hit}
    kept = {count: F.when(_rule("counts"), after[count]).otherwise(before[count]) for count in hit}
    return pairs.withColumns(
        {f"{of}_{level}_before": before[of, level] for of, level in _COUNTERS}
        | {f"{of}_{level}": kept[of, level] for of, level in _COUNTERS}
        | {f"{level}_hits": F.greatest(*(after[of, level] for of in _ENDS)) for level in _LEVELS}
    )


def with_fired_flag(pairs: DataFrame) -> DataFrame:
    """Return the counted pairs with whether they fire, as `JudgedPair` by cluster.

    A pair fires when either broker has enough hits; in a forced run, when its gap reaches that run's threshold.
    """
    enough = [F.col(f"{level}_hits") >= _rule(f"hit_count_{level}") for level in _LEVELS]
    ready = _rule("judges") & ~F.col("repeated") & F.col("reaches_low") & (enough[0] | enough[1])
    forced = (F.col("gap") >= _rule("force_threshold")) & ~F.col("middle")
    fires = F.when(_rule("force_threshold").isNull(), ready).otherwise(forced)
    columns = {"fired": fires} | {end: F.col(f"{end}.broker") for end in _ENDS}
    columns |= {f"{end}_score": F.col(f"{end}.score") for end in _ENDS}
    return pairs.select("cluster", *(columns.get(name, F.col(name)).alias(name) for name in JudgedPair._fields))


def _rule(name: str) -> Column:
    """Return a rule of a pair's cluster, which comes with both of its brokers."""
    return F.col(f"source.{name}")
