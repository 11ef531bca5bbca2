"""Input of one run: the small documents next to its tables, and the rules that follow from them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import pyarrow.parquet as pq

from pulsar_rebalancer.decide.by_hand.drains import DrainedBrokers
from pulsar_rebalancer.decide.pipeline import RunContext
from pulsar_rebalancer.decide.splits import split_planning
from pulsar_rebalancer.decide.splits.planner import NO_SPLITS, SplitPlan
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.splits import parts_by_bundle
from pulsar_rebalancer.run.tables import BUNDLES
from pulsar_rebalancer.state.counting import Counting, decide_counting
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath, damage_of, failures_of
from pulsar_rebalancer.strategies.fitting import force_threshold
from pulsar_rebalancer.strategies.kept import KeptState
from pulsar_rebalancer.strategies.left_out import left_out_of

if TYPE_CHECKING:
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.policies.cluster_policies import Policies
    from pulsar_rebalancer.run.request import RunRequest, Validation
    from pulsar_rebalancer.run.tables import BrokerSample, Cell
    from pulsar_rebalancer.state.manual_plans import Drains
    from pulsar_rebalancer.state.state_documents import DecisionState, MovesState


@dataclass(frozen=True)
class RunInput:
    """One run, read from its folder.

    Attributes:
        snapshot: what collect and validate left.
        state_folder: where the means of its cluster lie.
        counting: how the sample counts.
        bundle_count: rows of the bundles table.
        shares_bundles: whether a bundle may have two owners.
        splits: the bundles to be split, and why others are not.
    """

    snapshot: Snapshot
    state_folder: StoragePath
    counting: Counting
    bundle_count: int
    shares_bundles: bool
    splits: SplitPlan = NO_SPLITS

    @classmethod
    def read(cls, root: str, run: str) -> Self:
        """Read the documents of a run and check its tables' columns.

        Args:
            root: the storage root.
            run: the run's folder.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `file_version`.
            StateError: `state_version`.
        """
        snapshot = Snapshot(StoragePath(run.rstrip("/")))
        _check_table(snapshot, "brokers")
        bundles = _check_table(snapshot, "bundles")
        request = snapshot.request
        return cls(
            snapshot=snapshot,
            state_folder=ClusterStorage(root, request.cluster).state,
            bundle_count=bundles.num_rows,
            shares_bundles=_largest(bundles, "owners") > 1,
            counting=decide_counting(
                snapshot.before.decision,
                snapshot.settings,
                request.collected_at,
                forced=request.forced,
                thresholds=request.params.changes_thresholds,
            ),
        )

    @property
    def folder(self) -> StoragePath:
        """Return the run's folder."""
        return self.snapshot.folder

    @property
    def request(self) -> RunRequest:
        """Return who asked for what."""
        return self.snapshot.request

    @property
    def validation(self) -> Validation:
        """Return what validation found."""
        return self.snapshot.validation

    @property
    def decision(self) -> DecisionState:
        """Return the decision state as collect found it."""
        return self.snapshot.before.decision

    @property
    def moves(self) -> MovesState:
        """Return the unload history as collect found it."""
        return self.snapshot.before.moves

    @property
    def drains(self) -> Drains:
        """Return the brokers whose bundles are to leave."""
        return self.snapshot.before.drains

    @property
    def policies(self) -> Policies:
        """Return isolation policies, anti-affinity groups and failure domains."""
        return self.snapshot.policies

    @property
    def cluster(self) -> str:
        """Return the name of the cluster, the key of every table."""
        return self.request.cluster

    @property
    def settings(self) -> Settings:
        """Return the effective settings."""
        return self.snapshot.settings

    @property
    def context(self) -> RunContext:
        """Return what the pipeline starts from."""
        now = self.request.collected_at
        unloaded: dict[str, float] = {}
        for unload in self.moves.unloads.values():
            since = (now - unload.at).total_seconds()
            unloaded[unload.source] = min(since, unloaded.get(unload.source, since))
        return RunContext(
            settings=self.settings,
            counting=self.counting,
            kept=self.kept,
            policies=self.policies,
            left_out=left_out_of(self.snapshot),
            forced=self.request.forced,
            force_threshold=force_threshold(self.request),
            unloaded_brokers=unloaded,
            arriving=self.drained.arriving() if self.drains.brokers else {},
            seed=self.folder.name,
        )

    @cached_property
    def drained(self) -> DrainedBrokers:
        """Return what leaves the drained brokers."""
        return DrainedBrokers(self.snapshot, self.state_folder)

    @property
    def kept(self) -> KeptState:
        """Return what the last counted run left."""
        # Another strategy's averages would be no averages of this one.
        if self.decision.strategy not in ("", self.settings.strategy):
            return KeptState()
        return KeptState.parse(self.decision.hits, self.decision.kept)

    @cached_property
    def brokers(self) -> list[BrokerSample]:
        """Return the brokers of the cluster by name."""
        return self.snapshot.brokers_without(left_out_of(self.snapshot))

    @property
    def bundles_passed_over(self) -> dict[str, Reason]:
        """Return why bundles stay, by bundle; a planned move without an outcome counts as unloaded."""
        recent = self.moves.recent(self.request.collected_at, self.settings.grace_period_minutes)
        kept = self.moves.kept
        reasons = {name: Reason.DESTINATION_KEPT if name in kept else Reason.RECENTLY_UNLOADED for name in recent}
        reasons |= dict.fromkeys(self.splits.taken, Reason.TO_BE_SPLIT)
        return reasons | dict.fromkeys(self.validation.quarantined, Reason.BUNDLE_QUARANTINED)

    @property
    def bundles_quarantined(self) -> list[dict[str, Cell]]:
        """Return the bundles that validation left out (`tables.QUARANTINED`)."""
        return [{"cluster": self.cluster, "bundle": name} for name in self.validation.quarantined]

    @property
    def parts_of_split_bundles(self) -> list[dict[str, Cell]]:
        """Return what bundles that were split lately became (`tables.PARTS`)."""
        return [
            {"cluster": self.cluster, "bundle": bundle, "part": part, "share": share}
            for bundle, parts in parts_by_bundle(self.moves.splits).items()
            for part, share in parts.items()
        ]

    def with_splits(self) -> Self:
        """Return the run with what is to be split; the bundles are few, and read by themselves.

        Raises:
            SnapshotError: a file of the run or of the state cannot be read.
        """
        return replace(self, splits=split_planning.plan(self))

    @property
    def known_means(self) -> StoragePath | None:
        """Return the means of the last counted sample; None when there are none."""
        return self.snapshot.known_means(self.state_folder)

    @property
    def new_means(self) -> StoragePath:
        """Return where the means with this sample go: the name says what they are made of.

        So what is there already is what would be written, and a file that a recorded state names is not written again.
        """
        made_of = hashlib.sha256("\n".join([self.folder.name, *sorted(self.validation.quarantined)]).encode())
        return self.state_folder / f"means-{self.decision.seq + 1}-{made_of.hexdigest()[:8]}.parquet"


def _check_table(run: Snapshot, name: str) -> pq.FileMetaData:
    """Return the footer of a table's file."""
    file = run.file(name)
    file_system, path = file.open()
    with failures_of(file.uri, "read"), damage_of(file.uri):
        found = pq.read_metadata(path, filesystem=file_system)
    run.check(name, found.schema.to_arrow_schema())
    return found


def _largest(table: pq.FileMetaData, name: str) -> float:
    """Return the largest figure of a column; infinite when the file does not say it."""
    groups = [table.row_group(number) for number in range(table.num_row_groups)]
    found = [group.column(BUNDLES.names.index(name)).statistics for group in groups if group.num_rows]
    return max((float(each.max) if each and each.max is not None else math.inf for each in found), default=0)
