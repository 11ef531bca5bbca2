"""Many clusters through the Spark transforms at once, and the same through the specification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_rebalancer.snapshot import BROKERS
from pulsar_rebalancer.state import HitCount
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer.strategies.avg_shedder import COUNTED, Shed, shed
from pulsar_rebalancer.strategies.outcome import complete, hits_after
from pulsar_rebalancer_spark import caps, hit_counting, pairing, rules, scoring, selection, tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.state import Counting

BUNDLES = pa.schema(
    [(name, pa.string()) for name in ("cluster", "broker", "bundle", "reason")]
    + [(name, pa.float64()) for name in ("msg_rate", "msg_throughput")]
)


@dataclass(frozen=True)
class Cluster:
    """What one run over one cluster starts from."""

    name: str
    settings: Settings
    brokers: list[dict[str, Any]]
    bundles: list[dict[str, Any]]
    hits: dict[str, HitCount] = field(default_factory=dict)
    counting: Counting = COUNTED
    force_threshold: float | None = None

    def specified(self) -> Shed:
        """What the specification answers."""
        return shed(
            self.name,
            self.brokers,
            self.bundles,
            self.hits,
            self.settings,
            counting=self.counting,
            force_threshold=self.force_threshold,
        )


def shed_on_spark(
    spark: SparkSession, folder: Path, clusters: list[Cluster], *, partitions: int = 1
) -> dict[str, Shed]:
    """What the transforms answer, by cluster; hit counts are those of listed brokers."""
    brokers, bundles = Folder(str(folder / "brokers.parquet")), Folder(str(folder / "bundles.parquet"))
    rows = [{**row, "cluster": cluster.name} for cluster in clusters for row in cluster.brokers]
    brokers.write_table(pa.Table.from_pylist(rows, schema=BROKERS))
    held = [{**row, "cluster": cluster.name} for cluster in clusters for row in cluster.bundles]
    bundles.write_table(pa.Table.from_pylist(held, schema=BUNDLES))
    left_out = {(row["cluster"], row["broker"]): row["left_out"] for row in rows if row.get("left_out")}
    hits = {(cluster.name, name): hit for cluster in clusters for name, hit in cluster.hits.items()}
    known = [
        {"cluster": key[0], "broker": key[1], "left_out": left_out.get(key), **hits.get(key, HitCount())._asdict()}
        for key in left_out.keys() | hits.keys()
    ]
    of_cluster = rules.of_cluster({c.name: rules.entry(c.settings, c.counting, c.force_threshold) for c in clusters})
    loads = scoring.loads(
        tables.read(spark, [brokers], BROKERS).repartition(partitions),
        of_cluster,
        tables.literal(spark, known, tables.KNOWN),
    )
    unnumbered = _by_cluster(hit_counting.decide(pairing.pairs(loads)).drop("source_traffic").collect())
    decision_rows = {cluster: pairing.numbered(rows) for cluster, rows in unnumbered.items()}
    firing = [
        {name: row[name] for name in tables.names(tables.FIRING)}
        for rows in decision_rows.values()
        for row in rows
        if row["measure"] is not None
    ]
    read = tables.read(spark, [bundles], BUNDLES).repartition(partitions)
    moves = caps.apply(selection.select(tables.literal(spark, firing, tables.FIRING), read), of_cluster)
    move_rows = _by_cluster(moves.collect())
    return {
        cluster.name: _answer(decision_rows.get(cluster.name, []), move_rows.get(cluster.name, []))
        for cluster in clusters
    }


def _by_cluster(rows: list[Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["cluster"], []).append(row.asDict())
    return found


def _answer(decisions: list[dict[str, Any]], moves: list[dict[str, Any]]) -> Shed:
    ordered = sorted(decisions, key=lambda row: (row["pair"] is None, row["pair"] or 0, row["source"]))
    walked = sorted(moves, key=lambda row: (row["pair"], row["rank"]))
    return Shed(complete(ordered, walked), walked, hits_after(ordered))
