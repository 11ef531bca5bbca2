"""AvgShedder (PIP-364) for one run of one cluster.

Brokers are sorted by score and paired from the outside in, the hottest with the coldest. A pair fires if its gap
reaches a threshold in enough consecutive runs. Bundles then move from the hotter to the colder broker, up to
`max_unload_percentage` of the difference in their traffic. The algorithm follows `AvgShedder.findBundlesForUnloading`
in Pulsar 4.2.4 and 5.0.1, with two deviations. Pulsar breaks ties by hash map order; here, they are broken by name
(brokers by ascending score and name, bundles by descending traffic and ascending name). Brokers that an isolation
policy reserves are paired only with each other, because their bundles must not move to other brokers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import is_heartbeat, namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state import HitCount, ShedderState
from pulsar_rebalancer.strategies.sample import (
    CandidateMove,
    ClusterSample,
    Decision,
    JudgedPair,
    Profile,
    SheddingResult,
    Threshold,
    bands_around_mean,
    hits_after,
    left_out_decisions,
    score_range_text,
)
from pulsar_rebalancer.texts import number_of

NO_HITS = HitCount()


class AmountToMove(NamedTuple):
    """The amount of traffic to move for a pair. `target` is in msg/s or bytes/s, depending on `measure`."""

    measure: Measure
    target: float


def judge_pairs(sample: ClusterSample, hits: Mapping[str, HitCount], hot_score: float) -> list[JudgedPair]:
    """Score and pair the brokers, and count hits (`Judge`) without Spark.

    Return the pairs, outermost first; if the sample is `brief`, only those that have hits, had hits or fire.

    A gap below a threshold clears its hits. The middle broker's gap is 0, so it gets hits only if the low threshold is
    0. It then gets two hits per sample, because it is both brokers of its pair. A sample that is repeated adds no hit.
    """
    settings, counting, usages, reserved_by = (
        sample.settings,
        sample.counting,
        sample.usage_by_broker(),
        sample.all_brokers.policy_by_reserved_broker,
    )
    names, scores = list(usages), np.array(list(usages.values())) * 100
    pools = np.array([reserved_by.get(name, "") for name in names], dtype=str)
    ends = source, destination = _pair_positions(pools, scores)
    gap, middle = scores[source] - scores[destination], source == destination
    counted = np.array([counting.samples.get(name, np.nan) for name in names])
    same, new = counted == scores, np.isnan(counted)
    repeated = (same | new)[source] & (same | new)[destination] & ~(new[source] & new[destination])
    low = gap >= settings.low_threshold
    high = low & ((gap >= settings.high_threshold) | (scores[source] >= hot_score))
    step = np.where(repeated, 0, np.where(middle, 2, 1))
    known = np.fromiter(chain.from_iterable(hits.get(name, NO_HITS) for name in names), np.int64, 2 * len(names))
    # Of both ends and both levels.
    before = known.reshape(-1, 2)[np.array(ends)].swapaxes(1, 2)
    after = np.where([high, low], before + step, 0) if counting.judges_sample else before
    high_hits, low_hits = after.max(axis=0)
    if sample.force_threshold is not None:
        fired = (gap >= sample.force_threshold) & ~middle
    else:
        enough = (high_hits >= settings.hit_count_high) | (low_hits >= settings.hit_count_low)
        fired = low & enough & ~repeated & counting.judges_sample
    kept = after if counting.counts else before
    columns = (
        *(pools[source], *scores[np.array(ends)], gap, *before.reshape(4, -1), *kept.reshape(4, -1)),
        *(high_hits, low_hits, repeated, fired),
    )
    number = np.arange(len(gap))
    if sample.brief:
        number = np.flatnonzero(fired | (before + after).any(axis=(0, 1)))
    pool, *values = (column[number].tolist() for column in columns)
    named = ([names[at] for at in end[number].tolist()] for end in ends)
    return list(map(JudgedPair, number.tolist(), pool, *named, *values))


def _pair_positions(pools: npt.NDArray[np.str_], scores: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.intp], ...]:
    """Return the positions of each pair's two brokers; they are in order of names, which break ties."""
    _, pool, sizes = np.unique(pools, return_inverse=True, return_counts=True)
    order, pairs = np.lexsort((scores, pool)), (sizes + 1) // 2
    coldest, first = (np.repeat(of.cumsum() - of, pairs) for of in (sizes, pairs))
    place = np.arange(pairs.sum()) - first
    return order[coldest + np.repeat(sizes, pairs) - 1 - place], order[coldest + place]


