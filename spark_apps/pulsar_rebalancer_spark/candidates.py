"""Which bundles may move at all (see `strategies.candidates`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import TRAFFIC
from pulsar_rebalancer.strategies.candidates import HEARTBEAT_NAMESPACE, SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def of_sources(bundles: DataFrame, firing: DataFrame, means: DataFrame) -> DataFrame:
    """Return bundles of the sources that give some away, with their mean traffic, in plus out.

    Args:
        bundles: the bundles table.
        firing: pairs that move something (`tables.FIRING`).
        means: the means table with this sample in it.

    Returns:
        cluster, broker, bundle, policy, msg_rate (msg/s), msg_throughput (bytes/s).
    """
    sources = firing.select("cluster", F.col("source").alias("broker"))
    named = bundles.select("cluster", "broker", "bundle", "policy")
    held = named.join(F.broadcast(sources), on=["cluster", "broker"], how="left_semi")
    return _with_means(held, means.drop("long_term_msg_rate"))


def of_cluster(bundles: DataFrame, means: DataFrame) -> DataFrame:
    """Return all bundles as a specification sees them: what their broker reports, and their mean traffic."""
    return _with_means(bundles, means)


def _with_means(bundles: DataFrame, means: DataFrame) -> DataFrame:
    """Return bundles with their means; one that was left out has none: it carries 0, and a reason to stay."""
    sums = {
        "msg_rate": F.col("msg_rate_in") + F.col("msg_rate_out"),
        "msg_throughput": F.col("msg_throughput_in") + F.col("msg_throughput_out"),
    }
    figures = means.withColumns(sums).drop("samples", *TRAFFIC)
    joined = bundles.join(figures, on=["cluster", "bundle"], how="left")
    return joined.withColumns({name: F.coalesce(name, F.lit(0.0)) for name in sums})


def with_reason(bundles: DataFrame, rules: Column, passed_over: DataFrame) -> DataFrame:
    """Return bundles with `reason`: why each must stay whatever its traffic, else null.

    Args:
        bundles: cluster, bundle and more; `forbids` where policies were asked (`policies.with_policy`).
        rules: of a row's cluster (`rules.of_cluster`).
        passed_over: bundles that validation left out or that moved within the grace period (`tables.PASSED_OVER`).
    """
    known = passed_over.withColumnRenamed("reason", "stays")
    joined = bundles.join(F.broadcast(known), on=["cluster", "bundle"], how="left")
    forbids = F.col("forbids") if "forbids" in bundles.columns else F.lit(None).cast("string")
    return joined.withColumn("reason", F.coalesce(_reason(rules), forbids)).drop("stays", "forbids")


def is_heartbeat() -> Column:
    """Return whether `bundle` belongs to a heartbeat or SLA-monitor namespace, which the strategy never moves."""
    return F.col("bundle").rlike(f"^{HEARTBEAT_NAMESPACE}/[^/]*$")


def namespace() -> Column:
    """Return `tenant/namespace` of `bundle`."""
    bundle = F.col("bundle")
    return F.left(bundle, F.length(bundle) - F.length(F.substring_index(bundle, "/", -1)) - 1)


def _reason(rules: Column) -> Column:
    return (
        F.when(is_heartbeat() | (namespace() == SYSTEM_NAMESPACE), Reason.SYSTEM_NAMESPACE)
        .when(F.array_contains(rules["excluded_namespaces"], namespace()), Reason.NAMESPACE_EXCLUDED)
        .otherwise(F.col("stays"))
    )
