"""Choose the bundles that two brokers exchange in TransferShedder.

Some bundles move to the destination; others can move back.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import SYSTEM_NAMESPACE, namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, amount_text

THROUGHPUT_STEP = 1e5  # bytes/s
RATE_STEP = 100  # msg/s
CONNECTIONS_STEP = 500
CACHE_STEP = 100_000  # bytes


def top_bundles(sample: ClusterSample, broker: str) -> list[BundleSample]:
    """Return a broker's top bundles, smallest first.

    Brokers that use the extensible load manager report their top bundles (`top_rank`). For other brokers, the same rule
    is applied here (TopKBundles.update in 4.2.4). Quarantined bundles, bundles in system and excluded namespaces, and
    bundles without throughput are never top bundles. Bundles with policies are included only if `shed_policy_bundles`
    is set.
    """
    bundles = sample.shed_candidates(broker)
    ranks = {bundle.bundle: bundle.top_rank for bundle in bundles if bundle.top_rank is not None}
    if ranks:
        return sorted((bundle for bundle in bundles if bundle.bundle in ranks), key=lambda bundle: ranks[bundle.bundle])
    candidates = (bundle for bundle in bundles if _is_candidate(sample.settings, bundle))
    busiest = heapq.nlargest(sample.settings.top_bundles, candidates, key=size_key)
    return sorted(busiest, key=lambda bundle: (size_key(bundle), bundle.bundle))


def size_key(bundle: BundleSample) -> tuple[int, ...]:
    """Return a bundle's size for comparisons, rounded so that small differences do not matter.

    As in NamespaceBundleStats.compareTo since apache/pulsar #24772.
    """
    return (
        _step_count(bundle.msg_throughput_in, THROUGHPUT_STEP),
        _step_count(bundle.msg_throughput_out, THROUGHPUT_STEP),
        _step_count(bundle.present_msg_rate, RATE_STEP),
        (bundle.topics + bundle.producers + bundle.consumers) // CONNECTIONS_STEP,
        bundle.cache_size // CACHE_STEP,
    )


def _is_candidate(settings: Settings, bundle: BundleSample) -> bool:
    return (
        namespace_of(bundle.bundle) != SYSTEM_NAMESPACE
        and (settings.shed_policy_bundles or bundle.policy is None)
        and bundle.reason not in (Reason.NAMESPACE_EXCLUDED, Reason.BUNDLE_QUARANTINED)
        and bundle.present_msg_throughput > 0
    )


def _step_count(value: float, step: float) -> int:
    # Java's Math.round: halves are rounded up.
    return math.floor(value / step + 0.5)


MEASURE = Measure.THROUGHPUT

NEVER_SWAPPED = (
    Reason.SYSTEM_NAMESPACE,
    Reason.NAMESPACE_EXCLUDED,
    Reason.BUNDLE_EXCLUDED,
    Reason.BUNDLE_QUARANTINED,
    Reason.TO_BE_SPLIT,
)
"""Reasons that also exclude a bundle from swaps. As in Pulsar, bundles in their grace period may be swapped."""

SWAP_LIMIT = 0.75
"""A swap must lower the source's throughput below this share of its value before the swap."""


