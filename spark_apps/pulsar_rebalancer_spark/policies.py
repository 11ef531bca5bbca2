"""Why policies forbid bundles to go to their pair's colder broker (see `strategies.placement.policy_filter`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.storage.path import damage_of, failures_of
from pulsar_rebalancer.strategies.bundles import COLUMNS, Bundles
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer_spark.candidates import namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from pulsar_rebalancer.strategies.pipeline import RunContext
    from pulsar_rebalancer.strategies.sample import BrokerSample
    from pulsar_rebalancer_spark.run_input import RunInput

FREE = ""
"""Stands for the namespaces under no policy: for all of them the same holds."""

_ANY_RANGE = "/0x00000000_0xffffffff"


def forbidden(
    context: RunContext,
    cluster: str,
    brokers: Sequence[BrokerSample],
    served: Mapping[tuple[str, str], int],
    firing: Iterable[Mapping[str, Any]],
) -> list[dict[str, str]]:
    """Return what must not leave the firing sources, and why (`tables.FORBIDDEN`).

    The rules are asked on the driver, once per source and namespace under a policy, never per bundle.

    Args:
        context: what the run starts from.
        cluster: its cluster.
        brokers: all that the cluster lists.
        served: how many bundles of a namespace under a policy a broker reports, by broker and namespace.
        firing: pairs that move something (`tables.FIRING`).
    """
    destinations = {pair["source"]: pair["destination"] for pair in firing}
    # Groups are counted on all brokers, other policies on the sources.
    looked_at = [each for each in served if each[0] in destinations or each[1] in context.policies.groups]
    # Whether a broker has one bundle of a namespace or more is all that the rules ask.
    some = [each for each in looked_at for _ in range(min(served[each], 2))]
    held = [{"broker": broker, "bundle": name + _ANY_RANGE} for broker, name in some]
    bundles_held = Bundles(pa.Table.from_pylist(held, schema=COLUMNS))
    policies = PolicyFilter(context.policies, brokers, bundles_held, context.settings)
    asked = [(source, FREE) for source in destinations]
    asked += [each for each in looked_at if each[0] in destinations]
    found = []
    for source, name in sorted(asked):
        reason = policies.forbids(name + _ANY_RANGE, source, destinations[source])
        if reason is not None:
            found.append({"cluster": cluster, "broker": source, "namespace": name, "reason": reason})
    return found


def served(run: RunInput) -> Counter[tuple[str, str]]:
    """Return how many bundles of a namespace under a policy a broker reports, by broker and namespace.

    Raises:
        SnapshotError: the bundles table cannot be read.
    """
    found: Counter[tuple[str, str]] = Counter()
    if run.policies == Policies():
        return found
    file = run.folder / "input" / "bundles.parquet"
    file_system, path = file.open()
    with failures_of(file.uri, "read"), damage_of(file.uri), pq.ParquetFile(path, filesystem=file_system) as held:
        # One part after the other: the driver never holds all bundles.
        for batch in held.iter_batches(columns=["broker", "bundle", "policy"]):
            under = batch.filter(pc.is_valid(batch["policy"]))
            names = pc.replace_substring_regex(under["bundle"], "/[^/]*$", "")
            named = pa.table({"broker": under["broker"], "namespace": names})
            counted = named.group_by(["broker", "namespace"]).aggregate([([], "count_all")])
            found.update({(row["broker"], row["namespace"]): row["count_all"] for row in counted.to_pylist()})
    return found


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