def amount_to_move(sample: ClusterSample, pair: Decision) -> AmountToMove | None:
    """Return the amount to move: a message rate or, if the rates differ too little, a throughput.

    Return None if both differ too little.
    """
    settings = sample.settings
    rate, throughput = (
        (sample.traffic(pair.source, measure) - sample.traffic(str(pair.destination), measure))
        * settings.max_unload_percentage
        for measure in Measure
    )
    if rate > settings.min_unload_message:
        return AmountToMove(Measure.RATE, rate)
    if throughput > settings.min_unload_throughput:
        return AmountToMove(Measure.THROUGHPUT, throughput)
    return None


def select_bundles(sample: ClusterSample, pair: Decision, goal: AmountToMove) -> list[CandidateMove]:
    """Choose all bundles of the source that fit into the remaining amount, busiest first.

    Bundles that have a reason to stay, or that policies keep in place, are passed over and do not reduce the remaining
    amount. Bundles smaller than the share `min_bundle_share` of the wanted amount are also passed over, because every
    unload disturbs clients. Pulsar has no such setting.

    Args:
        pair: a pair that has fired.
        goal: the traffic to move.

    Returns:
        The candidates, sorted by rank.
    """
    remaining, measure = goal.target, goal.measure
    least = goal.target * sample.settings.min_bundle_share
    number, source, destination = pair.pair or 0, pair.source, str(pair.destination)
    forbidden: dict[str, Reason | None] = {}
    moves = []
    # The bundles are sorted by name; the sort keeps that order for equal traffic.
    busiest_first = sorted(sample.bundles.of_broker(source), key=attrgetter(measure), reverse=True)
    for rank, bundle in enumerate(busiest_first):
        carried = bundle.mean(measure)
        reason = bundle.reason or (Reason.SYSTEM_NAMESPACE if is_heartbeat(bundle.bundle) else None)
        if reason is None:
            # All namespaces under no policy share one result.
            namespace = namespace_of(bundle.bundle) if bundle.policy else ""
            if namespace not in forbidden:
                forbidden[namespace] = sample.forbids(bundle.bundle, source, destination)
            reason = forbidden[namespace] or _reason_by_size(carried, remaining, least)
        if reason is Reason.TAKEN:
            remaining -= carried
        elif sample.brief:
            continue
        means = bundle.msg_rate, bundle.msg_throughput
        moves.append(CandidateMove(number, source, destination, bundle.bundle, rank, measure, carried, *means, reason))
    return moves


def _reason_by_size(traffic: float, remaining_traffic: float, min_traffic: float) -> Reason:
    if traffic <= 0:
        return Reason.NO_TRAFFIC
    if traffic < min_traffic:
        return Reason.BELOW_SHARE
    return Reason.OVER_REMAINING if traffic > remaining_traffic else Reason.TAKEN


