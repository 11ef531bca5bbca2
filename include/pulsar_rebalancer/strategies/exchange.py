"""Which bundles two brokers exchange in TransferShedder: some go from the source, and some may come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_rebalancer.strategies.top_bundles import top_bundles
from pulsar_rebalancer.strategies.view import move

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_rebalancer.strategies.load_spread import Load
    from pulsar_rebalancer.strategies.view import Row, View

MEASURE = "msg_throughput"

NEVER_MOVED = ("system_namespace", "namespace_excluded", "bundle_quarantined")
"""Reasons that keep a bundle from being swapped as well; the grace period does not, as in Pulsar."""

SWAP_LIMIT = 0.75
"""A swap must bring the source below this share of its throughput."""


@dataclass
class Exchange:
    """The walk over the top bundles of a source, the smallest first.

    Attributes:
        view: the cluster.
        number: `pair` of the decision.
        source: the broker that sheds.
        destination: the broker that takes.
        target: what is to leave, bytes/s.
        moves: rows of the moves table; a bundle that goes is followed by those that come back for it.
        left: what leaves, bytes/s.
        gained: what comes back and is counted, bytes/s.
    """

    view: View
    number: int
    source: Load
    destination: Load
    target: float
    moves: list[Row] = field(default_factory=list)
    left: float = 0.0
    gained: float = 0.0

    def run(self, bundles: list[Row]) -> None:
        """Walk; one bundle stays on the source in any case.

        Args:
            bundles: the source's top bundles.
        """
        transfer = self.view.settings.transfer
        back = iter(top_bundles(self.view, self.destination.broker) if transfer else ())
        remaining = len(bundles)
        ended = False
        for bundle in bundles:
            swapped: list[Row] = []
            reason = self._stays(bundle, self.destination)
            if reason is None and ended:
                reason = "not_reached"
            elif reason is None:
                reason, swapped = self._verdict(bundle, remaining, back)
                ended = reason in ("last_bundle", "over_remaining")
            self._add(bundle, reason, self.destination if transfer else None)
            if reason == "taken":
                self.left += bundle[MEASURE]
                remaining -= 1
                self._swap_in(swapped)

    def _verdict(self, bundle: Row, remaining: int, back: Iterator[Row]) -> tuple[str, list[Row]]:
        """The reason code of a bundle that may go, and the bundles that come back for it."""
        if remaining <= 1:
            return "last_bundle", []
        if bundle[MEASURE] == 0:
            return "no_traffic", []
        if self.left - self.gained + bundle[MEASURE] <= self.target:
            return "taken", []
        swapped = self._swap(bundle[MEASURE], back)
        return ("taken" if swapped else "over_remaining"), swapped

    def _swap(self, leaving: float, back: Iterator[Row]) -> list[Row]:
        """Bundles of the destination that make up for one that is too large; empty when they do not.

        Args:
            leaving: throughput of the large one, bytes/s.
            back: the destination's top bundles that were not looked at.
        """
        most = self.source.throughput
        ours = most - self.left + self.gained - leaving
        theirs = self.destination.throughput + self.left - self.gained + leaving
        accepted: list[Row] = []
        for bundle in back:
            returning = bundle[MEASURE]
            if self._kept_back(bundle) or returning == 0:
                continue
            if ours + returning < most and theirs - returning < most:
                accepted.append(bundle)
                ours, theirs = ours + returning, theirs - returning
                if theirs <= ours and ours < most * SWAP_LIMIT:
                    return accepted
        return []

    def _swap_in(self, bundles: list[Row]) -> None:
        for bundle in bundles:
            self._add(bundle, "taken", self.source)
            if self.view.settings.credit_swaps:
                self.gained += bundle[MEASURE]

    def _kept_back(self, bundle: Row) -> bool:
        return bundle["reason"] in NEVER_MOVED or self._policies(bundle, self.source) is not None

    def _stays(self, bundle: Row, destination: Load) -> str | None:
        reason: str | None = bundle["reason"]
        return reason or self._policies(bundle, destination)

    def _policies(self, bundle: Row, destination: Load) -> str | None:
        """Why policies keep a bundle from going there (TransferShedder.isTransferable)."""
        if bundle.get("policy") is not None and not self.view.settings.shed_policy_bundles:
            return "namespace_policy"
        return self.view.forbids(bundle["bundle"], bundle["broker"], destination.broker)

    def _add(self, bundle: Row, reason: str, destination: Load | None) -> None:
        row = move(
            self.view,
            bundle,
            number=self.number,
            rank=len(self.moves),
            measure=MEASURE,
            reason=reason,
            destination=destination.broker if destination else None,
        )
        self.moves.append(row)
