"""The brokers that may take a bundle: those that policies permit, then those from which Pulsar would choose.

The rules follow the modular load manager (ModularLoadManagerImpl.selectBroker, LoadManagerShared). Pulsar's
filter by load manager class is not needed, because clusters with two load managers are not balanced.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Generic, NamedTuple, Protocol, TypeVar, overload

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.isolation import Policies, policy_of
from pulsar_rebalancer.names import SYSTEM_NAMESPACE, namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import Bundles, BundleSample
from pulsar_rebalancer.run.tables import BrokerSample
from pulsar_rebalancer.state import PlacementState
from pulsar_rebalancer.strategies.sample import ClusterSample

T = TypeVar("T")


class Selector(Protocol):
    """A placement for one run of one cluster (ModularLoadManagerStrategy)."""

    def eligible_brokers(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return the candidates from which the destination is drawn, sorted by name; empty if there are none.

        Each call corresponds to a call to Pulsar's `selectBroker`, so it updates averages and counters. A
        bundle is `tenant/namespace/0x…_0x…`; candidates are brokerIds, sorted by name.
        """

    def add_placement(self, bundle: BundleSample, broker: str) -> None:
        """Record that a bundle was placed on a broker."""

    def placement_state(self) -> PlacementState:
        """Return the state for the next run."""


