"""Find the positions at which a bundle is cut, as Pulsar's four algorithms do (NamespaceBundleSplitAlgorithm).

Positions are hashes, 0 to 2**32 - 1. A range excludes its upper bound, except the last one of a namespace,
which ends at 0xffffffff. Divisions round down. If an algorithm finds no position, the bundle is not split:
brokers respond with 204 and change nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from pulsar_rebalancer.config.field_types import SplitAlgorithm
from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import HashRange
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.snapshot import TopicLoad
from pulsar_rebalancer.run.tables import java_sum

_ROUNDING_ERROR = 1e-9
"""Relative rounding error: adding 100,000 numbers in another order changes their sum by less than this ratio."""


def split_positions(
    algorithm: SplitAlgorithm,
    hash_range: HashRange,
    topics: Sequence[TopicLoad],
    settings: Settings,
    given_positions: Iterable[int] = (),
) -> tuple[int, ...]:
    """Return the positions at which an algorithm cuts a bundle, in ascending order; empty if it makes no cut.

    Args:
        topics: the topics that the owner lists, in any order; `range_equally_divide` ignores them.
        settings: effective settings, used by `flow_or_qps_equally_divide`.
        given_positions: positions, used by `specified_positions_divide`.
    """
    match algorithm:
        case SplitAlgorithm.RANGE:
            return range_equally_divide(hash_range)
        case SplitAlgorithm.TOPIC_COUNT:
            return topic_count_equally_divide([topic.position for topic in topics])
        case SplitAlgorithm.FLOW:
            return flow_or_qps_equally_divide(topics, settings)
        case SplitAlgorithm.POSITIONS:
            return specified_positions_divide(hash_range, len(topics), given_positions)


def range_equally_divide(hash_range: HashRange) -> tuple[int, ...]:
    """Return the middle of the range (RangeEquallyDivideBundleSplitAlgorithm).

    A range one hash wide has none: NamespaceBundleFactory.canSplitBundle refuses to split it.
    """
    lower, upper = hash_range
    return (lower + (upper - lower) // 2,) if upper - lower > 1 else ()


def topic_count_equally_divide(positions: Iterable[int]) -> tuple[int, ...]:
    """Return the position halfway between the middle two topics (TopicCountEquallyDivideBundleSplitAlgorithm).

    The topics' positions may be in any order. A bundle with fewer than two topics is not split.
    """
    ordered = sorted(positions)
    if len(ordered) < 2:
        return ()
    below, above = ordered[len(ordered) // 2 - 1], ordered[len(ordered) // 2]
    return (below + (above - below) // 2,)


def specified_positions_divide(hash_range: HashRange, topics: int, given_positions: Iterable[int]) -> tuple[int, ...]:
    """Return the specified positions in the range, without duplicates (SpecifiedPositionsBundleSplitAlgorithm).

    They may be in any order. A bundle with fewer than two topics is not split.
    """
    return tuple(sorted(filter(hash_range.can_be_cut_at, set(given_positions)))) if topics > 1 else ()


def flow_or_qps_equally_divide(topics: Iterable[TopicLoad], settings: Settings) -> tuple[int, ...]:
    """Return the positions that cut a bundle within the limits (FlowOrQpsEquallyDivideBundleSplitAlgorithm).

    The limits are `max_bundle_msg_rate` and `max_bundle_bandwidth`. A bundle is cut only if two or more
    topics have traffic and it exceeds a limit by `flow_difference` percent. If topics have the same hash,
    Pulsar uses the last topic's values for each of them.
    """
    most_rate, most_throughput = settings.max_bundle_msg_rate, settings.max_bundle_bandwidth * MIB
    busy = [topic for topic in topics if topic.msg_rate > 0 or topic.msg_throughput > 0]
    by_position = {topic.position: topic for topic in busy}
    share = 1 + settings.flow_difference / 100
    if len(by_position) < 2 or (
        java_sum(topic.msg_rate for topic in busy) < most_rate * share
        and java_sum(topic.msg_throughput for topic in busy) < most_throughput * share
    ):
        return ()
    walk = [by_position[position] for position in sorted(topic.position for topic in busy)]
    cuts: list[int] = []
    rate, throughput = walk[0].msg_rate, walk[0].msg_throughput
    for before, topic in pairwise(walk):
        if rate + topic.msg_rate > most_rate or throughput + topic.msg_throughput > most_throughput:
            cuts.append(before.position + (topic.position - before.position) // 2 + 1)
            rate, throughput = topic.msg_rate, topic.msg_throughput
        else:
            rate, throughput = rate + topic.msg_rate, throughput + topic.msg_throughput
    return tuple(cuts)


def part_shares(hash_range: HashRange, positions: Sequence[int], topics: Sequence[TopicLoad]) -> tuple[float, ...]:
    """Return each part's share of the message rate, or of throughput without any; equal shares if none is known."""
    carried = _traffic_by_part(hash_range, positions, topics)
    whole = java_sum(carried)
    return tuple(value / whole for value in carried) if whole > 0 else (1 / len(carried),) * len(carried)


