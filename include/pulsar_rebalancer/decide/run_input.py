"""The input of one run: the documents that are stored with its tables, and the rules that follow from them."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

from pulsar_rebalancer.decide.splits import split_planning
from pulsar_rebalancer.reasons import Trait
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.splits import parts_by_bundle
from pulsar_rebalancer.state.counting import decide_counting
from pulsar_rebalancer.state.learned import SETTLED, Learned
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.bottleneck import continued
from pulsar_rebalancer.strategies.kept import KeptState, ShedderState
from pulsar_rebalancer.strategies.left_out import left_out_of
from pulsar_rebalancer.strategies.sample import RecentMove
from pulsar_rebalancer.strategies.shedders.registry import counts_same_hits, profile_of

if TYPE_CHECKING:
    from pulsar_rebalancer.decide.splits.planner import SplitPlan
    from pulsar_rebalancer.run.tables import BrokerSample, Cell
    from pulsar_rebalancer.state.counting import Counting

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunInput(Snapshot):
    """One run as input to the *decide* task. Every property can raise the same errors as `read`."""

    @classmethod
    def read(cls, run: str) -> Self:
        """Read a run's documents, and check the columns of its tables.

        Args:
            run: the run's folder.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `file_version`.
            StateError: `state_version`.
        """
        snapshot = cls(StoragePath(run.rstrip("/")))
        _ = snapshot.silent, snapshot.bundles_footer, snapshot.counting, snapshot.validation
        return snapshot

    @cached_property
    def counting(self) -> Counting:
        """Return the rules for counting this sample."""
        request, before = self.request, self.before.decision
        return decide_counting(
            before,
            self.settings,
            request.collected_at,
            forced=request.forced,
            thresholds=request.params.changes_thresholds,
            same_hits=counts_same_hits(before.strategy, self.settings.strategy),
        )

    @cached_property
    def splits(self) -> SplitPlan:
        """Return the bundles to split, and the reasons why other candidates are not split."""
        return split_planning.plan(self)

    @property
    def to_be_split(self) -> list[str]:
        """Return the bundles that the run splits."""
        return self.splits.taken

    @property
    def unloaded_brokers(self) -> dict[str, float]:
        """Return the seconds between each broker's last unload and the sample."""
        now = self.request.collected_at
        unloaded: dict[str, float] = {}
        for unload in self.before.moves.unloads.values():
            since = (now - unload.at).total_seconds()
            unloaded[unload.source] = min(since, unloaded.get(unload.source, since))
        return unloaded

    @property
    def recent_moves(self) -> dict[str, RecentMove]:
        """Return the moves that were carried out recently, by bundle."""
        unloads = self.before.moves.unloads
        ages = {name: (self.request.collected_at - unload.at).total_seconds() / 60 for name, unload in unloads.items()}
        return {
            name: RecentMove(unload.source, unload.owner or unload.destination, ages[name])
            for name, unload in unloads.items()
            if unload.outcome and unload.outcome.has(Trait.ON_PLANNED_BROKER | Trait.NEW_OWNER)
            if 0 <= ages[name] < SETTLED
        }

    @property
    def kept(self) -> KeptState:
        """Return the strategy's state after the last counted run.

        If another strategy wrote the state, only hits that both strategies count in the same way are used.
        """
        before, strategy = self.before.decision, self.settings.strategy
        if before.strategy in ("", strategy):
            return KeptState.parse(before.hits, before.kept)
        # Nothing else that another strategy keeps is of use to this strategy.
        return KeptState(ShedderState(hits=before.hits if counts_same_hits(before.strategy, strategy) else {}))

    @cached_property
    def learned(self) -> Learned | None:
        """Return the figures that the strategy learned before this sample; None if it does not learn."""
        if not profile_of(self.settings).learns:
            return None
        learned = self.kept.shedder.learned
        if learned.samples and self.known_costs is None:
            # What brokers' scores leave unexplained was learned together with these costs.
            _log.warning("%s: no costs of bundles: learning starts again with this sample", self.cluster)
            learned = Learned(bottleneck=learned.bottleneck)
        return continued(learned, self.brokers, self.settings, counts=self.counting.counts)

    @cached_property
    def brokers(self) -> list[BrokerSample]:
        """Return the cluster's brokers, sorted by name."""
        return self.brokers_without(left_out_of(self))

    @property
    def bundles_quarantined(self) -> list[dict[str, Cell]]:
        """Return the bundles that validation left out (`spark_tables.QUARANTINED`)."""
        return [{"cluster": self.cluster, "bundle": name} for name in self.validation.quarantined]

    @property
    def parts_of_split_bundles(self) -> list[dict[str, Cell]]:
        """Return the parts of recently split bundles: the bundles that they were split into (`spark_tables.PARTS`)."""
        return [
            {"cluster": self.cluster, "bundle": bundle, "part": part, "share": share}
            for bundle, parts in parts_by_bundle(self.before.moves.splits).items()
            for part, share in parts.items()
        ]

    @property
    def new_means(self) -> StoragePath:
        """Return the file for the moving averages after this sample."""
        return self.new_state_file("means")

    @cached_property
    def known_costs(self) -> StoragePath | None:
        """Return the file with the bundles' costs after the last counted sample; None if it does not exist."""
        file = self.state_folder / self.before.decision.costs
        return file if self.before.decision.costs and file.exists() else None

    @property
    def new_costs(self) -> StoragePath:
        """Return the file for the bundles' costs after this sample."""
        return self.new_state_file("costs")

    def new_state_file(self, kind: str) -> StoragePath:
        """Return the file for the state after this sample; its name contains a hash of the state's input.

        A file that already has this name therefore has the right content. A file that a recorded state refers to is
        never rewritten.
        """
        made_of = hashlib.sha256("\n".join([self.folder.name, *sorted(self.validation.quarantined)]).encode())
        return self.state_folder / f"{kind}-{self.before.decision.seq + 1}-{made_of.hexdigest()[:8]}.parquet"
