"""Balance a cluster minute by minute with a shedder and a placement strategy, keeping state as runs do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.planning import Plan, ProposalSources, plan
from pulsar_rebalancer.decide.sources import strategy
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.columns import LOADS, NOBODY, ColumnarBundles, CostColumns, Flags, MeanColumns, Roster
from pulsar_rebalancer.replay.minute import NO_POLICIES, ColumnarBrokers, Minute
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.tables import BrokerSample
from pulsar_rebalancer.state import MIN_AGE_SHARE, SETTLED, DecisionState, HitRules, StrategyState, next_hit_samples
from pulsar_rebalancer.strategies.candidates import PolicyFilter, Selector, choose_broker, overloaded_brokers
from pulsar_rebalancer.strategies.learning import LearningResult
from pulsar_rebalancer.strategies.placement import make_selector
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, RecentMove, used_score_by_broker
from pulsar_rebalancer.strategies.shedders.registry import left_out_reasons, profile_of


@dataclass
class BundlePlacer:
    """Places bundles between two load reports (ModularLoadManagerImpl.selectBroker)."""

    sample: ClusterSample
    strategy_state: StrategyState
    seed: str
    policy_documents: Policies = NO_POLICIES
    was_used: bool = False

    @cached_property
    def broker_selector(self) -> Selector:
        return make_selector(self.sample, self.strategy_state.placement)

    @cached_property
    def _policy_filter(self) -> PolicyFilter:
        return PolicyFilter(self.policy_documents, self.sample.brokers, self.sample.bundles, self.sample.settings)

    @cached_property
    def _overloaded_brokers(self) -> set[str]:
        return overloaded_brokers(self.sample)

    def select_broker(self, bundle: str, rate: float, topics: int, registered_brokers: Collection[str]) -> str | None:
        """Return the broker for a bundle with this long-term rate (msg/s); None if none may own it."""
        self.was_used = True
        best = self._choose_broker(bundle, self._policy_filter.candidate_brokers(bundle), registered_brokers)
        if best in self._overloaded_brokers:
            best = self._choose_broker(bundle, self._policy_filter.allowed_brokers(bundle), registered_brokers) or best
        if best is not None:
            placed = BundleSample("", bundle, topics=topics, long_term_msg_rate=rate)
            self.broker_selector.add_placement(placed, best)
            self._policy_filter.add_placement(placed, best)
        return best

    def _choose_broker(self, bundle: str, candidates: Iterable[str], registered_brokers: Collection[str]) -> str | None:
        there = [name for name in candidates if name in registered_brokers]
        return choose_broker(self.seed, bundle, self.broker_selector.eligible_brokers(bundle, there))


MINUTE_SECONDS = 60.0

_UNLOAD_DELAY_S = 1.0
"""Assumed seconds between a sample and the unloads that follow. A real run records the time of each unload."""


class IndexedMove(NamedTuple):
    """Positions of a bundle and its destination; `is_swapped`: it moves back in exchange for another."""

    bundle_index: int
    broker_index: int
    is_swapped: bool = False


class Balancer:
    """Balances one cluster with one strategy.

    Args:
        seed: seed for the placement's random choices.
        means: moving averages of the bundles, which the caller updates; None if the balancer keeps its own,
            which start again after a minute without a report, unlike in a run.
        stay_reasons: why a bundle never moves, by bundle position.
    """

    def __init__(
        self,
        roster: Roster,
        settings: Settings,
        seed: int = 1,
        means: MeanColumns | None = None,
        stay_reasons: Mapping[int, Reason] | None = None,
    ) -> None:
        self._roster = roster
        self._settings = settings
        self._seed = seed
        self._state = StrategyState()
        self._means = means or MeanColumns(len(roster.bundles))
        self._keeps_means = means is None
        self._stays = dict(stay_reasons or {})
        self._hits = DecisionState()
        self._learned = CostColumns(roster) if profile_of(settings).learns else None
        self._moved: dict[int, int] = {}
        self._recent: dict[str, tuple[str, str, int]] = {}
        self._unloaded_brokers: dict[str, int] = {}
        self._policies = NO_POLICIES
        self._kind: Callable[[str], str | None] = NO_POLICIES.policy_kind
        self._silent: list[int] | None = None
        self._reasons: dict[int, Reason] = {}
        self._placing = BundlePlacer(self._empty_sample(), self._state, f"{seed}/start")

    def choose_moves(self, minute: Minute) -> list[IndexedMove]:
        self._store_placement_state()
        seen = minute.reported_bundles
        if self._keeps_means:
            self._means.update(seen, minute.bundle_loads)
        grace = self._settings.grace_period_minutes * MINUTE_SECONDS
        self._moved = {bundle: at for bundle, at in self._moved.items() if self._seconds_since(minute, at) <= grace}
        brokers = ColumnarBrokers(minute, self._roster, self._settings, self._left_out_reasons(minute))
        if minute.policies is not self._policies:
            self._policies, self._kind = minute.policies, cache(minute.policies.policy_kind)
        counting, learning = self._hit_rules(minute), LearningResult()
        if self._learned is not None:
            learning = self._learned.learn_from_sample(
                self._state.shedder.learned,
                np.where(seen, minute.owner, NOBODY),
                minute.bundle_loads,
                brokers=brokers,
                recent_moves=self._recent_move_by_bundle(minute).values(),
                settings=self._settings,
                minute=minute.number,
                is_counted=counting.counts,
            )
        columns = self._bundle_columns(minute, seen, learning.learned.persistence)
        sample = ClusterSample(brokers, columns, self._settings, counting=counting, learning=learning)
        decision = self._make_plan(minute, brokers, sample)
        moves = [move for move in decision.moves if move.is_taken]
        takes = {pair.pair: pair.destination for pair in decision.decisions}
        self._placing = BundlePlacer(sample, self._state, self._seed_of_minute(minute), minute.policies)
        indexed = [
            IndexedMove(
                self._roster.bundle_at[move.bundle],
                self._destination_number(move),
                is_swapped=move.source == takes.get(move.pair),
            )
            for move in moves
        ]
        self._moved.update({move.bundle_index: minute.number for move in indexed})
        self._unloaded_brokers.update({move.source: minute.number for move in moves})
        if self._learned is not None:
            self._recent |= {move.bundle: (move.source, move.destination or "", minute.number) for move in moves}
        return indexed

    def place_bundle(self, bundle: int, registered_brokers: Collection[int]) -> int | None:
        """Return the broker for a bundle without an owner, by position; None if none may own it."""
        name, names = self._roster.bundles[bundle], {self._roster.brokers[number] for number in registered_brokers}
        topics = int(self._topics[bundle])
        chosen = self._placing.select_broker(name, float(self._means.long_term_msg_rate[bundle]), topics, names)
        return None if chosen is None else self._roster.broker_at[chosen]

    def _make_plan(self, minute: Minute, brokers: ColumnarBrokers, sample: ClusterSample) -> Plan:
        counting = sample.counting
        given = strategy.StrategyInput(
            self._settings,
            brokers,
            sample.bundles,
            counting,
            self._state,
            policies=minute.policies,
            learning=sample.learning,
            seconds_since_unload={name: self._seconds_since(minute, at) for name, at in self._unloaded_brokers.items()},
            seed=self._seed_of_minute(minute),
            # A shedder that learns looks at the other pairs as well.
            may_omit_decisions=self._learned is None,
        )
        sources = ProposalSources(strategy=lambda traffic: strategy.strategy_proposal(given, traffic))
        decision = plan(sources, self._settings, minute.policies, brokers)
        self._state = decision.strategy_state or self._state
        if self._may_repeat_values:
            used = {**decision.used_scores, **used_score_by_broker(decision.decisions, counting)}
            # The values that gave a hit.
            after = next_hit_samples(self._hits, counting, used, minute.time)
            self._hits = self._hits.model_copy(update={"samples": after})
        return decision

    def _recent_move_by_bundle(self, minute: Minute) -> dict[str, RecentMove]:
        ages = {name: self._seconds_since(minute, at) / MINUTE_SECONDS for name, (_, _, at) in self._recent.items()}
        self._recent = {name: move for name, move in self._recent.items() if ages[name] <= SETTLED}
        return {name: RecentMove(*move[:2], ages[name]) for name, move in self._recent.items()}

    def _left_out_reasons(self, minute: Minute) -> dict[int, Reason]:
        names, at = self._roster.brokers, self._roster.broker_at
        silent = np.flatnonzero(minute.broker_loads.registered & ~minute.broker_loads.is_reported).tolist()
        if silent != self._silent or minute.policies is not self._policies:
            reasons = left_out_reasons(self._settings, minute.policies, quarantined=(names[i] for i in silent))
            self._reasons = {at[name]: reason for name, reason in reasons.items() if name in at}
            self._silent = silent
        return self._reasons

    @staticmethod
    def _seconds_since(minute: Minute, unload_minute: int) -> float:
        return (minute.number - unload_minute) * MINUTE_SECONDS - _UNLOAD_DELAY_S

    def _seed_of_minute(self, minute: Minute) -> str:
        return f"{self._seed}/{minute.number}"

    @property
    def _may_repeat_values(self) -> bool:
        """Return whether brokers measure less often than once a minute, so values can repeat."""
        return self._settings.host_usage_interval_minutes * MIN_AGE_SHARE > 1

    def _hit_rules(self, minute: Minute) -> HitRules:
        if not self._may_repeat_values:
            return minute.hit_rules
        return replace(minute.hit_rules, samples=self._hits.recent_hit_values(self._settings, minute.time))

    def _destination_number(self, move: CandidateMove) -> int:
        if move.destination is None:
            raise ValueError(f"{move.bundle} is to be moved but has no destination")
        return self._roster.broker_at[move.destination]

    def _store_placement_state(self) -> None:
        if self._placing.was_used:
            self._state = replace(self._state, placement=self._placing.broker_selector.placement_state())

    def _bundle_columns(self, minute: Minute, reported: Flags, persistence: float) -> ColumnarBundles:
        reasons = dict.fromkeys(self._moved, Reason.RECENTLY_UNLOADED) | self._stays | dict(minute.stay_reasons)
        self._topics = minute.bundle_loads[-1]
        owner = np.where(reported, minute.owner, NOBODY)
        loads = self._learned.costs.expected_loads(persistence) if self._learned else None
        return ColumnarBundles(self._roster, owner, minute.bundle_loads, self._means, reasons, self._kind, loads)

    def _empty_sample(self) -> ClusterSample:
        """Return a newly elected leader's sample: the names of the brokers, but no values."""
        nothing = np.zeros((len(LOADS), len(self._roster.bundles)))
        owner = np.full(len(self._roster.bundles), NOBODY)
        self._topics = nothing[-1]
        bundles = ColumnarBundles(self._roster, owner, nothing, self._means, {}, self._kind)
        return ClusterSample([BrokerSample(name) for name in self._roster.brokers], bundles, self._settings)
