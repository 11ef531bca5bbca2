"""Choose the bundles that two brokers exchange in TransferShedder.

Some bundles move to the destination; others can move back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies.sample import CandidateMove
from pulsar_rebalancer.strategies.shedders.top_bundles import top_bundles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.strategies.sample import ClusterSample
    from pulsar_rebalancer.strategies.shedders.load_stats import BrokerLoad

MEASURE = Measure.THROUGHPUT

NEVER_MOVED = (
    Reason.SYSTEM_NAMESPACE,
    Reason.NAMESPACE_EXCLUDED,
    Reason.BUNDLE_EXCLUDED,
    Reason.BUNDLE_QUARANTINED,
    Reason.TO_BE_SPLIT,
)
"""Reasons that exclude a bundle from swaps too. As in Pulsar, the grace period is not one of them."""

SWAP_LIMIT = 0.75
"""A swap must bring the source below this share of its throughput."""


@dataclass
class PairTransfer:
    """The choice of bundles for one pair, from the source's top bundles, smallest first.

    Current traffic is compared, not moving averages.

    Attributes:
        number: number of the decision.
        source: the broker that sheds bundles.
        destination: the broker that receives the bundles.
        target: throughput to move to the destination in bytes/s.
        moves: the candidates; each accepted bundle is followed by the bundles that move back in exchange for it.
        left: throughput of the bundles that move to the destination in bytes/s.
        gained: throughput of the bundles that move back in bytes/s, as far as it is counted (see `credit_swaps`).
    """

    sample: ClusterSample
    number: int
    source: BrokerLoad
    destination: BrokerLoad
    target: float
    moves: list[CandidateMove] = field(default_factory=list)
    left: float = 0.0
    gained: float = 0.0

    def run(self, bundles: list[BundleSample]) -> None:
        """Choose bundles to move from the source. At least one bundle always remains on the source."""
        transfer = self.sample.settings.transfer
        back = iter(top_bundles(self.sample, self.destination.broker) if transfer else ())
        remaining = len(bundles)
        ended = False
        for bundle in bundles:
            swapped: list[BundleSample] = []
            reason = bundle.reason or self._policies(bundle, self.destination)
            if reason is None and ended:
                reason = Reason.NOT_REACHED
            elif reason is None:
                reason, swapped = self._fit(bundle, remaining, back)
                ended = reason in (Reason.LAST_BUNDLE, Reason.OVER_REMAINING)
            self._add(bundle, reason, self.destination if transfer else None)
            if reason is Reason.TAKEN:
                self.left += bundle.present_msg_throughput
                remaining -= 1
                self._swap_in(swapped)

    def _fit(
        self, bundle: BundleSample, remaining: int, back: Iterator[BundleSample]
    ) -> tuple[Reason, list[BundleSample]]:
        """Return the reason code for a candidate bundle, and the bundles that move back in exchange for it."""
        leaving = bundle.present_msg_throughput
        if remaining <= 1:
            return Reason.LAST_BUNDLE, []
        if leaving == 0:
            return Reason.NO_TRAFFIC, []
        if self.left - self.gained + leaving <= self.target:
            return Reason.TAKEN, []
        swapped = self._swap(leaving, back)
        return (Reason.TAKEN if swapped else Reason.OVER_REMAINING), swapped

    def _swap(self, leaving: float, back: Iterator[BundleSample]) -> list[BundleSample]:
        """Return bundles to move back in exchange for a bundle that is too large; empty if there are none.

        Args:
            leaving: throughput of the large bundle in bytes/s.
            back: the destination's top bundles that have not been considered yet.
        """
        most = self.source.throughput
        ours = most - self.left + self.gained - leaving
        theirs = self.destination.throughput + self.left - self.gained + leaving
        accepted: list[BundleSample] = []
        for bundle in back:
            returning = bundle.present_msg_throughput
            if self._kept_back(bundle) or returning == 0:
                continue
            if ours + returning < most and theirs - returning < most:
                accepted.append(bundle)
                ours, theirs = ours + returning, theirs - returning
                if theirs <= ours and ours < most * SWAP_LIMIT:
                    return accepted
        return []

    def _swap_in(self, bundles: list[BundleSample]) -> None:
        for bundle in bundles:
            self._add(bundle, Reason.TAKEN, self.source)
            if self.sample.settings.credit_swaps:
                self.gained += bundle.present_msg_throughput

    def _kept_back(self, bundle: BundleSample) -> bool:
        return bundle.reason in NEVER_MOVED or self._policies(bundle, self.source) is not None

    def _policies(self, bundle: BundleSample, destination: BrokerLoad) -> Reason | None:
        """Return why policies forbid a destination; None if they allow it (TransferShedder.isTransferable)."""
        if bundle.policy is not None and not self.sample.settings.shed_policy_bundles:
            return Reason.NAMESPACE_POLICY
        return self.sample.forbids(bundle.bundle, bundle.broker, destination.broker)

    def _add(self, bundle: BundleSample, reason: Reason, destination: BrokerLoad | None) -> None:
        self.moves.append(
            CandidateMove.of(
                bundle,
                pair=self.number,
                rank=len(self.moves),
                measure=MEASURE,
                reason=reason,
                destination=destination.broker if destination else None,
                traffic=bundle.present_msg_throughput,
            )
        )
