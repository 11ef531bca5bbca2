"""Split a bundle as the brokers' admin REST API does: refusals, positions, and the owner of the parts.

The rules were measured on 4.0.8. The answer is 204 even if the bundle is not split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pulsar_simulator.answers import StatsReporter
from pulsar_simulator.configuration import Configuration
from pulsar_simulator.faults import Refusal
from pulsar_simulator.load import NOBODY, Traffic
from pulsar_simulator.ownership import Ownership, Redirect
from pulsar_simulator.sampling import Samples
from pulsar_simulator.topology import FULL_RANGE, Topology, topic_hash

RANGE, TOPICS = "range_equally_divide", "topic_count_equally_divide"
POSITIONS, FLOW = "specified_positions_divide", "flow_or_qps_equally_divide"
ALGORITHMS = (RANGE, TOPICS, POSITIONS, FLOW)


@dataclass(frozen=True, slots=True)
class Splitter:
    """Splits bundles, and updates every component of the simulated cluster accordingly."""

    topology: Topology
    traffic: Traffic
    ownership: Ownership
    samples: Samples
    reporter: StatsReporter
    configuration: Configuration

    def split_via(
        self,
        broker: int,
        namespace: str,
        range_text: str,
        algorithm: str,
        positions: Sequence[int],
        *,
        unload: bool,
        now: float,
    ) -> Redirect | None:
        """Answer a request to split a bundle, as the broker with the index `broker`.

        Returns:
            A redirect to the next broker; None if the request has been handled, even if the bundle was not split.

        Raises:
            Refusal: 404 for an unknown namespace, or if there is no bundle for LARGEST or HOT; 412 for an invalid
                algorithm, position or range; 500 for the flow algorithm if it is not the brokers' default.
        """
        algorithm = algorithm or self._setting("defaultNamespaceBundleSplitAlgorithm")
        self._check_request(algorithm, positions)
        bundle = self._bundle_index(namespace, range_text)
        owner = int(self.ownership.owner[bundle])
        if owner not in (NOBODY, broker):
            return Redirect(owner, {})
        if algorithm == FLOW and self._setting("defaultNamespaceBundleSplitAlgorithm") != FLOW:
            raise Refusal(500, "BundleSplitOption cannot be cast to FlowOrQpsEquallyDivideBundleSplitOption")
        self.ownership.owner[bundle] = broker
        cuts = self._split_positions(bundle, algorithm, positions)
        parts = self._apply_split(bundle, cuts) if cuts else []
        if parts and unload:
            self.ownership.release_bundles(parts, now)
        return None

    def _setting(self, name: str) -> str:
        return self.configuration.effective_value(name)

    def _check_request(self, algorithm: str, positions: Sequence[int]) -> None:
        if algorithm not in ALGORITHMS:
            raise Refusal(
                412, f"Unsupported namespace bundle split algorithm, supported algorithms are [{', '.join(ALGORITHMS)}]"
            )
        if algorithm == POSITIONS and not positions:
            raise Refusal(412, f"With {POSITIONS} split algorithm, splitBoundaries must not be empty")

    def _bundle_index(self, namespace: str, text: str) -> int:
        if text in ("LARGEST", "HOT"):
            members = [b for b in self.topology.bundles_of(namespace) if self.traffic.is_active[b]]
            if not members:
                raise Refusal(404, f"Bundle range {text} not found")
            rates = self.samples.rates
            throughput = rates.msg_throughput_in + rates.msg_throughput_out
            count = self.topology.topic_count
            return max(members, key=lambda index: (count(index) if text == "LARGEST" else throughput[index], -index))
        try:
            return self.topology.index_of_range(namespace, text)
        except Refusal as refusal:
            raise Refusal(412 if refusal.status == 500 else refusal.status, refusal.message) from None

    def _split_positions(self, bundle: int, algorithm: str, positions: Sequence[int]) -> list[int]:
        lower, upper = self.topology.bounds(bundle)
        topics = self.topology.topics(bundle) if self.traffic.is_active[bundle] else []
        if algorithm == RANGE:
            return [lower + (upper - lower) // 2] if upper - lower > 1 else []
        if len(topics) < 2:
            return []
        if algorithm == POSITIONS:
            return sorted({p for p in positions if lower < p < upper})
        hashes = sorted(map(topic_hash, topics))
        if algorithm == TOPICS:
            below, above = hashes[len(hashes) // 2 - 1], hashes[len(hashes) // 2]
            return [below + (above - below) // 2]
        return self._flow_split_positions(bundle, topics)

    def _flow_split_positions(self, bundle: int, topics: list[str]) -> list[int]:
        rates, whole = self.samples.rates, self.topology.share_by_topic(bundle)
        rate = rates.msg_rate_in[bundle] + rates.msg_rate_out[bundle]
        throughput = rates.msg_throughput_in[bundle] + rates.msg_throughput_out[bundle]
        limits = np.array(
            [
                float(self._setting("loadBalancerNamespaceBundleMaxMsgRate")),
                float(self._setting("loadBalancerNamespaceBundleMaxBandwidthMbytes")) * 1048576,
            ]
        )
        share = 1 + float(self._setting("flowOrQpsDifferenceThresholdPercentage")) / 100
        if (np.array([rate, throughput]) < limits * share).all():
            return []
        carried = {topic_hash(t): np.array([rate, throughput]) * whole[t] for t in topics}
        cuts, sums = [], np.zeros(2)
        before = None
        for position in sorted(carried):
            if before is not None and ((sums + carried[position]) > limits).any():
                cuts.append(before + (position - before) // 2 + 1)
                sums = np.zeros(2)
            sums = sums + carried[position]
            before = position
        return cuts

    def _apply_split(self, bundle: int, cuts: list[int]) -> list[int]:
        lower, upper = self.topology.bounds(bundle)
        shares = self.topology.share_by_topic(bundle)
        ends = list(pairwise((lower, *cuts, upper + 1 if upper == FULL_RANGE else upper)))
        of_parts = [sum(share for t, share in shares.items() if low <= topic_hash(t) < high) for low, high in ends]
        parts = self.topology.split(bundle, cuts)
        self.ownership.add_split_parts(bundle, len(cuts))
        self.traffic.split(bundle, of_parts)
        self.samples.split(bundle, of_parts)
        self.reporter.split_clients(bundle, of_parts)
        return parts
