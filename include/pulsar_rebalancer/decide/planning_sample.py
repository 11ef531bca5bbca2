"""A run's sample as sources other than the strategy see it: without the rules that a person lifted."""

from __future__ import annotations

import sys
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

import pyarrow.compute as pc

from pulsar_rebalancer.config.field_types import Overrule, Placement
from pulsar_rebalancer.config.settings import CAPS, Settings
from pulsar_rebalancer.decide import stays
from pulsar_rebalancer.decide.run_input import MEAN_COLUMNS, REPORTED_SCHEMA, with_loads, with_means
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import SAMPLE_SCHEMA, Bundles, BundleSample
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import MEANS, BrokerSample, Measure
from pulsar_rebalancer.strategies.candidates import PolicyFilter
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample
from pulsar_rebalancer.strategies.scoring import score
from pulsar_rebalancer.strategies.shedders.registry import placement_of, run_left_out_reasons

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PlanningSample:
    """The sample for one source, without the rules that a person lifted."""

    snapshot: Snapshot
    cluster_sample: ClusterSample
    policies: Policies

    @classmethod
    def read(cls, snapshot: Snapshot, overruled: Collection[Overrule] = ()) -> Self:
        """Read a run's snapshot without the overruled rules. Raises the errors of `RunInput.read`."""
        settings, policies = _planning_settings(snapshot.settings, overruled), _overrule(snapshot.policies, overruled)
        brokers = snapshot.read_broker_samples(run_left_out_reasons(snapshot, settings, policies))
        facts = stays.BundleFacts.of_run(snapshot, settings, overruled)
        rows, means = snapshot.read_table("bundles", REPORTED_SCHEMA.names), snapshot.known_means_file
        rows = with_loads(rows.append_column("reason", stays.stay_reasons(rows["bundle"], facts)))
        rows = with_means(rows, snapshot.cluster, means.read_table(MEAN_COLUMNS) if means else MEANS.empty_table())
        return cls(snapshot, ClusterSample(brokers, _bundles_of_table(rows), settings), policies)

    def with_drained_brokers(self, brokers: Collection[str]) -> Self:
        """Return a copy in which these brokers are drained as well, unless left out for a more serious reason."""
        drained = [
            each._replace(left_out=Reason.DRAINING)
            if each.broker in brokers and each.left_out in (None, Reason.NO_PERSISTENT_TOPICS)
            else each
            for each in self.brokers
        ]
        return replace(self, cluster_sample=replace(self.cluster_sample, brokers=drained))

    def without_version_preference(self) -> Self:
        """Return a copy in which brokers of any version take a roll's bundles.

        During an upgrade, the few brokers of the latest version could not take them.
        """
        settings = self.settings.model_copy(update={"prefer_later_versions": False})
        return replace(self, cluster_sample=replace(self.cluster_sample, settings=settings))

    @property
    def settings(self) -> Settings:
        return self.cluster_sample.settings

    @property
    def brokers(self) -> Sequence[BrokerSample]:
        return self.cluster_sample.brokers

    @property
    def bundles(self) -> Bundles:
        return self.cluster_sample.bundles

    @cached_property
    def left_out_reasons(self) -> dict[str, Reason]:
        return {broker.broker: broker.left_out for broker in self.brokers if broker.left_out is not None}

    @cached_property
    def listed_brokers(self) -> frozenset[str]:
        return frozenset(broker.broker for broker in self.brokers)

    @cached_property
    def owners(self) -> dict[str, str]:
        return self.bundles.owners()

    @cached_property
    def broker_scores(self) -> dict[str, float]:
        """Return the scores of brokers that can be a source or a destination, in percent, by broker."""
        judged = {None, *stays.GIVE_ONLY_REASONS}
        return {b.broker: score(b, self.settings) for b in self.brokers if b.left_out in judged}

    @cached_property
    def broker_traffic(self) -> dict[str, float]:
        """Return each broker's current throughput in bytes/s."""
        return {broker.broker: broker.traffic(Measure.THROUGHPUT) for broker in self.brokers}

    def policy_filter(self) -> PolicyFilter:
        """Return a new filter by policies, without any bundles placed by the plan."""
        return PolicyFilter(self.policies, self.brokers, self.bundles, self.settings)

    def stay_reason(self, bundle: BundleSample) -> Reason | None:
        """Return why a bundle must not be moved; None if it may be moved (`stays.stay_reason`)."""
        return stays.stay_reason(bundle, self.left_out_reasons)

    def bundle_score(self, bundle: BundleSample) -> float:
        """Return the points by which the source's score drops with a move, in proportion to the traffic."""
        whole = max(self.broker_traffic[bundle.broker], bundle.msg_throughput)
        return self.broker_scores[bundle.broker] * bundle.msg_throughput / whole if whole > 0 else 0.0


