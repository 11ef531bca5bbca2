"""Many clusters through the Spark transforms at once, and the same through the specification."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from pulsar_rebalancer.policies import Policies
from pulsar_rebalancer.snapshot import BROKERS
from pulsar_rebalancer.state import HitCount
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer.strategies.avg_shedder import COUNTED, AvgShed, shed
from pulsar_rebalancer.strategies.judging import Case
from pulsar_rebalancer.strategies.outcome import complete, hits_after, reasons_by_pair
from pulsar_rebalancer.strategies.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.view import View
from pulsar_rebalancer_spark import caps, hit_counting, pairing, policies, rules, scoring, selection, tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.state import Counting

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
    def case(self) -> Case:
        """The run as policies see it."""
        left_out = {row["broker"]: row["left_out"] for row in self.brokers if row.get("left_out")}
        return Case(self.settings, self.counting, policies=self.policies or Policies(), left_out=left_out)

    def specified(self) -> AvgShed:
        """What the specification answers."""
        brokers = self.case.with_left_out(self.brokers)
        sample = View(self.name, brokers, self.bundles, self.settings)
        if self.policies is not None:
            filters = PolicyFilter(self.policies, brokers, self.bundles, self.settings)
            sample = replace(sample, forbids=filters.forbids)
        return shed(
            sample,
            self.hits,
            counting=self.counting,
            force_threshold=self.force_threshold,
            groups=self.case.policies.groups,
        )


def shed_on_spark(
    spark: SparkSession, folder: Path, clusters: list[Cluster], *, partitions: int = 1
) -> dict[str, AvgShed]:
    """What the transforms answer, by cluster; hit counts are those of listed brokers."""
    rows = [{**row, "cluster": cluster.name} for cluster in clusters for row in cluster.brokers]
    brokers = _table(spark, folder / "brokers.parquet", rows, BROKERS).repartition(partitions)
    held = [{**row, "cluster": cluster.name} for cluster in clusters for row in cluster.bundles]
    bundles = _table(spark, folder / "bundles.parquet", held, BUNDLES).repartition(partitions)
    left_out = {(row["cluster"], row["broker"]): row["left_out"] for row in rows if row.get("left_out")}
    hits = {(cluster.name, name): hit for cluster in clusters for name, hit in cluster.hits.items()}
    known = [
        {"cluster": key[0], "broker": key[1], "left_out": left_out.get(key), **hits.get(key, HitCount())._asdict()}
        for key in left_out.keys() | hits.keys()
    ]
    of_cluster = rules.of_cluster({c.name: rules.entry(c.settings, c.counting, c.force_threshold) for c in clusters})
    loads = scoring.loads(brokers, of_cluster, tables.literal(spark, known, tables.KNOWN))
    unnumbered = _by_cluster(hit_counting.decide(pairing.pairs(loads)).drop("source_traffic").collect())
    decision_rows = {cluster: pairing.numbered(rows) for cluster, rows in unnumbered.items()}
    firing = {
        cluster: [
            {name: row[name] for name in tables.names(tables.FIRING)} for row in rows if row["measure"] is not None
        ]
        for cluster, rows in decision_rows.items()
    }
    forbidden = [
        row
        for c in clusters
        if c.policies is not None and firing.get(c.name)
        for row in policies.forbidden(
            c.case,
            c.name,
            brokers.where(brokers["cluster"] == c.name),
            bundles.where(bundles["cluster"] == c.name),
            firing[c.name],
        )
    ]
    judged = policies.with_policy(bundles, tables.literal(spark, forbidden, tables.FORBIDDEN))
    judged = judged.withColumn("reason", F.coalesce("reason", "forbids"))
    all_firing = tables.literal(spark, [row for rows in firing.values() for row in rows], tables.FIRING)
    groups = {c.name: c.case.policies.groups for c in clusters}
    move_rows = _by_cluster(caps.apply(selection.select(all_firing, judged), of_cluster, groups).collect())
    return {
        cluster.name: _answer(decision_rows.get(cluster.name, []), move_rows.get(cluster.name, []))
        for cluster in clusters
    }


def _table(spark: SparkSession, path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    file = Folder(str(path))
    file.write_table(pa.Table.from_pylist(rows, schema=schema))
    return tables.read(spark, [file], schema)


def _by_cluster(rows: list[Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["cluster"], []).append(row.asDict())
    return found


def _answer(decisions: list[dict[str, Any]], moves: list[dict[str, Any]]) -> AvgShed:
    ordered = sorted(decisions, key=lambda row: (row["pair"] is None, row["pair"] or 0, row["source"]))
    walked = sorted(moves, key=lambda row: (row["pair"], row["rank"]))
    taken = [row for row in walked if row["taken"]]
    return AvgShed(complete(ordered, taken, reasons_by_pair(walked)), walked, hits_after(ordered))