class StatelessPlacement:
    """A placement that has no state and ignores where earlier bundles were placed."""

    def add_placement(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing, because this placement does not depend on earlier placements."""

    def placement_state(self) -> PlacementState:
        return PlacementState()


class CandidatesCache(Generic[T]):
    """A cache for values computed from lists of candidates, found by the same list object.

    Nearly all bundles have the same candidates; without the cache, every broker would be examined for every
    bundle. A list that occurs only once does not replace the common list.
    """

    def __init__(self, compute: Callable[[Sequence[str]], T]) -> None:
        self._make = compute
        self._state: list[tuple[Sequence[str], T]] = []

    def get(self, candidates: Sequence[str]) -> T:
        cached = next((entry for entry in self._state if entry[0] is candidates), None)
        if cached is None:
            cached = candidates, self._make(candidates)
            self._state = [*self._state[:1], cached]
        elif cached is not self._state[0]:
            self._state.reverse()
        return cached[1]

    def __iter__(self) -> Iterator[T]:
        return (made for _, made in self._state)


def choose_broker(seed: str, bundle: str, eligible_brokers: Sequence[str]) -> str | None:
    """Return one of the eligible brokers, which must be sorted by name; None if there are none.

    Pulsar draws at random. Here, a hash of the bundle and the seed, one per run, makes a repeated decision
    give the same plan.
    """
    digest = blake2b(f"{seed}/{bundle}".encode(), digest_size=8).digest()
    return eligible_brokers[int.from_bytes(digest) % len(eligible_brokers)] if eligible_brokers else None


def overloaded_brokers(sample: ClusterSample) -> set[str]:
    limit = sample.settings.overloaded_threshold / 100
    return {broker for broker, usage in sample.usage_by_broker().items() if usage > limit}


class SubsetView(Sequence[str]):
    """A view of a list of brokers that omits a few of them, in the same order.

    Pass the same list object while it is unchanged, for the cache in `CandidatesCache`; `index_of` is each
    broker's index.
    """

    def __init__(self, brokers: Sequence[str], index_of: Mapping[str, int], omitted_brokers: Collection[str]) -> None:
        self.brokers = brokers
        self.without = frozenset(omitted_brokers)
        self.positions = sorted(index_of[broker] for broker in self.without)
        self._position = index_of

    def __len__(self) -> int:
        return len(self.brokers) - len(self.positions)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return list(self)[index]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        # Before the n-th missing broker (counted from 0), the number of brokers left is that broker's position minus n.
        before = bisect_left(range(len(self.positions)), index + 1, key=lambda rank: self.positions[rank] - rank)
        return self.brokers[index + before]

    def __iter__(self) -> Iterator[str]:
        return (broker for broker in self.brokers if broker not in self.without)

    def __contains__(self, broker: object) -> bool:
        return broker in self._position and broker not in self.without

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def all_and_omitted_brokers(candidates: Sequence[str]) -> tuple[Sequence[str], frozenset[str]]:
    """Return the full list that the candidates come from, and the brokers in it that are not candidates."""
    if isinstance(candidates, SubsetView):
        return candidates.brokers, candidates.without
    return candidates, frozenset()


_SEMANTIC_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


def latest_version_brokers(candidates: Sequence[str], version_by_broker: Mapping[str, str | None]) -> list[str]:
    """Return the candidates with the latest version; empty if one cannot be read (BrokerVersionFilter)."""
    parsed = {broker: _parsed_version(version_by_broker.get(broker)) for broker in candidates}
    if not parsed or None in parsed.values():
        return []
    latest_version_brokers = max(version for version in parsed.values() if version is not None)
    return [broker for broker in candidates if parsed[broker] == latest_version_brokers]


class _SemanticVersion(NamedTuple):
    """A comparable semantic version; a pre-release is earlier than its release."""

    numbers: tuple[int, ...]
    is_release: bool
    identifiers: tuple[tuple[bool, int, str], ...]


def _parsed_version(text: str | None) -> _SemanticVersion | None:
    match = _SEMANTIC_VERSION.fullmatch(text or "")
    if match is None:
        return None
    identifiers = match[4].split(".") if match[4] else []
    order = tuple((not i.isdecimal(), int(i) if i.isdecimal() else 0, i) for i in identifiers)
    return _SemanticVersion(tuple(int(match[n]) for n in (1, 2, 3)), not identifiers, order)


def allowed_brokers(policies: Policies, namespace: str, brokers: Sequence[str]) -> list[str]:
    """Return the brokers that policies permit for a namespace (LoadManagerShared.applyNamespacePolicies).

    These are the isolation policy's brokers, else those that no policy reserves and that accept persistent topics;
    empty if the policies are unknown. `brokers` includes those left out, which count towards failover.
    """
    if namespace in policies.unknown:
        return []
    policy = policy_of(policies.isolation, namespace)
    if policy is not None:
        return policy.allowed_brokers(brokers)
    closed = set(policies.without_persistent)
    return [broker for broker in brokers if broker not in closed and policies.reserving_policy(broker) is None]


def brokers_below_ceiling(candidates: Sequence[str], topics: Mapping[str, int], ceiling: int) -> list[str]:
    """Return the candidates with at most `ceiling` topics; all candidates if there are none.

    As in LoadManagerShared.filterBrokersWithLargeTopicCount.
    """
    return [broker for broker in candidates if topics.get(broker, 0) <= ceiling] or list(candidates)


def filter_by_group(
    candidates: Sequence[str], count_by_place: Mapping[str, int], domains: Mapping[str, str]
) -> list[str]:
    """Return the candidates with the fewest namespaces of a group, in the domains with the fewest (if any).

    As in LoadManagerShared.filterAntiAffinityGroupOwnedBrokers. `count_by_place` counts the namespaces on each broker.
    """
    if domains:
        of_domain = counts_by_domain({broker: count_by_place.get(broker, 0) for broker in candidates}, domains)
        least = min(of_domain.values(), default=0)
        candidates = [broker for broker in candidates if of_domain[domains.get(broker, "")] == least]
    return lowest_count_brokers(candidates, count_by_place)


def counts_by_domain(count_by_place: Mapping[str, int], domains: Mapping[str, str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for broker, count in count_by_place.items():
        counts[domains.get(broker, "")] += count
    return counts


def lowest_count_brokers(candidates: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    """Return the candidates with the lowest count (LoadManagerShared.removeMostServicingBrokersForNamespace)."""
    least = min((counts.get(broker, 0) for broker in candidates), default=0)
    return [broker for broker in candidates if counts.get(broker, 0) == least]


def group_allows_leaving(candidates: Sequence[str], count_by_place: Mapping[str, int]) -> bool:
    """Return whether a bundle may leave its broker (LoadManagerShared.shouldAntiAffinityNamespaceUnload).

    It may not if all candidates have the same number of the group's namespaces (`count_by_place`), other than 0. As
    in Pulsar, it always may if its broker has more of them than another candidate.
    """
    if not candidates:
        return True
    first = count_by_place.get(candidates[0], 0)
    # One of the first few brokers nearly always decides, so this rarely visits all ten thousand brokers.
    return first == 0 or any(count_by_place.get(broker, 0) != first for broker in candidates)


def keeps_group_spread(count_by_place: Mapping[str, int], source: str, destination: str, *, is_last: bool) -> bool:
    """Return whether a move keeps an anti-affinity group at least as evenly distributed (our own rule).

    `count_by_place` counts the namespaces by place: broker or failure domain. Unless the source's last bundle of the
    namespace `is_last`, the destination must have no other namespace of the group.
    """
    return count_by_place.get(destination, 0) < (count_by_place.get(source, 0) if is_last else 1)


class PolicyFilter:
    """The rules for one cluster. A placed bundle counts as owned by its destination for later placements.

    Brokers left out cannot be destinations.
    """

    def __init__(
        self, policies: Policies, brokers: Iterable[BrokerSample], bundles: Bundles, settings: Settings
    ) -> None:
        by_name = sorted(brokers, key=lambda broker: broker.broker)
        self._policies = policies
        self._settings = settings
        self._active = [broker.broker for broker in by_name]
        self._taking_part = {broker.broker for broker in by_name if broker.left_out is None}
        versions = {broker.broker: broker.version for broker in by_name}
        self._versions = versions
        self._latest = CandidatesCache(lambda candidates: latest_version_brokers(candidates, versions))
        self._positions = CandidatesCache(lambda candidates: {broker: n for n, broker in enumerate(candidates)})
        self._topics = Counter({broker.broker: broker.topics for broker in by_name})
        self._most_topics = max(self._topics.values(), default=0)
        self._spread: dict[str, Counter[str]] = {group: Counter() for group in policies.groups.values()}
        self._sets: dict[str | None, list[str]] = {}
        self._members: dict[str | None, frozenset[str]] = {}
        self._rulings: dict[str, str | None] = {}
        counted = None if settings.even_distribution else {SYSTEM_NAMESPACE, *policies.groups}
        # A dry run of a roll makes two filters per broker, so counts are copied only once they change.
        self._serving = dict(bundles.bundle_counts(counted))
        self._changed: set[str] = set()
        for namespace, group in policies.groups.items():
            self._spread[group].update(self._serving.get(namespace, {}).keys())

    def allowed_brokers(self, bundle: str) -> list[str]:
        """Return the brokers that policies permit for a bundle, sorted by name, without those left out."""
        namespace = namespace_of(bundle)
        # All namespaces under the same policy, or under no policy, share one list.
        ruling = self._ruling_policy(namespace)
        if ruling not in self._sets:
            allowed = allowed_brokers(self._policies, namespace, self._active)
            self._sets[ruling] = [broker for broker in allowed if broker in self._taking_part]
            self._members[ruling] = frozenset(self._sets[ruling])
        return self._sets[ruling]

    def _ruling_policy(self, namespace: str) -> str | None:
        if namespace not in self._rulings:
            policy = policy_of(self._policies.isolation, namespace)
            unknown = namespace in self._policies.unknown
            self._rulings[namespace] = "" if unknown else policy.name if policy else None
        return self._rulings[namespace]

    def candidate_brokers(self, bundle: str) -> Sequence[str]:
        """Return the brokers from which placement chooses, as in selectBroker; can include the bundle's owner."""
        namespace, allowed = namespace_of(bundle), self.allowed_brokers(bundle)
        found: Sequence[str] = allowed
        if self._most_topics > self._settings.max_broker_topics:
            found = brokers_below_ceiling(allowed, self._topics, self._settings.max_broker_topics)
        if namespace in self._policies.groups:
            spread, domains = self._group_spread(namespace), self._policies.domains
            found = filter_by_group(found, spread, domains) if domains else self._lowest_count_brokers(found, spread)
        if self._settings.even_distribution or namespace == SYSTEM_NAMESPACE:
            found = self._lowest_count_brokers(found, self._serving.get(namespace, {}))
        if self._settings.prefer_later_versions:
            found = self._latest_version_brokers(found)
        return found or allowed

    def _lowest_count_brokers(self, candidates: Sequence[str], counts: Mapping[str, int]) -> Sequence[str]:
        """Return the result of `lowest_count_brokers`; for speed, it usually examines only the brokers with a count."""
        brokers, without = all_and_omitted_brokers(candidates)
        position = self._positions.get(brokers)
        serving = {broker for broker, count in counts.items() if count and broker in position} | without
        if len(serving) == len(brokers) or any(counts.get(broker, 0) < 0 for broker in serving):
            return lowest_count_brokers(candidates, counts)
        return SubsetView(brokers, position, serving) if serving else candidates

    def _latest_version_brokers(self, candidates: Sequence[str]) -> Sequence[str]:
        brokers, without = all_and_omitted_brokers(candidates)
        chosen = self._latest.get(brokers)
        if not without:
            return chosen
        position = self._positions.get(chosen)
        missing = without & position.keys()
        if len(missing) == len(chosen):
            return latest_version_brokers(candidates, self._versions)
        return SubsetView(chosen, position, missing) if missing else chosen

    def stay_reason(self, bundle: str, source: str) -> Reason | None:
        """Return why a bundle must stay (`policy_unknown`, `policy_forbids`, `anti_affinity`), or None.

        As in ModularLoadManagerImpl.shouldNamespacePoliciesUnload and shouldAntiAffinityNamespaceUnload.
        """
        namespace, allowed = namespace_of(bundle), self.allowed_brokers(bundle)
        if namespace in self._policies.unknown:
            return Reason.POLICY_UNKNOWN
        if not any(broker != source for broker in allowed):
            return Reason.POLICY_FORBIDS
        if namespace in self._policies.groups and not group_allows_leaving(allowed, self._group_spread(namespace)):
            return Reason.ANTI_AFFINITY
        return None

    def refusal_reason(self, bundle: str, source: str, destination: str) -> Reason | None:
        """Return why a bundle must not move to its destination: as `stay_reason`, `no_destination`, `too_many_topics`.

        Pulsar does not check destinations that are chosen manually. Here, isolation policies, the topic
        ceiling and even anti-affinity groups are required.
        """
        held = self.stay_reason(bundle, source)
        if held is not None:
            return held
        if destination not in self._taking_part:
            return Reason.NO_DESTINATION
        allowed, namespace = self.allowed_brokers(bundle), namespace_of(bundle)
        if destination not in self._members[self._ruling_policy(namespace)]:
            return Reason.POLICY_FORBIDS
        limit = self._settings.max_broker_topics
        if self._topics[destination] > limit and destination not in brokers_below_ceiling(allowed, self._topics, limit):
            return Reason.TOO_MANY_TOPICS
        if namespace in self._policies.groups and not self._keeps_group_spread(namespace, source, destination):
            return Reason.ANTI_AFFINITY
        return None

    def _keeps_group_spread(self, namespace: str, source: str, destination: str) -> bool:
        serving, spread, domains = self._serving[namespace], self._group_spread(namespace), self._policies.domains
        if serving[destination]:
            return True
        leaves = serving[source] == 1
        ends = domains.get(source, ""), domains.get(destination, "")
        if ends[0] != ends[1] and not keeps_group_spread(counts_by_domain(spread, domains), *ends, is_last=leaves):
            return False
        return keeps_group_spread(spread, source, destination, is_last=leaves)

    def add_placement(self, bundle: BundleSample, destination: str) -> None:
        namespace = namespace_of(bundle.bundle)
        # The source keeps its reported number of topics: Pulsar does not lower it before the next report.
        self._topics[destination] += bundle.topics
        self._most_topics = max(self._most_topics, self._topics[destination])
        self._count_namespace(namespace, bundle.broker, -1)
        self._count_namespace(namespace, destination, 1)

    def _group_spread(self, namespace: str) -> Counter[str]:
        return self._spread[self._policies.groups[namespace]]

    def _count_namespace(self, namespace: str, broker: str, step: int) -> None:
        if namespace not in self._changed:
            self._serving[namespace] = Counter(self._serving.get(namespace))
            self._changed.add(namespace)
        serving = self._serving[namespace]
        before = serving[broker] > 0
        serving[broker] += step
        group = self._policies.groups.get(namespace)
        if group is not None:
            self._spread[group][broker] += (serving[broker] > 0) - before