@dataclass
class PairTransfer:
    """The choice of bundles for one pair, from the source's top bundles, smallest first.

    Current traffic is compared, not moving averages.

    Attributes:
        pair_number: number of the decision.
        source: the broker that sheds bundles.
        destination: the broker that receives the bundles.
        target_throughput: throughput to move to the destination in bytes/s.
        moves: the candidates; each accepted bundle is followed by the bundles that move back in exchange for it.
        leaving_throughput: throughput of the bundles that move to the destination in bytes/s.
        returning_throughput: throughput of the bundles that move back in bytes/s, if counted (`credit_swaps`).
    """

    sample: ClusterSample
    pair_number: int
    source: BrokerLoad
    destination: BrokerLoad
    target_throughput: float
    moves: list[CandidateMove] = field(default_factory=list)
    leaving_throughput: float = 0.0
    returning_throughput: float = 0.0

    def add_candidates(self, bundles: list[BundleSample]) -> None:
        """Choose bundles to move from the source. At least one bundle always remains on the source."""
        transfer = self.sample.settings.transfer
        back = iter(top_bundles(self.sample, self.destination.broker) if transfer else ())
        remaining = len(bundles)
        ended = False
        for bundle in bundles:
            swapped: list[BundleSample] = []
            reason = bundle.reason or self._policy_reason(bundle, self.destination)
            if reason is None and ended:
                reason = Reason.NOT_REACHED
            elif reason is None:
                reason, swapped = self._fit_bundle(bundle, remaining, back)
                ended = reason in (Reason.NOT_REACHED, Reason.OVER_REMAINING)
            self._add_candidate(bundle, reason, self.destination if transfer else None)
            if reason is Reason.TAKEN:
                self.leaving_throughput += bundle.present_msg_throughput
                remaining -= 1
                self._add_swapped_bundles(swapped)

    def _fit_bundle(
        self, bundle: BundleSample, remaining_count: int, candidates: Iterator[BundleSample]
    ) -> tuple[Reason, list[BundleSample]]:
        """Return the reason code for a candidate bundle, and the bundles that move back in exchange for it."""
        leaving = bundle.present_msg_throughput
        if remaining_count <= 1:
            return Reason.NOT_REACHED, []
        if leaving == 0:
            return Reason.NO_TRAFFIC, []
        if self.leaving_throughput - self.returning_throughput + leaving <= self.target_throughput:
            return Reason.TAKEN, []
        swapped = self._bundles_in_exchange(leaving, candidates)
        return (Reason.TAKEN if swapped else Reason.OVER_REMAINING), swapped

    def _bundles_in_exchange(self, leaving: float, candidates: Iterator[BundleSample]) -> list[BundleSample]:
        """Return bundles to move back in exchange for a bundle that is too large; empty if there are none.

        Args:
            leaving: throughput of the large bundle in bytes/s.
            candidates: the destination's top bundles that have not been considered yet.
        """
        most = self.source.throughput
        ours = most - self.leaving_throughput + self.returning_throughput - leaving
        theirs = self.destination.throughput + self.leaving_throughput - self.returning_throughput + leaving
        accepted: list[BundleSample] = []
        for bundle in candidates:
            returning = bundle.present_msg_throughput
            if self._is_barred(bundle) or returning == 0:
                continue
            if ours + returning < most and theirs - returning < most:
                accepted.append(bundle)
                ours, theirs = ours + returning, theirs - returning
                if theirs <= ours and ours < most * SWAP_LIMIT:
                    return accepted
        return []

    def _add_swapped_bundles(self, bundles: list[BundleSample]) -> None:
        for bundle in bundles:
            self._add_candidate(bundle, Reason.TAKEN, self.source)
            if self.sample.settings.credit_swaps:
                self.returning_throughput += bundle.present_msg_throughput

    def _is_barred(self, bundle: BundleSample) -> bool:
        return bundle.reason in NEVER_SWAPPED or self._policy_reason(bundle, self.source) is not None

    def _policy_reason(self, bundle: BundleSample, destination: BrokerLoad) -> Reason | None:
        """Return why policies forbid a destination; None if they allow it (TransferShedder.isTransferable)."""
        if bundle.policy is not None and not self.sample.settings.shed_policy_bundles:
            return Reason.POLICY_FORBIDS
        return self.sample.forbids(bundle.bundle, bundle.broker, destination.broker)

    def _add_candidate(self, bundle: BundleSample, reason: Reason, destination: BrokerLoad | None) -> None:
        self.moves.append(
            CandidateMove.new(
                bundle,
                pair=self.pair_number,
                rank=len(self.moves),
                measure=MEASURE,
                reason=reason,
                destination=destination.broker if destination else None,
                traffic=bundle.present_msg_throughput,
            )
        )


