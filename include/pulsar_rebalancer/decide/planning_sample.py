"""A run's sample as sources other than the strategy see it: without the rules that a person lifted."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import pyarrow.compute as pc

from pulsar_rebalancer.config.enums import Overrule, Placement
from pulsar_rebalancer.config.settings import CAPS
from pulsar_rebalancer.decide import stays
from pulsar_rebalancer.decide.run_bundles import OF_MEANS, REPORTED, with_loads, with_means
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles
from pulsar_rebalancer.run.tables import MEANS, Measure
from pulsar_rebalancer.strategies.left_out import left_out_of
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.sample import ClusterSample
from pulsar_rebalancer.strategies.scoring import score
from pulsar_rebalancer.strategies.shedders.registry import placement_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.policies.cluster_policies import Policies
    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.run.snapshot import Snapshot
    from pulsar_rebalancer.run.tables import BrokerSample


@dataclass(frozen=True)
class PlanningSample:
    """The sample for one source.

    Attributes:
        cluster_sample: brokers, bundles and settings, without the rules that a person lifted.
        policies: isolation policies and anti-affinity groups. They are empty if a person lifted their rules.
    """

    snapshot: Snapshot
    cluster_sample: ClusterSample
    policies: Policies

    @classmethod
    def read(
        cls,
        snapshot: Snapshot,
        overruled: Collection[Overrule] = (),
    ) -> Self:
        """Read the input from a run's snapshot.

        Args:
            overruled: rules that a person lifted, and that therefore do not apply.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `file_version`.
            StateError: `state_version`.
        """
        settings, policies = _settings(snapshot.settings, overruled), _policies(snapshot.policies, overruled)
        brokers = snapshot.brokers_without(left_out_of(snapshot, settings, policies))
        facts = stays.BundleFacts.of(snapshot, settings, grace=Overrule.GRACE_PERIOD not in overruled)
        table, means = snapshot.table("bundles", REPORTED.names), snapshot.known_means
        table = with_loads(table.append_column("reason", stays.of_bundles(table["bundle"], facts)))
        table = with_means(
            table, snapshot.cluster, MEANS.empty_table() if means is None else means.read_table(OF_MEANS)
        )
        return cls(snapshot, ClusterSample(brokers, _bundles(table), settings), policies)

    def draining(self, brokers: Collection[str]) -> Self:
        """Return a copy in which these brokers are drained as well, except those left out for a more serious reason."""
        drained = [
            replace(each, left_out=Reason.DRAINING)
            if each.broker in brokers and each.left_out in (None, Reason.NO_PERSISTENT_TOPICS)
            else each
            for each in self.brokers
        ]
        return replace(self, cluster_sample=replace(self.cluster_sample, brokers=drained))

    def of_roll(self) -> Self:
        """Return a copy with the rules for brokers that a rolling restart drains: `roll_max_score` is the limit.

        Brokers of any version take the bundles, which soon return. During an upgrade, the few brokers of the latest
        version could not take them.
        """
        highest = self.settings.roll_max_score
        limit = {} if highest is None else {"overloaded_threshold": highest}
        settings = self.settings.model_copy(update={"prefer_later_versions": False, **limit})
        return replace(self, cluster_sample=replace(self.cluster_sample, settings=settings))

    @property
    def settings(self) -> Settings:
        """Return the effective settings, minus the rules that a person has lifted."""
        return self.cluster_sample.settings

    @property
    def brokers(self) -> Sequence[BrokerSample]:
        """Return all brokers that the cluster lists."""
        return self.cluster_sample.brokers

    @property
    def bundles(self) -> Bundles:
        """Return all bundles that these brokers report."""
        return self.cluster_sample.bundles

    @cached_property
    def left_out(self) -> dict[str, Reason]:
        """Return the brokers that can be neither source nor destination, each with the reason."""
        return {broker.broker: broker.left_out for broker in self.brokers if broker.left_out is not None}

    @cached_property
    def listed(self) -> frozenset[str]:
        """Return all brokers that the cluster lists."""
        return frozenset(broker.broker for broker in self.brokers)

    @cached_property
    def owners(self) -> dict[str, str]:
        """Return the broker that reports each bundle, by bundle."""
        return self.bundles.owners()

    @cached_property
    def scores(self) -> dict[str, float]:
        """Return the scores of brokers that can be a source or a destination, in percent, by broker."""
        judged = {None, *stays.MAY_GIVE}
        return {b.broker: score(b, self.settings) for b in self.brokers if b.left_out in judged}

    @cached_property
    def traffic(self) -> dict[str, float]:
        """Return each broker's current throughput in bytes/s."""
        return {broker.broker: broker.traffic(Measure.THROUGHPUT) for broker in self.brokers}

    def policy_filter(self) -> PolicyFilter:
        """Return a new filter for the brokers that policies permit for a bundle.

        The filter starts without any bundles placed by the plan.
        """
        return PolicyFilter(self.policies, self.brokers, self.bundles, self.settings)

    def stays(self, bundle: BundleSample) -> Reason | None:
        """Return why a bundle must not be moved; None if it may be moved (`stays.of_bundle`)."""
        return stays.of_bundle(bundle, self.left_out)

    def share_of_score(self, bundle: BundleSample) -> float:
        """Return the number of points by which the source's score drops when a bundle is moved.

        This assumes that scores are proportional to traffic.
        """
        whole = max(self.traffic[bundle.broker], bundle.msg_throughput)
        return self.scores[bundle.broker] * bundle.msg_throughput / whole if whole > 0 else 0.0


def _settings(settings: Settings, overruled: Collection[Overrule]) -> Settings:
    changes: dict[str, Any] = {}
    if placement_of(settings) is Placement.AVG:
        # AvgShedder plans destinations only for its own moves; it would place any other bundle at random.
        changes["placement"] = Placement.LEAST_RATE
    if Overrule.CAPS in overruled:
        changes |= dict.fromkeys(CAPS)
    if Overrule.EXCLUSIONS in overruled:
        changes |= {"excluded_namespaces": (), "excluded_brokers": (), "excluded_bundles": ()}
    if Overrule.TOPIC_CEILING in overruled:
        changes["max_broker_topics"] = sys.maxsize
    return settings.model_copy(update=changes)


def _policies(policies: Policies, overruled: Collection[Overrule]) -> Policies:
    changes: dict[str, Any] = {}
    if Overrule.POLICIES in overruled:
        changes |= {"isolation": (), "unknown": {}, "without_persistent": ()}
    if Overrule.ANTI_AFFINITY in overruled:
        changes |= {"groups": {}, "domains": {}}
    return policies.model_copy(update=changes)


def _bundles(table: pa.Table) -> Bundles:
    """Return the bundles. For a bundle without moving averages, the currently reported figures are used instead."""
    for measure in Measure:
        present = pc.add(table[f"{measure}_in"], table[f"{measure}_out"])
        mean = pc.coalesce(table[measure], present)
        table = table.set_column(table.schema.get_field_index(measure), measure, mean)
    return Bundles(table.select(COLUMNS.names))
