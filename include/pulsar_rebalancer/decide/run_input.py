"""The input of one run: the documents that are stored with its tables, and the rules that follow from them."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.decide import split_planning, stays
from pulsar_rebalancer.decide.split_planning import SplitPlan
from pulsar_rebalancer.names import SYSTEM_NAMESPACE
from pulsar_rebalancer.reasons import Trait
from pulsar_rebalancer.run.bundle_columns import SAMPLE_SCHEMA, Bundles, count_bundles, sort_by_broker, without_nulls
from pulsar_rebalancer.run.plan import shares_of_parts
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import BUNDLE_COSTS, BUNDLES, NO_LOADS, TRAFFIC, BrokerSample, Cell, find_state_table
from pulsar_rebalancer.state import SETTLED, HitRules, LearnedValues, ShedderState, StrategyState, decide_hit_rules
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import RecentMove
from pulsar_rebalancer.strategies.scoring import learned_before_sample
from pulsar_rebalancer.strategies.shedders.registry import have_same_hits, profile_of, run_left_out_reasons

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunInput(Snapshot):
    """One run as input to the *decide* task. Every property can raise the same errors as `read`."""

    @classmethod
    def read(cls, run: str) -> Self:
        """Read a run's documents, and check the columns of its tables.

        Raises SnapshotError: `file_missing`, `file_damaged`.
        """
        snapshot = cls(StoragePath(run.rstrip("/")))
        _ = snapshot.silent_brokers, snapshot.bundles_footer, snapshot.hit_rules, snapshot.validation
        return snapshot

    @cached_property
    def hit_rules(self) -> HitRules:
        request, before = self.request, self.state.decision
        return decide_hit_rules(
            before,
            self.settings,
            request.collected_at,
            is_forced=request.is_forced,
            changes_thresholds=request.params.changes_thresholds,
            has_same_hits=have_same_hits(before.strategy, self.settings.strategy),
        )

    @cached_property
    def split_plan(self) -> SplitPlan:
        return split_planning.make_split_plan(self)

    @property
    def bundles_to_split(self) -> list[str]:
        return self.split_plan.bundles_to_split

    @property
    def seconds_since_unload(self) -> dict[str, float]:
        """Return the seconds between each broker's last unload and the sample."""
        now = self.request.collected_at
        unloaded: dict[str, float] = {}
        for unload in self.state.moves.unloads.values():
            since = (now - unload.at).total_seconds()
            unloaded[unload.source] = min(since, unloaded.get(unload.source, since))
        return unloaded

    @property
    def recent_move_by_bundle(self) -> dict[str, RecentMove]:
        unloads = self.state.moves.unloads
        ages = {name: (self.request.collected_at - unload.at).total_seconds() / 60 for name, unload in unloads.items()}
        return {
            name: RecentMove(unload.source, unload.owner or unload.destination, ages[name])
            for name, unload in unloads.items()
            if unload.outcome and unload.outcome.has(Trait.ON_PLANNED_BROKER | Trait.NEW_OWNER)
            if 0 <= ages[name] < SETTLED
        }

    @property
    def strategy_state(self) -> StrategyState:
        """Return the strategy's state after the last counted run; another strategy's hits only if counted alike."""
        before, strategy = self.state.decision, self.settings.strategy
        if before.strategy in ("", strategy):
            return StrategyState.parse(before.hits, before.strategy_state)
        # Nothing else that another strategy keeps is of use to this strategy.
        return StrategyState(ShedderState(hits=before.hits if have_same_hits(before.strategy, strategy) else {}))

    @cached_property
    def learned_values(self) -> LearnedValues | None:
        if not profile_of(self.settings).learns:
            return None
        learned = self.strategy_state.shedder.learned
        if learned.samples and self.known_costs_file is None:
            # What brokers' scores leave unexplained was learned together with these costs.
            _log.warning("%s: bundle costs are missing, so learning starts again with this sample", self.cluster)
            learned = LearnedValues(bottleneck=learned.bottleneck)
        return learned_before_sample(learned, self.brokers, self.settings, is_counted=self.hit_rules.counts)

    @cached_property
    def brokers(self) -> list[BrokerSample]:
        return self.read_broker_samples(run_left_out_reasons(self))

    @property
    def parts_of_split_bundles(self) -> list[dict[str, Cell]]:
        return [
            {"cluster": self.cluster, "bundle": bundle, "part": part, "share": share}
            for bundle, parts in shares_of_parts(self.state.moves.splits).items()
            for part, share in parts.items()
        ]

    @property
    def new_means_file(self) -> StoragePath:
        return self.new_state_file("means")

    @cached_property
    def known_costs_file(self) -> StoragePath | None:
        return find_state_table(self.state_folder, self.state.decision.costs_file, BUNDLE_COSTS)

    @property
    def new_costs_file(self) -> StoragePath:
        return self.new_state_file("costs")

    def new_state_file(self, kind: str) -> StoragePath:
        """Return the file for the state after this sample; its name contains a hash of the state's input.

        An existing file with this name has the right content; one that a recorded state refers to is never
        rewritten.
        """
        made_of = hashlib.sha256("\n".join([self.folder.name, *sorted(self.validation.quarantine_reasons)]).encode())
        return self.state_folder / f"{kind}-{self.state.decision.seq + 1}-{made_of.hexdigest()[:8]}.parquet"


