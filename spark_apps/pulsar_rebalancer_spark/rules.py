"""How each cluster is to be judged: settings and counting as one struct column, so that clusters mix freely."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.state.counting import Counting

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
_COUNTING = {
    "counts": "boolean",
    "judges": "boolean",
    "counting": "string",
    "clear": "boolean",
    "force_threshold": "double",
}


def entry(settings: Settings, counting: Counting, force_threshold: float | None = None) -> dict[str, Any]:
    """Return the rules of one cluster.

    Args:
        settings: effective settings.
        counting: how the sample counts.
        force_threshold: gap in points from which a forced run acts; None for any other run.
    """
    return {
        **{name: getattr(settings, name) for name in _SETTINGS},
        "counts": counting.counts,
        "judges": counting.judges,
        "counting": counting.reason,
        "clear": counting.clear,
        "force_threshold": force_threshold,
    }


def of_cluster(entries: Mapping[str, Mapping[str, Any]]) -> Column:
    """Return the rules of a row's cluster, null for a cluster without an entry.

    Args:
        entries: what `entry` gave, by cluster. They become a literal of the query: no join.
    """
    fields = ", ".join(f"{name}: {kind}" for name, kind in (_SETTINGS | _COUNTING).items())
    by_cluster = F.from_json(F.lit(json.dumps(entries)), f"map<string, struct<{fields}>>")
    return F.try_element_at(by_cluster, F.col("cluster"))
