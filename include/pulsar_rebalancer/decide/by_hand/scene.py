"""A run's snapshot as plans made by hand see it: what is overruled does not hold."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.config.enums import Overrule, Placement
from pulsar_rebalancer.config.settings import CAPS
from pulsar_rebalancer.decide.candidates import preset_reason
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.apart import apart
from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.tables import Measure, broker_samples
from pulsar_rebalancer.state.manual_plans import Drains
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.sample import ClusterSample
from pulsar_rebalancer.strategies.scoring import score
from pulsar_rebalancer.strategies.shedders.registry import placement_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.storage.path import StoragePath


@dataclass(frozen=True)
class Scene:
    """What a plan is made from.

    Attributes:
        folder: the run's folder.
        request: who asked for what, and the effective settings.
        state: the decision state as collect found it.
        sample: brokers, bundles and settings; what is overruled does not hold.
        policies: likewise.
    """

    folder: StoragePath
    request: RunRequest
    state: DecisionState
    sample: ClusterSample
    policies: Policies

    @classmethod
    def read(
        cls, run: StoragePath, state_folder: StoragePath, overruled: Collection[Overrule] = (), draining: str = ""
    ) -> Self:
        """Read the snapshot of a run.

        Args:
            run: its folder.
            state_folder: where the means of its cluster lie.
            overruled: what does not hold.
            draining: a broker that is to be drained beside those that are.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `file_version`.
            StateError: `state_version`.
        """
        request, kept = RunRequest.read(run), (run / "input" / "state.json").read_json()
        state = DecisionState.parse(kept["decision"])
        settings = _settings(request.resolved.settings, overruled)
        quarantined = Validation.read(run).quarantined
        drained = {*Drains.parse(kept.get("drains")).brokers, *filter(None, [draining])}
        left_out = dict.fromkeys(drained, Reason.DRAINING) | dict.fromkeys(quarantined, Reason.BROKER_QUARANTINED)
        left_out |= dict.fromkeys(settings.excluded_brokers, Reason.BROKER_EXCLUDED)
        passed_over = _passed_over(MovesState.parse(kept["moves"]), request, overruled)
        passed_over |= dict.fromkeys(quarantined, Reason.BUNDLE_QUARANTINED)
        brokers = broker_samples(tables.read(run, "brokers").to_pylist(), left_out)
        means = state_folder / state.means if state.means else None
        bundles = _bundles(tables.read(run, "bundles"), means, settings, passed_over)
        sample = ClusterSample(brokers, bundles, settings)
        return cls(run, request, state, sample, _policies(Policies.read(run), overruled))

    @property
    def settings(self) -> Settings:
        """Return the effective settings; what is overruled does not hold."""
        return self.sample.settings

    @cached_property
    def left_out(self) -> dict[str, Reason]:
        """Return why a broker is neither source nor destination, by broker."""
        return {each.broker: each.left_out for each in self.sample.brokers if each.left_out is not None}

    @cached_property
    def listed(self) -> frozenset[str]:
        """Return all brokers that the cluster lists."""
        return frozenset(each.broker for each in self.sample.brokers)

    @cached_property
    def owners(self) -> dict[str, str]:
        """Return the broker that reports a bundle, by bundle."""
        return self.sample.bundles.owners()

    @cached_property
    def scores(self) -> dict[str, float]:
        """Return the score of each broker that takes part or is drained, percent."""
        judged = (None, Reason.DRAINING)
        return {each.broker: score(each, self.settings) for each in self.sample.brokers if each.left_out in judged}

    @cached_property
    def apart(self) -> dict[str, Reason]:
        """Return why a broker is not compared with the others."""
        drained = (name for name, reason in self.left_out.items() if reason is Reason.DRAINING)
        return apart(self.settings, drained, self.policies)

    @cached_property
    def traffic(self) -> dict[str, float]:
        """Return what each broker carries now, bytes/s."""
        return {each.broker: each.traffic(Measure.THROUGHPUT) for each in self.sample.brokers}

    def policy_filter(self) -> PolicyFilter:
        """Return which brokers a bundle may be on, before anything is placed."""
        return PolicyFilter(self.policies, self.sample.brokers, self.sample.bundles, self.settings)

    def stays(self, bundle: BundleSample) -> Reason | None:
        """Return why a bundle may not move at all, or None."""
        if not bundle.broker:
            return Reason.NO_SUCH_BUNDLE
        source = self.left_out.get(bundle.broker, Reason.DRAINING)
        if source is not Reason.DRAINING:
            return source
        return bundle.reason or (None if bundle.topics else Reason.NO_TOPIC)


def _settings(settings: Settings, overruled: Collection[Overrule]) -> Settings:
    changes: dict[str, Any] = {}
    if placement_of(settings) is Placement.AVG:
        # AvgShedder plans destinations for its own moves; any other bundle it would place by chance.
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


def _passed_over(history: MovesState, request: RunRequest, overruled: Collection[Overrule]) -> dict[str, Reason]:
    if Overrule.GRACE_PERIOD in overruled:
        return {}
    recent = history.recent(request.collected_at, request.resolved.settings.grace_period_minutes)
    return dict.fromkeys(recent, Reason.RECENTLY_UNLOADED)


def _bundles(
    table: pa.Table, means: StoragePath | None, settings: Settings, passed_over: Mapping[str, Reason]
) -> Bundles:
    """Return the bundles with the means of earlier samples; one without any has what its broker reports now."""
    known = means.read_table() if means is not None and means.exists() else tables.MEANS.empty_table()
    wanted = known.select(["bundle", "long_term_msg_rate"])
    for measure in ("msg_rate", "msg_throughput"):
        wanted = wanted.append_column(measure, pc.add(known[f"{measure}_in"], known[f"{measure}_out"]))
    names = (row["bundle"] for row in table.select(["bundle"]).to_pylist())
    reasons = [
        preset_reason(name, settings.excluded_namespaces, passed_over, settings.excluded_bundles) for name in names
    ]
    joined = table.append_column("reason", pa.array(reasons, pa.string())).join(wanted, "bundle")
    for measure in ("msg_rate", "msg_throughput"):
        present = pc.add(joined[f"{measure}_in"], joined[f"{measure}_out"])
        joined = joined.set_column(
            joined.schema.get_field_index(measure), measure, pc.coalesce(joined[measure], present)
        )
    return Bundles(joined.select(COLUMNS.names))
