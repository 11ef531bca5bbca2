"""Why policies forbid bundles to go to their pair's colder broker (see `strategies.policy_filter`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from pulsar_rebalancer.policies import Policies
from pulsar_rebalancer.strategies.policy_filter import PolicyFilter
from pulsar_rebalancer_spark.candidates import namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from pulsar_rebalancer_spark.run_input import RunInput

FREE = ""
"""Stands for the namespaces under no policy: for all of them the same holds."""

_ANY_RANGE = "/0x00000000_0xffffffff"


def forbidden(
    run: RunInput, brokers: DataFrame, bundles: DataFrame, firing: Iterable[Mapping[str, Any]]
) -> list[dict[str, str]]:
    """What must not leave the firing sources, and why (`tables.FORBIDDEN`).

    The rules are asked on the driver, once per source and namespace under a policy, never per bundle.

    Args:
        run: the run.
        brokers: the brokers table of its cluster.
        bundles: the bundles table.
        firing: pairs that move something (`tables.FIRING`).
    """
    if run.policies == Policies():
        return []
    names = brokers.select("broker", "version", "topics").collect()
    destinations = {pair["source"]: pair["destination"] for pair in firing}
    # Groups are counted over all brokers, other policies asked for the firing sources alone.
    wanted = (F.col("policy") == "anti_affinity") | F.col("broker").isin(*destinations)
    served = (
        bundles.where(F.col("policy").isNotNull() & wanted).select("broker", namespace().alias("namespace")).distinct()
    )
    rows = [row.asDict() for row in served.collect()]
    policies = PolicyFilter(
        run.policies,
        [{**row.asDict(), "left_out": run.left_out.get(row["broker"])} for row in names],
        [{"broker": row["broker"], "bundle": row["namespace"] + _ANY_RANGE} for row in rows],
        run.settings,
    )
    asked = [(source, FREE) for source in destinations]
    asked += [(row["broker"], row["namespace"]) for row in rows if row["broker"] in destinations]
    found = []
    for source, name in sorted(asked):
        reason = policies.forbids(name + _ANY_RANGE, source, destinations[source])
        if reason is not None:
            found.append({"cluster": run.cluster, "broker": source, "namespace": name, "reason": reason})
    return found


def with_policy(bundles: DataFrame, forbidden: DataFrame) -> DataFrame:
    """Bundles with `forbids`: why policies keep each where it is, else null.

    Args:
        bundles: cluster, broker, bundle, policy and more.
        forbidden: `tables.FORBIDDEN`.
    """
    key = F.when(F.col("policy").isNull(), FREE).otherwise(namespace())
    known = forbidden.withColumnRenamed("reason", "forbids")
    keyed = bundles.withColumn("namespace", key)
    return keyed.join(F.broadcast(known), on=["cluster", "broker", "namespace"], how="left").drop("namespace")
