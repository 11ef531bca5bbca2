"""A run's sample as sources other than the strategy see it: without the rules that a person lifted."""

from __future__ import annotations

import sys
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import pyarrow.compute as pc

from pulsar_rebalancer.config.field_types import Overrule, Placement
from pulsar_rebalancer.config.settings import CAPS, Settings
from pulsar_rebalancer.decide import stays
from pulsar_rebalancer.decide.run_input import OF_MEANS, REPORTED, with_loads, with_means
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles, BundleSample
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import MEANS, BrokerSample, Measure
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample
from pulsar_rebalancer.strategies.scoring import score
from pulsar_rebalancer.strategies.shedders.registry import left_out_of, placement_of

if TYPE_CHECKING:
    import pyarrow as pa


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


class SpareCapacity:
    """Refuses moves that would raise a broker's score above `overloaded_threshold`, in runs that drain brokers.

    The strategy's moves are checked too. If placement's choice lacks capacity for a drained broker's bundle, the bundle
    moves to the coldest broker that has enough and that policies and the topic ceiling allow. If there is none, the
    bundle is not moved.

    Args:
        samples: by drained broker, the input for its moves, without the rules that a person lifted for this broker.
        overruled: rules that a person lifted, by drained broker.
        fixed: True if a bundle may go only to its planned destination.
        gained: score points that brokers have gained but not yet reported.
    """

    def __init__(
        self,
        samples: Mapping[str, PlanningSample],
        overruled: Mapping[str, Container[Overrule]] = MappingProxyType({}),
        *,
        fixed: bool = False,
        gained: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._sample = next(iter(samples.values()))
        self._samples = samples
        self._overruled = overruled
        self._fixed = fixed
        self._policies = {id(sample): sample.policy_filter() for sample in samples.values()}
        self._filled: set[str] = set()
        self._gained = dict(gained)

    def fitted(self, unit: list[CandidateMove]) -> list[CandidateMove]:
        """Return a unit's moves, each with a destination that has enough capacity or with the reason it is not made.

        A unit consists of moves that must be made together.
        """
        if unit[0].source in self._samples:
            return [self._leaving(unit[0])]
        gains = self._gains(unit)
        if any(gain > 0 and name in self._filled and not self._fits(name, gain) for name, gain in gains.items()):
            return [move._replace(reason=Reason.WOULD_OVERLOAD, wave=None) for move in unit]
        return unit

    def take(self, unit: list[CandidateMove]) -> None:
        """Update the predicted scores with the effect of a unit of accepted moves."""
        for name, gain in self._gains(unit).items():
            self._gained[name] = self._gained.get(name, 0.0) + gain
        first = unit[0]
        sample = self._samples.get(first.source)
        if sample is not None and first.destination is not None:
            self._filled.add(first.destination)
            self._policies[id(sample)].placed(sample.bundles.find(first.source, first.bundle), first.destination)

    def _leaving(self, move: CandidateMove) -> CandidateMove:
        sample, gain = self._samples[move.source], self._gains([move])[str(move.destination)]
        free = gain <= 0 or Overrule.OVERLOAD in self._overruled.get(move.source, ())
        if free or self._fits(str(move.destination), gain, sample):
            return move
        others = () if self._fixed else self._policies[id(sample)].candidates(move.bundle)
        having_room = [name for name in others if self._fits(name, gain, sample)]
        if not having_room:
            return move._replace(reason=Reason.WOULD_OVERLOAD)
        return move._replace(destination=min(having_room, key=lambda name: self._score(name, sample)))

    def _fits(self, broker: str, gain: float, sample: PlanningSample | None = None) -> bool:
        return self._score(broker, sample or self._sample) + gain <= self._sample.settings.overloaded_threshold

    def _score(self, broker: str, sample: PlanningSample) -> float:
        """Return a broker's predicted score after the moves accepted so far, in percent."""
        return sample.scores[broker] + self._gained.get(broker, 0.0)

    def _gains(self, unit: list[CandidateMove]) -> dict[str, float]:
        """Return the points by which a unit of moves raises each destination's score."""
        gains: dict[str, float] = {}
        for move in unit:
            sample = self._samples.get(move.source, self._sample)
            share = sample.share_of_score(sample.bundles.find(move.source, move.bundle))
            if move.destination is not None:
                gains[move.destination] = gains.get(move.destination, 0.0) + share
                gains[move.source] = gains.get(move.source, 0.0) - share
        return gains
