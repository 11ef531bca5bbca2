"""What one run starts from: the small documents beside its tables, and the rules that follow from them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_rebalancer.carry_out.gate import may_act
from pulsar_rebalancer.decide.pipeline import RunContext
from pulsar_rebalancer.decide.splits.planner import NO_SPLITS, SplitPlan
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.apart import apart
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.splits import parts_by_bundle
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, broker_samples
from pulsar_rebalancer.state.counting import Counting, decide_counting
from pulsar_rebalancer.state.manual_plans import Drains
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath, damage_of, failures_of
from pulsar_rebalancer.strategies.kept import KeptState
from pulsar_rebalancer_spark import split_planning

if TYPE_CHECKING:
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import BrokerSample, Cell


@dataclass(frozen=True)
class RunInput:
    """One run, read from its folder.

    Attributes:
        folder: the run's folder.
        state_folder: where the means of its cluster lie.
        decision: the decision state as collect found it.
        moves: the unload history as collect found it.
        counting: how the sample counts.
        policies: isolation policies, anti-affinity groups and failure domains.
        drains: brokers whose bundles are to leave.
        bundle_count: rows of the bundles table.
        shares_bundles: whether a bundle may have two owners.
        splits: the bundles to be split, and why others are not.
    """

    folder: StoragePath
    state_folder: StoragePath
    request: RunRequest
    validation: Validation
    decision: DecisionState
    moves: MovesState
    counting: Counting
    policies: Policies
    drains: Drains
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
        folder = StoragePath(run.rstrip("/"))
        _check_table(folder, "brokers")
        bundles = _check_table(folder, "bundles")
        request, validation = RunRequest.read(folder), Validation.read(folder)
        kept = (folder / "input" / "state.json").read_json()
        try:
            decision, moves = DecisionState.parse(kept["decision"]), MovesState.parse(kept["moves"])
        except (KeyError, TypeError):
            raise SnapshotError(Reason.FILE_DAMAGED, f"{folder.uri}/input/state.json is no state") from None
        return cls(
            folder=folder,
            state_folder=ClusterStorage(root, request.cluster).state,
            request=request,
            validation=validation,
            decision=decision,
            moves=moves,
            policies=Policies.read(folder),
            drains=Drains.parse(kept.get("drains")),
            bundle_count=bundles.num_rows,
            shares_bundles=_largest(bundles, "owners") > 1,
            counting=decide_counting(
                decision,
                request.resolved.settings,
                request.collected_at,
                forced=request.forced,
                thresholds=request.params.changes_thresholds,
                acts=may_act(request, validation),
            ),
        )

    @property
    def cluster(self) -> str:
        """Return the name of the cluster, the key of every table."""
        return self.request.cluster

    @property
    def settings(self) -> Settings:
        """Return the effective settings."""
        return self.request.resolved.settings

    @property
    def left_out(self) -> dict[str, Reason]:
        """Return why a broker is neither source nor destination."""
        quarantined = dict.fromkeys(self.validation.quarantined, Reason.BROKER_QUARANTINED)
        excluded = dict.fromkeys(self.settings.excluded_brokers, Reason.BROKER_EXCLUDED)
        return self.apart | quarantined | excluded

    @property
    def apart(self) -> dict[str, Reason]:
        """Return why a broker is not compared with the others."""
        return apart(self.settings, self.drains.brokers, self.policies)

    @property
    def context(self) -> RunContext:
        """Return what a specification starts from."""
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
            left_out=self.left_out,
            forced=self.request.forced,
            unloaded_brokers=unloaded,
            seed=self.folder.name,
        )

    @property
    def kept(self) -> KeptState:
        """Return what the last counted run left."""
        # Another strategy's averages would be no averages of this one.
        if self.decision.strategy != self.settings.strategy:
            return KeptState()
        return KeptState.parse(self.decision.hits, self.decision.kept)

    @property
    def brokers(self) -> list[BrokerSample]:
        """Return the brokers of the cluster by name."""
        # Times are not looked at, and Arrow imports pandas to make Python's of them.
        listed = tables.read(self.folder, "brokers").select([each.name for each in BROKERS if each.type != tables.TIME])
        return broker_samples(
            listed.filter(pc.equal(listed["cluster"], pa.scalar(self.cluster))).to_pylist(), self.left_out
        )

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
        """Return the means of the last counted sample; None when there are none.

        A file that is gone is no error: bundles start anew with this sample, as they do when Pulsar's leader changes.
        """
        file = self.state_folder / self.decision.means
        return file if self.decision.means and file.exists() else None

    @property
    def new_means(self) -> StoragePath:
        """Return where the means with this sample go: the name says what they are made of.

        So what is there already is what would be written, and a file that a recorded state names is not written again.
        """
        made_of = hashlib.sha256("\n".join([self.folder.name, *sorted(self.validation.quarantined)]).encode())
        return self.state_folder / f"means-{self.decision.seq + 1}-{made_of.hexdigest()[:8]}.parquet"


def _check_table(run: StoragePath, name: str) -> pq.FileMetaData:
    """Return what stands at the end of a table's file."""
    file = run / "input" / f"{name}.parquet"
    file_system, path = file.open()
    with failures_of(file.uri, "read"), damage_of(file.uri):
        found = pq.read_metadata(path, filesystem=file_system)
    tables.check(found.schema.to_arrow_schema(), run, name)
    return found


def _largest(table: pq.FileMetaData, name: str) -> float:
    """Return the largest figure of a column; infinite when the file does not say it."""
    groups = [table.row_group(number) for number in range(table.num_row_groups)]
    found = [group.column(BUNDLES.names.index(name)).statistics for group in groups if group.num_rows]
    return max((float(each.max) if each and each.max is not None else math.inf for each in found), default=0)
