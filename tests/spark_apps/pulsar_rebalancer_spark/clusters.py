"""Many clusters through the Spark transforms at once, and the same through the specification."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from tests.vectors.rows import Finished, finished, sample

from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BROKERS
from pulsar_rebalancer.state.model import HitCount
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies import rows
from pulsar_rebalancer.strategies.explain import complete, reasons_by_pair
from pulsar_rebalancer.strategies.hits import hits_after, start_anew
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.pipeline import RunContext
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.sample import COUNTED
from pulsar_rebalancer.strategies.shedders.avg_shedder import shed
from pulsar_rebalancer_spark import caps, hit_counting, pairing, policies, rules, scoring, selection, tables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.state.counting import Counting
    from pulsar_rebalancer.strategies.sample import ClusterSample

BUNDLES = pa.schema(
    [(name, pa.string()) for name in ("cluster", "broker", "bundle", "policy", "reason")]
    + [(name, pa.float64()) for name in ("msg_rate", "msg_throughput")]
)


@dataclass(frozen=True)
class Cluster:
    """What one run over one cluster starts from; without policies nothing is asked about destinations."""

    name: str
    settings: Settings
    brokers: list[dict[str, Any]]
    bundles: list[dict[str, Any]]
    hits: dict[str, HitCount] = field(default_factory=dict)
    counting: Counting = COUNTED
    force_threshold: float | None = None
    policies: Policies | None = None

    @property
    def context(self) -> RunContext:
        """The run as policies see it."""
        left_out = {row["broker"]: Reason(row["left_out"]) for row in self.brokers if row.get("left_out")}
        return RunContext(self.settings, self.counting, policies=self.policies or Policies(), left_out=left_out)

    def specified(self) -> Finished:
        """What the specification answers."""
        given = sample(
            self.brokers, self.bundles, self.settings, counting=self.counting, force_threshold=self.force_threshold
        )
        return specified(given, self.hits, self.policies)


def specified(given: ClusterSample, hits: Mapping[str, HitCount], policies: Policies | None) -> Finished:
    """What the specification of AvgShedder answers; without policies nothing is asked about destinations."""
    if policies is not None:
        filters = PolicyFilter(policies, given.brokers, given.bundles, given.settings)
        given = replace(given, forbids=filters.forbids)
    return finished(given, shed(given, ShedderState(hits=hits)), policies.groups if policies else {})


def shed_on_spark(
    spark: SparkSession, folder: Path, clusters: list[Cluster], *, partitions: int = 1
) -> dict[str, Finished]:
    """What the transforms answer, by cluster; hit counts are those of listed brokers."""
    listed = [{**row, "cluster": cluster.name} for cluster in clusters for row in cluster.brokers]
    brokers = _table(spark, folder / "brokers.parquet", listed, BROKERS).repartition(partitions)
    held = [{**row, "cluster": cluster.name} for cluster in clusters for row in cluster.bundles]
    bundles = _table(spark, folder / "bundles.parquet", held, BUNDLES).repartition(partitions)
    left_out = {(row["cluster"], row["broker"]): row["left_out"] for row in listed if row.get("left_out")}
    hits = {(cluster.name, name): hit for cluster in clusters for name, hit in cluster.hits.items()}
    scores = {(cluster.name, name): score for cluster in clusters for name, score in cluster.counting.samples.items()}
    known = [
        {
            "cluster": key[0],
            "broker": key[1],
            "left_out": left_out.get(key),
            "counted_score": scores.get(key),
            **hits.get(key, HitCount())._asdict(),
        }
        for key in left_out.keys() | hits.keys() | scores.keys()
    ]
    of_cluster = rules.of_cluster({c.name: rules.entry(c.settings, c.counting, c.force_threshold) for c in clusters})
    loads = scoring.loads(brokers, of_cluster, tables.literal(spark, known, tables.KNOWN))
    unnumbered = _by_cluster(hit_counting.decide(pairing.pairs(loads)).drop("source_traffic").collect())
    decision_rows = {cluster: pairing.numbered(found) for cluster, found in unnumbered.items()}
    firing = {
        cluster: [
            {name: row[name] for name in tables.names(tables.FIRING)} for row in found if row["measure"] is not None
        ]
        for cluster, found in decision_rows.items()
    }
    forbidden = [
        row
        for c in clusters
        if c.policies is not None and firing.get(c.name)
        for row in policies.forbidden(
            c.context,
            c.name,
            brokers.where(brokers["cluster"] == c.name),
            bundles.where(bundles["cluster"] == c.name),
            firing[c.name],
        )
    ]
    judged = policies.with_policy(bundles, tables.literal(spark, forbidden, tables.FORBIDDEN))
    judged = judged.withColumn("reason", F.coalesce("reason", "forbids"))
    all_firing = tables.literal(spark, [row for found in firing.values() for row in found], tables.FIRING)
    groups = {c.name: c.context.policies.groups for c in clusters}
    move_rows = _by_cluster(caps.apply(selection.select(all_firing, judged), of_cluster, groups).collect())
    return {
        cluster.name: _answer(cluster, decision_rows.get(cluster.name, []), move_rows.get(cluster.name, []))
        for cluster in clusters
    }


def _table(spark: SparkSession, path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    file = StoragePath(str(path))
    file.write_table(pa.Table.from_pylist(rows, schema=schema))
    return tables.read(spark, [file], schema)


def _by_cluster(rows: list[Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["cluster"], []).append(row.asDict())
    return found


def _answer(cluster: Cluster, decisions: list[dict[str, Any]], moves: list[dict[str, Any]]) -> Finished:
    decided = [rows.decision(row) for row in decisions]
    ordered = sorted(decided, key=lambda each: (each.pair is None, each.pair or 0, each.source))
    walked = sorted((rows.move(row) for row in moves), key=lambda move: (move.pair, move.rank))
    taken = [move for move in walked if move.taken]
    completed = start_anew(complete(ordered, taken, reasons_by_pair(walked)), cluster.counting)
    return Finished(completed, walked, hits_after(completed))
