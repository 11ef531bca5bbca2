"""What `strategies.learning` keeps about bundles: computed in Spark, and stored in the table of the means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.run.tables import RATES
from pulsar_rebalancer.strategies import learning
from pulsar_rebalancer.strategies.bottleneck import UNIT
from pulsar_rebalancer.strategies.learning import START_COST, START_VARIANCE, Sums
from pulsar_rebalancer_spark.spark_tables import literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from pulsar_rebalancer.run.tables import Measure
    from pulsar_rebalancer.strategies.learning import Correction

_LARGEST = 1e9  # limit of each summed figure, so that a sum of a million figures fits into 64 bits
_FRACTION = 1000


def averages(now: Mapping[str, Column], measure: Measure, steps: Sequence[float]) -> dict[str, Column]:
    """Return the averages of the bundles' rates after this sample, and the bundles' costs before it.

    Args:
        now: columns of the sample. For a refused bundle, its quick average is used instead.
        measure: the measure whose costs are learned.
        steps: steps of the averages.
    """
    present = (now[f"{measure}_in"] + now[f"{measure}_out"]) / UNIT[measure]
    rate = F.when(F.col("refused"), F.col("quick_rate_before").cast("double")).otherwise(present)
    new = {name: _or(name, rate) for name in RATES}
    updated = {
        name: F.when(F.col("refused"), F.col(f"{name}_before")).otherwise(before + step * (rate - before))
        for (name, before), step in zip(new.items(), steps, strict=True)
    }
    return updated | {
        "cost": _or("cost", F.lit(START_COST)),
        "cost_variance": _or("cost_variance", F.lit(START_VARIANCE)),
        "rate": rate,
        "change": F.when(F.col("refused"), 0.0).otherwise(rate - new["quarter_rate"]),
    }


def sums(updated: DataFrame) -> dict[str, Sums]:
    """Return each broker's sums over its bundles, from which costs are learned.

    Whole numbers are summed, so that the result, and with it the plan's hash, does not depend on the order.

    Args:
        updated: the result of `means.update`.
    """
    cost, change = F.col("cost"), F.col("change")
    figures = {
        "rate": cost * F.col("rate"),
        "change": cost * change,
        "doubt": F.col("cost_variance") * change * change / _FRACTION,
        "now": cost * F.col("quick_rate"),
        "later": cost * F.col("hour_rate"),
    }
    added = {
        name: F.sum(F.round(_bounded(figure, -_LARGEST, _LARGEST) * _FRACTION).cast("long")).alias(name)
        for name, figure in figures.items()
    }
    rows = updated.where(F.col("keeps") & F.col("samples").isNotNull()).groupBy("broker").agg(*added.values()).collect()
    of_brokers = {row["broker"]: Sums(*(row[name] / _FRACTION for name in added)) for row in rows}
    return {broker: of._replace(doubt=of.doubt * _FRACTION) for broker, of in of_brokers.items()}


def corrected(updated: DataFrame, corrections: Mapping[str, Correction]) -> DataFrame:
    """Return the table with corrected costs.

    Args:
        updated: the result of `means.update`.
        corrections: corrections by broker.
    """
    rows = [{"broker": broker, **correction._asdict()} for broker, correction in corrections.items()]
    of_broker = F.broadcast(literal(updated.sparkSession, rows, "broker string, gain double, shrink double"))
    joined = updated.join(of_broker, on="broker", how="left").fillna(0.0, ["gain", "shrink"])
    of_bundle = F.col("cost"), F.col("cost_variance"), F.col("change"), F.col("gain"), F.col("shrink")
    cost, variance = learning.corrected(*of_bundle, _bounded)
    return joined.withColumns({"cost": cost, "cost_variance": variance})


def _or(name: str, start: Column) -> Column:
    return F.coalesce(F.col(f"{name}_before").cast("double"), start)


def _bounded(column: Column, least: float, largest: float) -> Column:
    return F.least(F.greatest(column, F.lit(least)), F.lit(largest))
