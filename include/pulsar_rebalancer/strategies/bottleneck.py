"""A cluster's bottleneck: the resource that determines its brokers' scores, and the measure used for bundle loads.

Costs are score points per message or per byte, so they are meaningless once the bottleneck changes, and learning must
start again. A new bottleneck therefore replaces the old one only after it has lasted for a while.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state.learned import Learned
from pulsar_rebalancer.strategies.scoring import SCORED, weighted_usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import BrokerSample

MEMORY, NETWORK = "direct_memory", "bandwidth_out"

LASTING = 10
"""Number of consecutive counted samples in which a resource must determine the scores to become the bottleneck."""

UNIT = {Measure.RATE: 1.0, Measure.THROUGHPUT: 1000.0}
"""Divisor for loads, by measure. Learned loads are in msg/s or kB/s: figures of similar size, so sums of either are
exact."""


def measure_of(bottleneck: str) -> Measure:
    """Return the measure for bundle loads: throughput if the network is the bottleneck, else the message rate."""
    return Measure.THROUGHPUT if bottleneck == NETWORK else Measure.RATE


def bottleneck_of(brokers: Iterable[BrokerSample], settings: Settings) -> str:
    """Group brokers by the resource that determines their score; return the resource whose group has the highest total.

    Both network directions count as one resource.
    """
    sums = dict.fromkeys(SCORED, 0.0)
    for broker in brokers:
        if broker.left_out is None:
            usages = {name: weighted_usage(broker, settings, (name,)) for name in SCORED}
            highest = max(SCORED, key=usages.__getitem__)
            sums[highest] += usages[highest]
    sums[NETWORK] += sums.pop("bandwidth_in")
    return max(sums, key=sums.__getitem__)


def continued(before: Learned, brokers: Iterable[BrokerSample], settings: Settings, *, counts: bool) -> Learned:
    """Return the figures learned before a sample, or an empty record if the sample changes the bottleneck.

    Args:
        counts: True if the sample counts. In a sample that does not count, the bottleneck changes only if nothing has
            been learned yet.
    """
    if before.samples and not counts:
        return before
    now = bottleneck_of(brokers, settings)
    others = before.others + 1 if now != before.bottleneck else 0
    return replace(before, others=others) if before.samples and others < LASTING else Learned(bottleneck=now)
