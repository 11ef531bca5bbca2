"""Where a bundle is cut: Pulsar's four algorithms (NamespaceBundleSplitAlgorithm), to the last position.

Positions are hashes, 0 to 2**32 - 1. A range holds its lower bound and not its upper one; the last range of a namespace
ends at 0xffffffff and holds it. All divisions are of whole numbers and round down. No position means no split: brokers
then answer 204 and change nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import SplitAlgorithm
from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.run.sums import one_by_one

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.names import HashRange
    from pulsar_rebalancer.run.topic_loads import TopicLoad

_ROUNDING = 1e-9
"""Ratio; adding 100,000 figures in another order changes their sum by less."""


def positions_of(
    algorithm: SplitAlgorithm,
    hash_range: HashRange,
    topics: Sequence[TopicLoad],
    settings: Settings,
    specified: Iterable[int] = (),
) -> tuple[int, ...]:
    """Return the positions at which an algorithm cuts a bundle, ascending; empty if it makes no cut.

    Args:
        hash_range: of the bundle.
        topics: those that the owner lists, in any order; `range_equally_divide` ignores them.
        settings: effective settings, for `flow_or_qps_equally_divide`.
        specified: for `specified_positions_divide`.
    """
    match algorithm:
        case SplitAlgorithm.RANGE:
            return range_equally_divide(hash_range)
        case SplitAlgorithm.TOPIC_COUNT:
            return topic_count_equally_divide([topic.position for topic in topics])
        case SplitAlgorithm.FLOW:
            return flow_or_qps_equally_divide(topics, settings)
        case SplitAlgorithm.POSITIONS:
            return specified_positions_divide(hash_range, len(topics), specified)


def range_equally_divide(hash_range: HashRange) -> tuple[int, ...]:
    """Return the middle of the range (RangeEquallyDivideBundleSplitAlgorithm).

    A range one hash wide has none: NamespaceBundleFactory.canSplitBundle refuses it.
    """
    lower, upper = hash_range
    return (lower + (upper - lower) // 2,) if upper - lower > 1 else ()


def topic_count_equally_divide(positions: Iterable[int]) -> tuple[int, ...]:
    """Return the middle between the two topics in the middle (TopicCountEquallyDivideBundleSplitAlgorithm).

    Args:
        positions: of the topics, in any order; with fewer than two there is no split.
    """
    ordered = sorted(positions)
    if len(ordered) < 2:
        return ()
    below, above = ordered[len(ordered) // 2 - 1], ordered[len(ordered) // 2]
    return (below + (above - below) // 2,)


def specified_positions_divide(hash_range: HashRange, topics: int, specified: Iterable[int]) -> tuple[int, ...]:
    """Return the given positions that lie within the range (SpecifiedPositionsBundleSplitAlgorithm), each once.

    Args:
        hash_range: of the bundle.
        topics: how many it has; with fewer than two there is no split.
        specified: positions, in any order.
    """
    return tuple(sorted({p for p in specified if hash_range.lower < p < hash_range.upper})) if topics > 1 else ()


def flow_or_qps_equally_divide(topics: Iterable[TopicLoad], settings: Settings) -> tuple[int, ...]:
    """Return cuts between parts that stay within the limits (FlowOrQpsEquallyDivideBundleSplitAlgorithm).

    The limits are `max_bundle_msg_rate` and `max_bundle_bandwidth`. Idle topics are ignored. A bundle with fewer than
    two others, or that exceeds neither limit by `flow_difference` percent, is not cut. Of topics with the same
    hash, Pulsar looks only at the last one, once for each of them.
    """
    most_rate, most_throughput = settings.max_bundle_msg_rate, settings.max_bundle_bandwidth * MIB
    busy = [topic for topic in topics if topic.msg_rate > 0 or topic.msg_throughput > 0]
    by_position = {topic.position: topic for topic in busy}
    share = 1 + settings.flow_difference / 100
    if len(by_position) < 2 or (
        one_by_one(topic.msg_rate for topic in busy) < most_rate * share
        and one_by_one(topic.msg_throughput for topic in busy) < most_throughput * share
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


def shares_of(hash_range: HashRange, positions: Sequence[int], topics: Sequence[TopicLoad]) -> tuple[float, ...]:
    """Return each part's share of the bundle's traffic, as a ratio; equal shares if no topic's traffic is known.

    Message rate counts, and throughput where no topic has a rate.
    """
    carried = _carried(hash_range, positions, topics)
    whole = one_by_one(carried)
    return tuple(figure / whole for figure in carried) if whole > 0 else (1 / len(carried),) * len(carried)


def most_even(hash_range: HashRange, positions: Sequence[int], topics: Sequence[TopicLoad]) -> int:
    """Return the position that halves the bundle's traffic best, the lowest of equal ones.

    Args:
        hash_range: of the bundle.
        positions: those to choose from, ascending.
        topics: of the bundle.
    """
    carried = _carried(hash_range, positions, topics)
    whole = one_by_one(carried)
    apart = [abs(below - whole / 2) for below in accumulate(carried[:-1])]
    most = min(apart) + whole * _ROUNDING
    # After a part without traffic, the halves are the same as at the position before.
    close = [p for n, p in enumerate(positions) if apart[n] <= most and (n == 0 or carried[n] > 0)]
    return min(close, key=lambda position: abs(shares_of(hash_range, (position,), topics)[0] - 0.5))


def _carried(hash_range: HashRange, positions: Sequence[int], topics: Sequence[TopicLoad]) -> list[float]:
    """Return the traffic of each part: message rate, or throughput where no topic has a rate."""
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
