"""What strategies look at in a bundle: its mean traffic, and why it must stay (see `strategies.candidates`)."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.names import HEARTBEAT_NAMESPACE, SYSTEM_NAMESPACE, regex_of
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Column, DataFrame


def with_traffic(updated: DataFrame) -> DataFrame:
    """Return bundles with their mean traffic, in plus out: `msg_rate` (msg/s) and `msg_throughput` (bytes/s).

    One that was left out and is not known has no mean: it carries 0, and has a reason to stay.

    Args:
        updated: bundles as `means.update` gives them.
    """
    sums = {
        name: F.coalesce(F.col(f"mean_{name}_in") + F.col(f"mean_{name}_out"), F.lit(0.0))
        for name in ("msg_rate", "msg_throughput")
    }
    return updated.withColumns(sums)


def with_reason(
    bundles: DataFrame,
    excluded_namespaces: Mapping[str, Collection[str]],
    excluded_bundles: Mapping[str, Collection[str]],
) -> DataFrame:
    """Return bundles with `reason`: why each must stay whatever its traffic, else null.

    Args:
        bundles: cluster, bundle, `stays` (what the run knows against it, or null) and more.
        excluded_namespaces: `tenant/namespace` names by cluster.
        excluded_bundles: patterns of bundle names by cluster.
    """
    excluded = [
        (F.col("cluster") == cluster) & namespace().isin(*names)
        for cluster, names in excluded_namespaces.items()
        if names
    ]
    reason = F.when(is_heartbeat() | (namespace() == SYSTEM_NAMESPACE), Reason.SYSTEM_NAMESPACE)
    if excluded:
        reason = reason.when(reduce(or_, excluded), Reason.NAMESPACE_EXCLUDED)
    for cluster, patterns in excluded_bundles.items():
        if patterns:
            named = F.col("bundle").rlike(f"^(?:{'|'.join(map(regex_of, patterns))})$")
            reason = reason.when((F.col("cluster") == cluster) & named, Reason.BUNDLE_EXCLUDED)
    return bundles.withColumn("reason", F.coalesce(reason, "stays")).drop("stays")


def is_heartbeat() -> Column:
    """Return whether `bundle` belongs to a heartbeat or SLA-monitor namespace, which the strategy never moves."""
    bundle = F.col("bundle")
    # Few are: the expression is spared the others.
    may_be = bundle.startswith("pulsar/") | bundle.startswith("sla-monitor/")
    return may_be & bundle.rlike(f"^{HEARTBEAT_NAMESPACE}/[^/]*$")


def namespace() -> Column:
    """Return `tenant/namespace` of `bundle`."""
    bundle = F.col("bundle")
    return F.left(bundle, F.length(bundle) - F.length(F.substring_index(bundle, "/", -1)) - 1)
