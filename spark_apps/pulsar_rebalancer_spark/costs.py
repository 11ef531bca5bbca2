"""Rates and costs of bundles for `strategies.learning`, computed in Spark and stored in the means table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from pulsar_rebalancer.run.tables import RATES
from pulsar_rebalancer.strategies import learning
from pulsar_rebalancer.strategies.bottleneck import UNIT
from pulsar_rebalancer.strategies.learning import START_COST, START_VARIANCE
from pulsar_rebalancer_spark.spark_tables import literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from pulsar_rebalancer.run.tables import Measure
    from pulsar_rebalancer.strategies.learning import Correction


_COLUMNS: dict[str, pa.DataType] = {"broker": pa.string(), "gain": pa.float64(), "shrink": pa.float64()}


def with_corrections(bundles: DataFrame, corrections: Mapping[str, Correction]) -> DataFrame:
    """Return the bundles with the columns `gain` and `shrink` from their brokers' corrections; 0 if there is none."""
    rows = [{"broker": broker, **correction._asdict()} for broker, correction in corrections.items()]
    of_broker = F.broadcast(literal(bundles.sparkSession, rows, pa.schema(_COLUMNS)))
    return bundles.join(of_broker, on="broker", how="left").fillna(0.0, ["gain", "shrink"])


def averages(now: Mapping[str, Column], measure: Measure, steps: Sequence[float], *, counts: bool) -> dict[str, Column]:
    """Return columns with the bundles' average rates and costs after this sample.

    Args:
        now: traffic columns of the sample. For a bundle that validation excluded, the column `quick_rate_before` is
            used instead.
        measure: the measure whose costs are learned.
        steps: smoothing factors of the averages, 0 to 1, in the same order as `RATES`.
        counts: True to correct the costs with the columns that `with_corrections` adds.
    """
    present = (now[f"{measure}_in"] + now[f"{measure}_out"]) / UNIT[measure]
    rate = F.when(F.col("refused"), F.col("quick_rate_before")).otherwise(present)
    new = {name: F.coalesce(f"{name}_before", rate) for name in RATES}
    updated = {
        name: F.when(F.col("refused"), F.col(f"{name}_before")).otherwise(before + step * (rate - before))
        for (name, before), step in zip(new.items(), steps, strict=True)
    }
    cost, variance = (
        F.coalesce("cost_before", F.lit(START_COST)),
        F.coalesce("cost_variance_before", F.lit(START_VARIANCE)),
    )
    if counts:
        change = F.when(F.col("refused"), 0.0).otherwise(rate - new["quarter_rate"])
        cost, variance = learning.corrected(cost, variance, change, F.col("gain"), F.col("shrink"), _bounded)
    return updated | {"cost": cost, "cost_variance": variance}


def _bounded(column: Column, least: float, largest: float) -> Column:
    return F.least(F.greatest(column, F.lit(least)), F.lit(largest))
