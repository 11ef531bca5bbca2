"""Clusters through what the application asks of columns, and the same through the specification."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.vectors.rows import Finished, brokers_of, finished, sample

from pulsar_rebalancer.decide.explain import complete, reasons_by_pair
from pulsar_rebalancer.decide.pipeline import RunContext
from pulsar_rebalancer.names import is_heartbeat, namespace_of
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies import caps, rows
from pulsar_rebalancer.strategies.hits import hits_after, start_anew
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.sample import COUNTED
from pulsar_rebalancer.strategies.shedders.avg_shedder import shed
from pulsar_rebalancer_spark import avg_shedder, policies, selection, source_bundles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.state.counting import Counting
    from pulsar_rebalancer.state.state_documents import HitCount
    from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, Decision

BUNDLES = pa.schema(
    [(name, pa.string()) for name in ("broker", "bundle", "policy", "reason")]
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


def shed_in_columns(clusters: list[Cluster]) -> dict[str, Finished]:
    """What the application answers once the means are known, by cluster."""
    return {cluster.name: _shed(cluster) for cluster in clusters}


def _shed(cluster: Cluster) -> Finished:
    brokers, settings = brokers_of(cluster.brokers), cluster.settings
    decisions = avg_shedder.judged(
        brokers, settings, cluster.counting, cluster.hits, force_threshold=cluster.force_threshold
    )
    giving = [each for each in decisions if each.target is not None]
    # In a run `source_bundles.with_reason` says so of every bundle of brokers.
    held = [
        row | ({"reason": Reason.SYSTEM_NAMESPACE} if is_heartbeat(row["bundle"]) else {}) for row in cluster.bundles
    ]
    bundles = pa.Table.from_pylist(held, schema=BUNDLES)
    if cluster.policies is not None and giving:
        under = (row for row in cluster.bundles if row.get("policy"))
        served = Counter((row["broker"], namespace_of(row["bundle"])) for row in under)
        forbidden = policies.forbidden(cluster.context, brokers, served, giving)
        forbids = source_bundles.with_reason(bundles.drop_columns("reason"), settings, {}, forbidden)["reason"]
        at = BUNDLES.get_field_index("reason")
        bundles = bundles.set_column(at, "reason", pc.coalesce(bundles["reason"], forbids))
    walked = (
        [] if not giving else selection.select(cluster.name, giving, bundles, settings.min_bundle_share).to_pylist()
    )
    return _answer(cluster, decisions, [rows.move(row) for row in walked])


def _answer(cluster: Cluster, decisions: list[Decision], walked: list[CandidateMove]) -> Finished:
    moves = caps.apply(walked, cluster.settings, cluster.context.policies.groups)
    taken = [move for move in moves if move.taken]
    completed = start_anew(complete(decisions, taken, reasons_by_pair(moves)), cluster.counting)
    return Finished(completed, moves, hits_after(completed))