def most_even_position(hash_range: HashRange, positions: Sequence[int], topics: Sequence[TopicLoad]) -> int:
    """Return which of these ascending positions divides the traffic most evenly; the lowest if several do."""
    carried = _traffic_by_part(hash_range, positions, topics)
    whole = java_sum(carried)
    apart = [abs(below - whole / 2) for below in accumulate(carried[:-1])]
    most = min(apart) + whole * _ROUNDING_ERROR
    # After a part without traffic, the halves are the same as at the position before.
    close = [p for n, p in enumerate(positions) if apart[n] <= most and (n == 0 or carried[n] > 0)]
    return min(close, key=lambda position: abs(part_shares(hash_range, (position,), topics)[0] - 0.5))


def _traffic_by_part(hash_range: HashRange, positions: Sequence[int], topics: Sequence[TopicLoad]) -> list[float]:
    edges = (hash_range.lower, *positions, hash_range.upper + 1)
    for measure in ("msg_rate", "msg_throughput"):
        carried = [0.0] * (len(edges) - 1)
        for topic in topics:
            part = bisect_right(edges, topic.position) - 1
            if 0 <= part < len(carried):
                carried[part] += getattr(topic, measure)
        if any(carried):
            break
    return carried


@dataclass(frozen=True, slots=True)
class BundleLoad:
    """A bundle that might be too large.

    Attributes:
        sessions: number of producers and consumers.
        msg_rate: msg/s in and out: long-term average; under the extensible load manager, the current rate.
        msg_throughput: inbound plus outbound bytes/s, averaged or current like `msg_rate`.
        policy_kind: the kind of policy that applies to the bundle's namespace; None if no policy applies.
        stay_reason: why the bundle must not be split; None if it may be split.
    """

    bundle: str
    broker: str
    topics: int
    sessions: int
    msg_rate: float
    msg_throughput: float
    policy_kind: str | None = None
    stay_reason: Reason | None = None


class SplitCondition(NamedTuple):
    """A condition that a bundle meets: "topics", "sessions", "msg_rate" (msg/s) or "bandwidth" (bytes/s)."""

    name: str
    value: float
    bound: float

    @property
    def excess_ratio(self) -> float:
        return self.value / self.bound if self.bound > 0 else float("inf")


def split_condition(bundle: BundleLoad, settings: Settings) -> SplitCondition | None:
    """Return the first split condition, in Pulsar's order, that a bundle meets."""
    sessions = settings.max_bundle_sessions if settings.max_bundle_sessions > 0 else math.inf  # 0: no limit
    conditions = (
        SplitCondition("topics", bundle.topics, settings.max_bundle_topics),
        SplitCondition("sessions", bundle.sessions, sessions),
        SplitCondition("msg_rate", bundle.msg_rate, settings.max_bundle_msg_rate),
        SplitCondition("bandwidth", bundle.msg_throughput, settings.max_bundle_bandwidth * MIB),
    )
    return next((condition for condition in conditions if condition.value > condition.bound), None)