def _planning_settings(settings: Settings, overruled: Collection[Overrule]) -> Settings:
    changes: dict[str, object] = {}
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


def _overrule(policies: Policies, overruled: Collection[Overrule]) -> Policies:
    changes: dict[str, object] = {}
    if Overrule.POLICIES in overruled:
        changes |= {"isolation": (), "unknown": {}, "without_persistent": ()}
    if Overrule.ANTI_AFFINITY in overruled:
        changes |= {"groups": {}, "domains": {}}
    return policies.model_copy(update=changes)


def _bundles_of_table(table: pa.Table) -> Bundles:
    """Return the bundles; without moving averages, the currently reported values are used instead."""
    for measure in Measure:
        present = pc.add(table[f"{measure}_in"], table[f"{measure}_out"])
        mean = pc.coalesce(table[measure], present)
        table = table.set_column(table.schema.get_field_index(measure), measure, mean)
    return Bundles(table.select(SAMPLE_SCHEMA.names))


class SpareCapacity:
    """Refuses moves that would raise a score above `overloaded_threshold`, in runs that drain brokers.

    The strategy's moves are checked too. If placement's choice lacks capacity for a drained broker's bundle,
    it moves to the coldest broker that has enough and that policies and the topic ceiling allow, or stays.

    Args:
        samples: by drained broker, the input for its moves, without the rules that a person lifted for it.
        planned_only: True if a bundle may go only to its planned destination.
        gained_points: score points that brokers have gained but not yet reported.
    """

    def __init__(
        self,
        samples: Mapping[str, PlanningSample],
        overruled: Mapping[str, Container[Overrule]] = MappingProxyType({}),
        *,
        planned_only: bool = False,
        gained_points: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._sample = next(iter(samples.values()))
        self._samples = samples
        self._overruled = overruled
        self._fixed = planned_only
        self._policies = {id(sample): sample.policy_filter() for sample in samples.values()}
        self._filled: set[str] = set()
        self._gained = dict(gained_points)

    def fit_to_capacity(self, unit: list[CandidateMove]) -> list[CandidateMove]:
        """Return the moves, each with a destination with capacity or a reason. A unit's moves are made together."""
        if unit[0].source in self._samples:
            return [self._fit_drain_move(unit[0])]
        gains = self._gain_by_broker(unit)
        if any(gain > 0 and name in self._filled and not self._has_room(name, gain) for name, gain in gains.items()):
            return [move._replace(reason=Reason.WOULD_OVERLOAD, wave=None) for move in unit]
        return unit

    def record_taken_moves(self, unit: list[CandidateMove]) -> None:
        for name, gain in self._gain_by_broker(unit).items():
            self._gained[name] = self._gained.get(name, 0.0) + gain
        first = unit[0]
        sample = self._samples.get(first.source)
        if sample is not None and first.destination is not None:
            self._filled.add(first.destination)
            self._policies[id(sample)].add_placement(sample.bundles.find(first.source, first.bundle), first.destination)

    def _fit_drain_move(self, move: CandidateMove) -> CandidateMove:
        sample, gain = self._samples[move.source], self._gain_by_broker([move])[str(move.destination)]
        free = gain <= 0 or Overrule.OVERLOAD in self._overruled.get(move.source, ())
        if free or self._has_room(str(move.destination), gain, sample):
            return move
        others = () if self._fixed else self._policies[id(sample)].candidate_brokers(move.bundle)
        having_room = [name for name in others if self._has_room(name, gain, sample)]
        if not having_room:
            return move._replace(reason=Reason.WOULD_OVERLOAD)
        return move._replace(destination=min(having_room, key=lambda name: self._score(name, sample)))

    def _has_room(self, broker: str, score_gain: float, sample: PlanningSample | None = None) -> bool:
        return self._score(broker, sample or self._sample) + score_gain <= self._sample.settings.overloaded_threshold

    def _score(self, broker: str, sample: PlanningSample) -> float:
        return sample.broker_scores[broker] + self._gained.get(broker, 0.0)

    def _gain_by_broker(self, unit: list[CandidateMove]) -> dict[str, float]:
        gains: dict[str, float] = {}
        for move in unit:
            sample = self._samples.get(move.source, self._sample)
            share = sample.bundle_score(sample.bundles.find(move.source, move.bundle))
            if move.destination is not None:
                gains[move.destination] = gains.get(move.destination, 0.0) + share
                gains[move.source] = gains.get(move.source, 0.0) - share
        return gains
