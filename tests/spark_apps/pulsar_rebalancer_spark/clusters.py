"""Many clusters through the Spark transforms in one query, and the same through the specification."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from tests.vectors.rows import Finished, brokers_of, finished, sample

from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies import caps, rows
from pulsar_rebalancer.strategies.explain import complete, reasons_by_pair
from pulsar_rebalancer.strategies.hits import hits_after, start_anew
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.pipeline import RunContext
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.sample import COUNTED
from pulsar_rebalancer.strategies.shedders.avg_shedder import shed
from pulsar_rebalancer_spark import avg_shedder, policies, selection, tables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import Cell
    from pulsar_rebalancer.state.counting import Counting
    from pulsar_rebalancer.state.model import HitCount
    from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, Decision

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
    """What the application answers, by cluster: the walks of all of them in one query."""
    held = [{**row, "cluster": cluster.name} for cluster in clusters for row in cluster.bundles]
    file = StoragePath(str(folder / "bundles.parquet"))
    file.write_table(pa.Table.from_pylist(held, schema=BUNDLES))
    bundles = tables.read(spark, [file], BUNDLES).repartition(partitions)
    decisions: dict[str, list[Decision]] = {}
    giving: list[dict[str, Cell]] = []
    forbidden: list[dict[str, str]] = []
    for c in clusters:
        brokers = brokers_of(c.brokers)
        decisions[c.name] = avg_shedder.judged(
            brokers, c.settings, c.counting, c.hits, force_threshold=c.force_threshold
        )
        firing = avg_shedder.firing(c.name, decisions[c.name], c.settings.min_bundle_share)
        giving += firing
        if c.policies is not None and firing:
            under = (row for row in c.bundles if row.get("policy"))
            served = Counter((row["broker"], namespace_of(row["bundle"])) for row in under)
            forbidden += policies.forbidden(c.context, c.name, brokers, served, firing)
    judged = policies.with_policy(bundles, tables.literal(spark, forbidden, tables.FORBIDDEN))
    judged = judged.withColumn("reason", F.coalesce("reason", "forbids"))
    walked: dict[str, list[CandidateMove]] = {}
    for row in selection.select(tables.literal(spark, giving, tables.FIRING), judged).collect():
        walked.setdefault(row["cluster"], []).append(rows.move(row.asDict()))
    return {c.name: _answer(c, decisions[c.name], walked.get(c.name, [])) for c in clusters}


def _answer(cluster: Cluster, decisions: list[Decision], walked: list[CandidateMove]) -> Finished:
    moves = caps.apply(walked, cluster.settings, cluster.context.policies.groups)
    taken = [move for move in moves if move.taken]
    completed = start_anew(complete(decisions, taken, reasons_by_pair(moves)), cluster.counting)
    return Finished(completed, moves, hits_after(completed))