REPORTED_SCHEMA = pa.schema([field for field in BUNDLES if field.name in SAMPLE_SCHEMA.names])

MEAN_COLUMNS = ["cluster", "bundle", *TRAFFIC, "long_term_msg_rate"]

_NAME_COLUMNS = pa.schema([BUNDLES.field(name) for name in ("broker", "bundle")])


class _ReportedBundles(NamedTuple):
    all_bundles: pa.Table
    counted_bundles: pa.Table


class RunBundles(Bundles):
    """The bundles that a run's brokers report, with their moving averages.

    To save time, the bundles are read and sorted while `means` waits for the averages' file. `loads` are what
    was learned about bundles (`run.tables.NO_LOADS`).
    """

    def __init__(self, run: RunInput, means: Callable[[], StoragePath], loads: pa.Table = NO_LOADS) -> None:
        self._run = run
        self._means = means
        self._loads = loads
        self._announced: pa.Array[Any] | None = None

    def announce_brokers(self, brokers: Collection[str]) -> None:
        """Set the brokers whose bundles will be requested; bundles on other brokers are not loaded."""
        self._announced = pa.array(list(brokers), pa.string())

    def bundle_counts(self, namespaces: Collection[str] | None = None) -> dict[str, Counter[str]]:
        """Return the number of reported bundles for each namespace and broker; `namespaces` None counts all."""
        if namespaces is not None:
            return count_bundles(self._reported_bundles.counted_bundles, namespaces)
        return count_bundles(_concat_tables(self._cluster_batches(_NAME_COLUMNS), _NAME_COLUMNS), None)

    @cached_property
    def _bundle_table(self) -> pa.Table:
        reported, run = self._reported_bundles.all_bundles, self._run
        bundles = reported.append_column(
            "reason", stays.stay_reasons(reported["bundle"], stays.BundleFacts.of_run(run, run.settings))
        )
        bundles = with_loads(bundles, self._loads)
        # A bundle that validation left out may have no means. Its values are then 0, and it has a reason to stay.
        means = self._means().read_table(MEAN_COLUMNS)
        return without_nulls(with_means(bundles, run.cluster, means))

    @cached_property
    def _reported_bundles(self) -> _ReportedBundles:
        held, counted = [], []
        for rows in self._cluster_batches(REPORTED_SCHEMA):
            held.append(rows if self._announced is None else rows.filter(pc.is_in(rows["broker"], self._announced)))
            counts = pc.or_(pc.is_valid(rows["policy"]), pc.starts_with(rows["bundle"], f"{SYSTEM_NAMESPACE}/"))
            counted.append(rows.select(_NAME_COLUMNS.names).filter(counts))
        sorted_bundles = sort_by_broker(_concat_tables(held, REPORTED_SCHEMA))
        return _ReportedBundles(sorted_bundles, _concat_tables(counted, _NAME_COLUMNS))

    def _cluster_batches(self, columns: pa.Schema) -> Iterator[pa.Table]:
        for rows in self._run.table_batches("bundles", ["cluster", *columns.names]):
            yield rows.filter(pc.equal(rows["cluster"], pa.scalar(self._run.cluster))).select(columns.names)


def with_means(bundles: pa.Table, cluster: str, means: pa.Table) -> pa.Table:
    """Return the bundles in unchanged order, with their means of inbound plus outbound traffic (msg/s, bytes/s)."""
    known = means.filter(pc.equal(means["cluster"], pa.scalar(cluster)))
    at: Any = pc.index_in(bundles["bundle"], known["bundle"])
    for name in ("msg_rate", "msg_throughput"):
        bundles = bundles.append_column(name, pc.add(known[f"{name}_in"], known[f"{name}_out"]).take(at))
    return bundles.append_column("long_term_msg_rate", known["long_term_msg_rate"].take(at))


def with_loads(bundles: pa.Table, loads: pa.Table = NO_LOADS) -> pa.Table:
    """Return the bundles in unchanged order, with their loads; null for an unknown one."""
    at: Any = pc.index_in(bundles["bundle"], loads["bundle"])
    return bundles.append_column("load", loads["load"].take(at))


def _concat_tables(parts: Iterable[pa.Table], columns: pa.Schema) -> pa.Table:
    return pa.concat_tables([columns.empty_table(), *parts])
