"""Pulsar's placements, and the assignment of destinations that policies allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import repeat
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.tables import BrokerSample, java_sum
from pulsar_rebalancer.state import PlacementState
from pulsar_rebalancer.strategies.candidates import (
    CandidatesCache,
    PolicyFilter,
    Selector,
    StatelessPlacement,
    SubsetView,
    all_and_omitted_brokers,
    choose_broker,
    overloaded_brokers,
)
from pulsar_rebalancer.strategies.caps import group_into_units, sort_by_pair_rank
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample
from pulsar_rebalancer.strategies.shedders.registry import placement_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


MAX_COUNTER = 2**31 - 1
"""Value after which the counter starts again at 0."""


class RoundRobin:
    """Choose the candidates in turn (RoundRobinBrokerSelector.selectBroker).

    If the stored list of brokers does not match the candidates, they replace it.
    """

    def __init__(self, state: PlacementState) -> None:
        self._count = state.count
        self._brokers: Sequence[str] = state.brokers
        self._members = CandidatesCache(frozenset)

    def eligible_brokers(self, bundle: str, candidates: Sequence[str]) -> list[str]:
        if not candidates:
            return []
        index = self._count % len(candidates)
        self._count = 0 if self._count == MAX_COUNTER else self._count + 1
        members = candidates if isinstance(candidates, SubsetView) else self._members.get(candidates)
        if len(self._brokers) != len(candidates) or self._brokers[index] not in members:
            self._brokers = candidates
        return [self._brokers[index]]

    def add_placement(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing, because `eligible_brokers` has advanced the counter."""

    def placement_state(self) -> PlacementState:
        return PlacementState(count=self._count, brokers=tuple(self._brokers))


