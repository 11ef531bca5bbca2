"""Which bundles may move at all (see `strategies.candidates`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pulsar_rebalancer.strategies.candidates import HEARTBEAT_NAMESPACE, SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def with_traffic(bundles: DataFrame, means: DataFrame) -> DataFrame:
    """Bundles with their mean traffic, in plus out.

    Args:
        bundles: the bundles table.
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
    kept = bundles.select("cluster", "broker", "bundle", "policy")
    return kept.join(sums, on=["cluster", "bundle"], how="inner")


def with_reason(bundles: DataFrame, rules: DataFrame, passed_over: DataFrame) -> DataFrame:
    """Bundles with `reason`: why each must stay whatever its traffic, else null.

    Args:
        bundles: cluster, bundle, policy and more.
        rules: of every cluster.
        passed_over: bundles that validation left out or that moved within the grace period.
    """
    by_name = passed_over.select("cluster", F.col("subject").alias("bundle"), F.col("reason").alias("stays"))
    excluded = rules.select("cluster", F.col("rules.excluded_namespaces").alias("excluded"))
    return (
        bundles.join(F.broadcast(excluded), on="cluster", how="inner")
        .join(F.broadcast(by_name), on=["cluster", "bundle"], how="left")
        .withColumn("reason", _reason())
        .drop("stays", "excluded", "policy")
    )


def is_heartbeat() -> Column:
    """Whether `bundle` belongs to a heartbeat or SLA-monitor namespace, which the strategy itself never moves."""
    return namespace().rlike(f"^(?:{HEARTBEAT_NAMESPACE})$")


def namespace() -> Column:
    """`tenant/namespace` of `bundle`."""
    return F.regexp_extract("bundle", "^(.*)/[^/]*$", 1)


def _reason() -> Column:
    return (
        F.when(is_heartbeat() | (namespace() == SYSTEM_NAMESPACE), "system_namespace")
        .when(F.array_contains("excluded", namespace()), "namespace_excluded")
        .when(F.col("policy").isNotNull(), "namespace_policy")
        .otherwise(F.col("stays"))
    )