def shed(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    """Make the shedding decisions for one run.

    Args:
        sample: the cluster. The hits of brokers left out do not change.
        state: state after the last counted run; only `hits` is used.

    Returns:
        The result. Hits of brokers that have left the cluster are dropped; Pulsar keeps them until no pair is above the
        low threshold.
    """
    before = {} if sample.counting.clear else state.hits
    decisions = [_add_amount_to_move(decision, sample) for decision in pair_decisions(sample, before)]
    sample.bundles.announce_brokers([decision.source for decision in decisions if decision.target is not None])
    moves: list[CandidateMove] = []
    for decision in decisions:
        if decision.measure is not None and decision.target is not None:
            moves += select_bundles(sample, decision, AmountToMove(decision.measure, decision.target))
    words = pairs_sentence(decisions, sample.settings)
    decisions += decisions_with_kept_hits(sample, before)
    return SheddingResult(decisions, moves, ShedderState(hits=hits_after(decisions)), words)


def pair_decisions(sample: ClusterSample, hits: Mapping[str, HitCount], hot_score: float = math.inf) -> list[Decision]:
    pairs = (sample.judge or judge_pairs)(sample, hits, hot_score)
    return [_pair_decision(pair, _pair_reason(pair, sample)) for pair in pairs]


def decisions_with_kept_hits(sample: ClusterSample, hits: Mapping[str, HitCount]) -> list[Decision]:
    return [_keep_hits(decision, hits.get(decision.source, NO_HITS)) for decision in left_out_decisions(sample)]


def pairs_sentence(decisions: Iterable[Decision], settings: Settings) -> str:
    pairs = [decision for decision in decisions if decision.reason is not Reason.NO_PARTNER]
    over = sum(pair.gap is not None and pair.gap >= settings.low_threshold for pair in pairs)
    low = max((pair.low_hits or 0 for pair in pairs), default=0)
    high = max((pair.high_hits or 0 for pair in pairs), default=0)
    hits = f"most hits of a pair: {low} of {settings.hit_count_low} low, {high} of {settings.hit_count_high} high"
    fired = number_of(sum(pair.fired for pair in pairs), "pair")
    differ = f"{over} of {number_of(len(pairs), 'pair')} differ by {settings.low_threshold:g} points or more"
    return f"{differ}; {hits}; {fired} fired"


def _pair_decision(pair: JudgedPair, reason: Reason) -> Decision:
    # By position, because a replay makes millions: from the destination to the hits, both have the same fields.
    fields: Any = (pair.source, reason, pair.pair, pair.pool or None, *pair[3:17], None, None, pair.fired)
    return Decision(*fields)


def _add_amount_to_move(decision: Decision, sample: ClusterSample) -> Decision:
    """Return the decision. If it fired, add the amount to move and, if the sample counts, reset the hits."""
    if not decision.fired:
        return decision
    # Counts restart when a pair fires, even if the pair has no bundle to move: it must collect its hits again.
    if sample.counting.counts:
        decision = decision.with_hits_reset({decision.source, decision.destination})
    wanted = amount_to_move(sample, decision)
    if wanted is None:
        return decision if decision.reason is Reason.NO_PARTNER else replace(decision, reason=Reason.BELOW_MINIMUM)
    return replace(decision, measure=wanted.measure, target=wanted.target)


def _pair_reason(pair: JudgedPair, sample: ClusterSample) -> Reason:
    if pair.is_middle:
        return Reason.NO_PARTNER
    if pair.fired:
        return Reason.FIRED
    if pair.gap < sample.settings.low_threshold or sample.counting.reason is Reason.FORCED:
        return Reason.BALANCED
    return Reason.TOO_SOON if pair.repeated or sample.counting.reason is Reason.TOO_SOON else Reason.HIT_COUNT


def _keep_hits(decision: Decision, hits: HitCount) -> Decision:
    high, low = hits
    return replace(decision, source_high_before=high, source_low_before=low, source_high=high, source_low=low)


def _check_thresholds(settings: Settings) -> None:
    if settings.placement not in (None, Placement.AVG):
        raise ValueError(
            f"placement {settings.placement} is never used: strategy {settings.strategy} chooses destinations itself"
        )
    low, high = settings.low_threshold, settings.high_threshold
    if low > high:
        raise ValueError(f"low_threshold {low:g} is above high_threshold {high:g}")


def _thresholds(settings: Settings) -> dict[str, Threshold]:
    return {
        "low": Threshold(settings.low_threshold, settings.hit_count_low),
        "high": Threshold(settings.high_threshold, settings.hit_count_high),
    }


PROFILE = Profile(
    shed,
    thresholds=_thresholds,
    judges_pairs=True,
    placement=Placement.AVG,
    check=_check_thresholds,
    run_params=("low_threshold", "high_threshold", "hit_count_low", "hit_count_high"),
    lines=lambda settings, mean: bands_around_mean(mean, _thresholds(settings)),
    sentence=score_range_text,
    grid={"low_threshold": [10, 15, 20, 30], "hit_count_low": [4, 8], "min_bundle_share": [0, 0.05]},
)