class BrokerLoad(NamedTuple):
    """The load of one broker.

    Attributes:
        broker: the broker's name.
        load: moving average of the broker's highest weighted resource usage; 1 is 100 percent.
        throughput_average: moving average of the broker's throughput in bytes/s.
        throughput: the broker's current throughput in bytes/s.
        report_age_s: seconds since the broker's report; None if unknown.
    """

    broker: str
    load: float
    throughput_average: float
    throughput: float
    report_age_s: float | None = None


class Imbalance(NamedTuple):
    """The reason why two brokers should exchange bundles.

    `value` is above `bound` for the kind `overloaded`, else below it.
    """

    imbalance_kind: str
    value: float
    bound: float
    sentence: str


class LoadStats:
    """Brokers, the least loaded first. Those from `least_loaded` to `most_loaded` are not paired yet.

    The algorithm follows `TransferShedder.LoadStats`. A broker with an outdated report is excluded from the mean and
    the standard deviation, but can still exchange bundles.

    Attributes:
        mean: mean of the loads.
        std: standard deviation of the loads, including the effect of moves recorded with `record_move`.
    """

    def __init__(self, loads: Iterable[BrokerLoad], settings: Settings) -> None:
        """Sort the brokers by load, and compute the mean and the standard deviation."""
        self._settings = settings
        self._ordered = sorted(loads, key=lambda load: (load.load, load.broker))
        self._least, self._most = 0, len(self._ordered) - 1
        counted = [load.load for load in self._ordered if not is_outdated(load, settings)]
        self.counted = len(counted)
        self.mean = math.fsum(counted) / self.counted if counted else 0.0
        self._squares = math.fsum(load * load for load in counted)
        self.std = math.sqrt(max(0.0, self._squares / self.counted - self.mean * self.mean)) if counted else 0.0

    @property
    def least_loaded(self) -> BrokerLoad:
        return self._ordered[self._least]

    @property
    def most_loaded(self) -> BrokerLoad:
        return self._ordered[self._most]

    @property
    def has_pair(self) -> bool:
        return self._least < self._most

    def imbalance(self) -> Imbalance | None:
        target = self._settings.target_std
        if self.std > target:
            words = f"the standard deviation of the loads is {self.std:.3f}, above {target:g}"
            return Imbalance("overloaded", self.std, target, words)
        return self._underload(min(0.5, max(0.0, target / 2))) or self._overload(target)

    def _underload(self, share: float) -> Imbalance | None:
        least, most = self.least_loaded, self.most_loaded
        bound = self.mean * share
        if least.load < bound:
            words = f"the load of {least.broker} is {least.load:.1%}, below {share:.0%} of the mean ({self.mean:.1%})"
            return Imbalance("underloaded", least.load, bound, words)
        bound = most.throughput_average * share
        if least.throughput_average < bound:
            carried = amount_text(Measure.THROUGHPUT, least.throughput_average)
            words = f"{least.broker} carries {carried}, less than {share:.0%} of the traffic of {most.broker}"
            return Imbalance("underloaded", least.throughput_average, bound, words)
        return None

    def _overload(self, target: float) -> Imbalance | None:
        bound = max(self._settings.overloaded_threshold / 100, self.mean + target)
        if self.most_loaded.load > bound:
            words = f"the load of {self.most_loaded.broker} is {self.most_loaded.load:.1%}, above {bound:.1%}"
            return Imbalance("overloaded", self.most_loaded.load, bound, words)
        return None

    def next_pair(self) -> tuple[BrokerLoad, BrokerLoad]:
        pair = self.most_loaded, self.least_loaded
        self._most -= 1
        return pair

    def record_move(self, source: BrokerLoad, destination: BrokerLoad, load: float) -> None:
        """Record that load moves from the source to the destination. The destination then receives no more bundles."""
        self._squares -= source.load * source.load + destination.load * destination.load
        self._squares += max(0.0, source.load - load) ** 2 + (destination.load + load) ** 2
        self.std = math.sqrt(abs(self._squares / self.counted - self.mean * self.mean))
        self._least += 1


def is_outdated(load: BrokerLoad, settings: Settings) -> bool:
    return load.report_age_s is not None and load.report_age_s > settings.load_data_ttl_seconds