class LeastLongTermMessageRate:
    """Choose the broker with the lowest rate, overloaded brokers last (LeastLongTermMessageRate.selectBroker).

    A broker's rate, in msg/s, is the sum of its bundles' long-term rates, in and out (TimeAverageBrokerData).
    """

    def __init__(self, sample: ClusterSample) -> None:
        self._sample = sample
        self._preallocated: dict[str, dict[str, float]] = defaultdict(dict)
        self._queues = CandidatesCache(lambda brokers: _RateQueue(brokers, self._rates, overloaded_brokers(sample)))

    @cached_property
    def _reported_rate_by_broker(self) -> Mapping[str, float]:
        return self._sample.bundles.long_term_msg_rates()

    @cached_property
    def _rates(self) -> dict[str, float]:
        return dict(self._reported_rate_by_broker)

    def eligible_brokers(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        brokers, without = all_and_omitted_brokers(candidates)
        return self._queues.get(brokers).least_loaded_brokers(without) or candidates

    def add_placement(self, bundle: BundleSample, broker: str) -> None:
        """Add the bundle's rate to its broker's rate (BrokerData.preallocatedBundleData)."""
        given = self._preallocated[broker]
        rate = bundle.long_term_msg_rate
        given[bundle.bundle] = bundle.msg_rate if rate is None else rate
        self._rates[broker] = self._reported_rate_by_broker.get(broker, 0.0) + java_sum(given.values())
        for queue in self._queues:
            queue.update_rate(broker)

    def placement_state(self) -> PlacementState:
        """Return an empty state: brokers will report the placed bundles before the next run."""
        return PlacementState()


class _RateQueue:
    """Candidates ordered by rate, to find the lowest quickly; the caller reports each change to `update_rate`."""

    def __init__(
        self, candidates: Sequence[str], rates: Mapping[str, float], overloaded_names: Collection[str]
    ) -> None:
        self._rates = rates
        self._waiting = {broker for broker in candidates if broker not in overloaded_names}
        self._heap = [(rates.get(broker, 0.0), broker) for broker in self._waiting]
        heapify(self._heap)
        self._least: list[tuple[float, str]] = []

    def least_loaded_brokers(self, excluded_brokers: Collection[str]) -> list[str]:
        """Return the brokers with the lowest rate, sorted by name; empty if all are overloaded or left out."""
        # Placing a bundle only raises rates: brokers that had the smallest rate come first while any still has it.
        self._least = self._pop_lowest_rates([entry for entry in self._least if self._is_current(entry)])
        brokers = [broker for _, broker in self._least if broker not in excluded_brokers]
        passed_over: list[tuple[float, str]] = []
        while not brokers and self._heap:
            following = self._pop_lowest_rates([])
            brokers = [broker for _, broker in following if broker not in excluded_brokers]
            passed_over += following
        for entry in passed_over:
            heappush(self._heap, entry)
        return sorted(brokers)

    def _pop_lowest_rates(self, entries: list[tuple[float, str]]) -> list[tuple[float, str]]:
        while self._heap and (not entries or self._heap[0][0] <= entries[0][0]):
            entry = heappop(self._heap)
            if self._is_current(entry) and entry not in entries[-1:]:
                entries.append(entry)
        return entries

    def _is_current(self, entry: tuple[float, str]) -> bool:
        """Return whether an entry is current; outdated ones stay in the heap when a rate changes."""
        return entry[0] == self._rates.get(entry[1], 0.0)

    def update_rate(self, broker: str) -> None:
        entry = (self._rates.get(broker, 0.0), broker)
        if broker in self._waiting and entry not in self._least:
            heappush(self._heap, entry)


class LeastResourceUsageWithWeight:
    """The modular load manager's version (impl.LeastResourceUsageWithWeight): it computes averages itself."""

    def __init__(self, sample: ClusterSample, state: PlacementState) -> None:
        usage = sample.usage_by_broker()
        self._row_of = {broker: row for row, broker in enumerate(usage)}
        self._usage = np.fromiter(usage.values(), float)
        self._sample = sample
        self._history = sample.settings.history_percentage
        self._difference = sample.settings.usage_difference / 100
        self._averages = np.array([state.averages.get(broker, np.nan) for broker in usage], float)
        # Drop averages of brokers that are gone, as Pulsar does when the list of active brokers changes.
        self._others = {b: old for b, old in state.averages.items() if b in sample.all_brokers.names and b not in usage}
        self._rows = CandidatesCache(lambda brokers: np.array([self._row_of[broker] for broker in brokers], int))
        self._cache = CandidatesCache(self._eligible_by_call)

    @cached_property
    def _is_counted_in_full(self) -> npt.NDArray[np.bool_]:
        # An idle broker's past is meaningless: each of its samples counts in full.
        return np.array([_is_idle(broker) for broker in self._sample.compared_brokers], bool)

    def eligible_brokers(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Update the candidates' averages, and return those that are eligible (see `candidates_below_average`)."""
        return self._step(candidates)[0] if isinstance(candidates, SubsetView) else next(self._cache.get(candidates))

    def _eligible_by_call(self, candidates: Sequence[str]) -> Iterator[Sequence[str]]:
        while True:
            eligible, has_settled = self._step(candidates)
            yield eligible
            if has_settled:
                # Averages that one step leaves unchanged never change again, and neither do the eligible candidates.
                yield from repeat(eligible)

    def _step(self, candidates: Sequence[str]) -> tuple[Sequence[str], bool]:
        """Return the eligible candidates for one call, and True if no average changed."""
        rows = candidate_values(candidates, self._rows)
        usage, before = self._usage[rows], self._averages[rows]
        # As `scoring.smooth` does for one broker, with the same steps.
        moved = before * self._history + (1 - self._history) * usage
        after = np.where(self._is_counted_in_full[rows] | np.isnan(before), usage, moved)
        self._averages[rows] = after
        return candidates_below_average(candidates, after, self._difference), np.array_equal(before, after)

    def add_placement(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing, because only load reports change the usage."""

    def placement_state(self) -> PlacementState:
        averages = {broker: float(self._averages[row]) for broker, row in self._row_of.items()}
        known = {broker: average for broker, average in averages.items() if not isnan(average)}
        return PlacementState(averages=dict(sorted((self._others | known).items())))


class ExtensibleLeastResourceUsageWithWeight(StatelessPlacement):
    """The extensible load manager's version, with the averages that brokers report (`load_average`).

    As in org.apache.pulsar.broker.loadbalance.extensions.strategy.LeastResourceUsageWithWeight.
    """

    def __init__(self, sample: ClusterSample) -> None:
        averages = {broker.broker: broker.load_average for broker in sample.compared_brokers}
        self._averages = {broker: np.nan if average is None else average for broker, average in averages.items()}
        self._difference = sample.settings.usage_difference / 100
        self._of_each = CandidatesCache(self._reported_averages)
        self._cache = CandidatesCache(self._below_average)

    def eligible_brokers(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        return self._below_average(candidates) if isinstance(candidates, SubsetView) else self._cache.get(candidates)

    def _reported_averages(self, brokers: Sequence[str]) -> Floats:
        return np.array([self._averages.get(broker, np.nan) for broker in brokers], float)

    def _below_average(self, candidates: Sequence[str]) -> Sequence[str]:
        return candidates_below_average(candidates, candidate_values(candidates, self._of_each), self._difference)


def candidate_values(candidates: Sequence[str], cache: CandidatesCache[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if isinstance(candidates, SubsetView):
        return np.delete(cache.get(candidates.brokers), candidates.positions)
    return cache.get(candidates)


def candidates_below_average(candidates: Sequence[str], usage: Floats, difference: float) -> Sequence[str]:
    """Return the candidates at least `difference` below the average; all candidates if there are none.

    Usage 1 is 100 percent; NaN is unknown and not in the average.
    """
    known = usage[~np.isnan(usage)]
    # Values are added one by one, which `np.sum` does not do.
    average = np.cumsum(known)[-1] / len(known) if len(known) else np.nan
    is_below = usage + difference <= average
    if isinstance(candidates, SubsetView):
        of_all = np.zeros(len(candidates.brokers), bool)
        of_all[np.delete(np.arange(len(of_all)), candidates.positions)] = is_below
        return [candidates.brokers[row] for row in np.flatnonzero(of_all).tolist()] or candidates
    return [candidates[row] for row in np.flatnonzero(is_below).tolist()] or candidates


def _is_idle(broker: BrokerSample) -> bool:
    return not broker.bundles or not (broker.msg_rate_in or broker.msg_rate_out)


class AvgPlacement(StatelessPlacement):
    def eligible_brokers(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        return candidates


def make_selector(sample: ClusterSample, state: PlacementState) -> Selector:
    name = placement_of(sample.settings)
    if name is Placement.ROUND_ROBIN:
        return RoundRobin(state)
    if name is Placement.AVG:
        return AvgPlacement()
    if name is Placement.LEAST_RATE:
        return LeastLongTermMessageRate(sample)
    if not sample.all_brokers.report_age_by_broker.keys() <= sample.left_out_reasons.keys():  # extensible load manager
        return ExtensibleLeastResourceUsageWithWeight(sample)
    return LeastResourceUsageWithWeight(sample, state)


def choose_destinations(
    sample: ClusterSample,
    moves: Iterable[CandidateMove],
    policy_filter: Callable[[], PolicyFilter],
    state: PlacementState,
    seed: str,
) -> tuple[list[CandidateMove], PlacementState]:
    """Choose destinations for moves without a destination, and check those that the shedder planned.

    Return the moves, sorted by pair and rank, and the placement's new state. Every accepted move has a destination; a
    refused one has a `reason` with `Trait.KEPT_IN_PLACE`. Bundles of a swap are placed together or not at all.

    A placed bundle counts as owned by its destination for later ones, although its move could still fail; so
    `caps.apply_caps` allows one bundle per anti-affinity group. This follows ModularLoadManagerImpl.doLoadShedding and
    selectBroker, but Pulsar does not check planned destinations. The same `seed` gives the same plan.
    """
    chooser = make_selector(sample, state)
    taken, placed = group_into_units(moves)
    if not taken:  # as in most samples: neither the policies nor the loads matter
        return sort_by_pair_rank(placed), chooser.placement_state()
    policies, hot = policy_filter(), overloaded_brokers(sample)
    for unit in taken:
        destinations = [_destination_or_reason(move, policies, chooser, hot, seed) for move in unit]
        refused = next((reason for reason in destinations if isinstance(reason, Reason)), None)
        if refused is not None:
            placed += [move._replace(reason=refused) for move in unit]
            continue
        for move, destination in zip(unit, destinations, strict=True):
            placed.append(move._replace(destination=destination))
            bundle = sample.bundles.find(move.source, move.bundle)
            chooser.add_placement(bundle, destination)
            policies.add_placement(bundle, destination)
    return sort_by_pair_rank(placed), chooser.placement_state()


def _destination_or_reason(
    move: CandidateMove, policy_filter: PolicyFilter, selector: Selector, overloaded_names: Collection[str], seed: str
) -> str | Reason:
    if move.destination == move.source:
        return Reason.SAME_BROKER
    if move.destination is not None:
        return policy_filter.refusal_reason(move.bundle, move.source, move.destination) or move.destination
    held = policy_filter.stay_reason(move.bundle, move.source)
    if held is not None:
        return held
    chosen = _choose_destination(move.bundle, policy_filter, selector, overloaded_names, seed)
    if chosen is None:
        return Reason.NO_DESTINATION
    return Reason.SAME_BROKER if chosen == move.source else chosen


def _choose_destination(
    bundle: str, policy_filter: PolicyFilter, selector: Selector, overloaded_names: Collection[str], seed: str
) -> str | None:
    best = choose_broker(seed, bundle, selector.eligible_brokers(bundle, policy_filter.candidate_brokers(bundle)))
    if best not in overloaded_names:
        return best
    return choose_broker(seed, bundle, selector.eligible_brokers(bundle, policy_filter.allowed_brokers(bundle))) or best
