"""Which bundles may move at all (see `strategies.candidates`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.strategies.candidates import HEARTBEAT_NAMESPACE, SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def of_sources(bundles: DataFrame, firing: DataFrame, means: DataFrame) -> DataFrame:
    """Bundles of the sources that give some away, with their mean traffic, in plus out.

    Args:
        bundles: the bundles table.
        firing: pairs that move something (`tables.FIRING`).
        means: the means table with this sample in it.

    Returns:
        cluster, broker, bundle, policy, msg_rate (msg/s), msg_throughput (bytes/s).
    """
    sums = means.select(
        "cluster",
        "bundle",
        (F.col("msg_rate_in") + F.col("msg_rate_out")).alias("msg_rate"),
        (F.col("msg_throughput_in") + F.col("msg_throughput_out")).alias("msg_throughput"),
    )
    sources = firing.select("cluster", F.col("source").alias("broker"))
    return (
        bundles.select("cluster", "broker", "bundle", "policy")
        .join(F.broadcast(sources), on=["cluster", "broker"], how="left_semi")
        .join(sums, on=["cluster", "bundle"], how="inner")
    )


def with_reason(bundles: DataFrame, rules: Column, passed_over: DataFrame) -> DataFrame:
    """Bundles with `reason`: why each must stay whatever its traffic, else null.

    Args:
        bundles: cluster, bundle, policy and more.
        rules: of a row's cluster (`rules.of_cluster`).
        passed_over: bundles that validation left out or that moved within the grace period (`tables.PASSED_OVER`).
    """
    known = passed_over.withColumnRenamed("reason", "stays")
    joined = bundles.join(F.broadcast(known), on=["cluster", "bundle"], how="left")
    return joined.withColumn("reason", _reason(rules)).drop("stays", "policy")


def is_heartbeat() -> Column:
    """Whether `bundle` belongs to a heartbeat or SLA-monitor namespace, which the strategy itself never moves."""
    return F.col("bundle").rlike(f"^{HEARTBEAT_NAMESPACE}/[^/]*$")


def namespace() -> Column:
    """`tenant/namespace` of `bundle`."""
    bundle = F.col("bundle")
    return F.left(bundle, F.length(bundle) - F.length(F.substring_index(bundle, "/", -1)) - 1)


def _reason(rules: Column) -> Column:
    return (
        F.when(is_heartbeat() | (namespace() == SYSTEM_NAMESPACE), "system_namespace")
        .when(F.array_contains(rules["excluded_namespaces"], namespace()), "namespace_excluded")
        .when(F.col("policy").isNotNull(), "namespace_policy")
        .otherwise(F.col("stays"))
    )
