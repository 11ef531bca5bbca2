"""Place bundles that lost their broker between two samples, as the load manager's leader does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pulsar_rebalancer.replay.minute import NO_POLICIES
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.strategies.placement.placements import selector
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.placement.selector import choose, overloaded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pulsar_rebalancer.policies.cluster_policies import Policies
    from pulsar_rebalancer.strategies.kept import KeptState
    from pulsar_rebalancer.strategies.placement.selector import Selector
    from pulsar_rebalancer.strategies.sample import ClusterSample


@dataclass
class Placing:
    """Places bundles between two load reports (ModularLoadManagerImpl.selectBroker).

    Args:
        sample: the cluster as of the last load reports.

    Attributes:
        used: True if any bundle was placed.
    """

    sample: ClusterSample
    kept: KeptState
    seed: str
    policies: Policies = NO_POLICIES
    used: bool = False

    @cached_property
    def chooser(self) -> Selector:
        """Return the placement strategy that the settings select."""
        return selector(self.sample, self.kept.placement)

    @cached_property
    def _filter(self) -> PolicyFilter:
        return PolicyFilter(self.policies, self.sample.brokers, self.sample.bundles, self.sample.settings)

    @cached_property
    def _hot(self) -> set[str]:
        return overloaded(self.sample)

    def broker(self, bundle: str, rate: float, topics: int, registered: Collection[str]) -> str | None:
        """Return the broker that placement chooses for a bundle; None if no broker may own it.

        Args:
            rate: the bundle's long-term message rate in msg/s.
            registered: brokers that the cluster lists now.
        """
        self.used = True
        chosen = self._choose(bundle, self._filter.candidates(bundle), registered)
        if chosen in self._hot:
            chosen = self._choose(bundle, self._filter.policy_set(bundle), registered) or chosen
        if chosen is not None:
            placed = BundleSample("", bundle, topics=topics, long_term_msg_rate=rate)
            self.chooser.placed(placed, chosen)
            self._filter.placed(placed, chosen)
        return chosen

    def _choose(self, bundle: str, candidates: Iterable[str], registered: Collection[str]) -> str | None:
        there = [name for name in candidates if name in registered]
        return choose(self.seed, bundle, self.chooser.eligible(bundle, there))
