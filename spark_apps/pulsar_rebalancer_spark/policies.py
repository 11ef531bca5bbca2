"""Why policies forbid bundles to go to their pair's colder broker (see `strategies.placement.policy_filter`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.strategies.bundles import COLUMNS, Bundles
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer_spark.candidates import namespace

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from pulsar_rebalancer.strategies.pipeline import RunContext
    from pulsar_rebalancer.strategies.sample import BrokerSample

FREE = ""
"""Stands for the namespaces under no policy: for all of them the same holds."""

_ANY_RANGE = "/0x00000000_0xffffffff"


def forbidden(
    context: RunContext,
    cluster: str,
    brokers: Sequence[BrokerSample],
    bundles: DataFrame,
    firing: Iterable[Mapping[str, Any]],
) -> list[dict[str, str]]:
    """Return what must not leave the firing sources, and why (`tables.FORBIDDEN`).

    The rules are asked on the driver, once per source and namespace under a policy, never per bundle.

    Args:
        context: what the run starts from.
        cluster: its cluster.
        brokers: all that the cluster lists.
        bundles: its bundles table.
        firing: pairs that move something (`tables.FIRING`).
    """
    destinations = {pair["source"]: pair["destination"] for pair in firing}
    served = _served(context.policies, bundles, destinations)
    # Whether a broker has one bundle of a namespace or more is all that the rules ask.
    some = [(broker, name) for broker, name, count in served for _ in range(min(count, 2))]
    held = [{"broker": broker, "bundle": name + _ANY_RANGE} for broker, name in some]
    bundles_held = Bundles(pa.Table.from_pylist(held, schema=COLUMNS))
    policies = PolicyFilter(context.policies, brokers, bundles_held, context.settings)
    asked = [(source, FREE) for source in destinations]
    asked += [(broker, name) for broker, name, _ in served if broker in destinations]
    found = []
    for source, name in sorted(asked):
        reason = policies.forbids(name + _ANY_RANGE, source, destinations[source])
        if reason is not None:
            found.append({"cluster": cluster, "broker": source, "namespace": name, "reason": reason})
    return found


def _served(policies: Policies, bundles: DataFrame, sources: Container[str]) -> list[tuple[str, str, int]]:
    """Broker, namespace under a policy, and how many bundles: groups on all brokers, others on the sources."""
    if policies == Policies():
        return []
    named = bundles.where(F.col("policy").isNotNull()).select("broker", namespace().alias("namespace"))
    # Looked through here: each name that Spark is to compare with would be several calls into Java.
    rows = map(tuple, named.groupBy("broker", "namespace").count().collect())
    return [row for row in rows if row[0] in sources or row[1] in policies.groups]


def with_policy(bundles: DataFrame, forbidden: DataFrame) -> DataFrame:
    """Return bundles with `forbids`: why policies keep each where it is, else null.

    Args:
        bundles: cluster, broker, bundle, policy and more.
        forbidden: `tables.FORBIDDEN`.
    """
    key = F.when(F.col("policy").isNull(), FREE).otherwise(namespace())
    known = forbidden.withColumnRenamed("reason", "forbids")
    keyed = bundles.withColumn("namespace", key)
    return keyed.join(F.broadcast(known), on=["cluster", "broker", "namespace"], how="left").drop("namespace")
