"""How each cluster is to be judged: settings and counting as one struct column, so that clusters mix freely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from pulsar_rebalancer_spark.tables import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.state import Counting

_SETTINGS = {
    "low_threshold": "double",
    "high_threshold": "double",
    "hit_count_low": "bigint",
    "hit_count_high": "bigint",
    "min_unload_message": "double",
    "min_unload_throughput": "double",
    "max_unload_percentage": "double",
    "cpu_weight": "double",
    "direct_memory_weight": "double",
    "bandwidth_in_weight": "double",
    "bandwidth_out_weight": "double",
    "excluded_namespaces": "array<string>",
    "max_bundles_per_run": "bigint",
    "max_bundles_per_broker": "bigint",
}
_COUNTING = {"counts": "boolean", "counting": "string", "clear": "boolean", "force_threshold": "double"}
_COLUMNS = {"cluster": "string", **_SETTINGS, **_COUNTING}


def row(cluster: str, settings: Settings, counting: Counting, force_threshold: float | None) -> dict[str, Any]:
    """The rules of one cluster.

    Args:
        cluster: the key of every table.
        settings: effective settings.
        counting: how the sample counts.
        force_threshold: gap in points from which a forced run acts; None for any other run.
    """
    return {
        "cluster": cluster,
        **{name: getattr(settings, name) for name in _SETTINGS},
        "counts": counting.counts,
        "counting": counting.reason,
        "clear": counting.clear,
        "force_threshold": force_threshold,
    }


def table(spark: SparkSession, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Columns `cluster` and `rules`, a row per cluster."""
    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    names = [name for name in _COLUMNS if name != "cluster"]
    return literal(spark, rows, columns).select("cluster", F.struct(*names).alias("rules"))
