"""A control that must lose: AvgShedder, which sees the means of a broker's bundles shuffled among these bundles."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from pulsar_rebalancer.run.bundle_columns import Bundles
from pulsar_rebalancer.strategies.shedders import avg_shedder

if TYPE_CHECKING:
    from collections.abc import Collection

    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.strategies.kept import ShedderState
    from pulsar_rebalancer.strategies.sample import ClusterSample, SheddingResult


class ShuffledBundles(Bundles):
    """The bundles of a cluster, with means that belong to another bundle of the broker."""

    def __init__(self, bundles: Bundles) -> None:
        self._real = bundles

    def announce(self, brokers: Collection[str]) -> None:
        """Announce the brokers whose bundles will be needed."""
        self._real.announce(brokers)

    def of(self, broker: str, largest: int | None = None) -> list[BundleSample]:
        """Return the bundles that one broker reports, sorted by name; the same bundles are shuffled the same way."""
        bundles = self._real.of(broker, largest)
        others = Random(broker).sample(bundles, len(bundles))
        return [
            bundle._replace(msg_rate=other.msg_rate, msg_throughput=other.msg_throughput)
            for bundle, other in zip(bundles, others, strict=True)
        ]


def shed(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """Decide one run."""
    return avg_shedder.shed(replace(sample, bundles=ShuffledBundles(sample.bundles)), kept)


PROFILE = replace(avg_shedder.PROFILE, shed=shed)
