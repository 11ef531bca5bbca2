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
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import is_heartbeat, namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BrokerSample, Measure
from pulsar_rebalancer.state.state_documents import Counting, HitCount
from pulsar_rebalancer.strategies.sample import (
    CandidateMove,
    ClusterSample,
    Decision,
    Profile,
    SheddingResult,
    Threshold,
    around,
    hits_after,
    left_out_decisions,
    within,
)
from pulsar_rebalancer.strategies.scoring import score
from pulsar_rebalancer.strategies.strategy_state import ShedderState
from pulsar_rebalancer.texts import number_of

NO_HITS = HitCount()


@dataclass(frozen=True, slots=True)
class ScoredBroker:
    """One broker with the figures to compare.

    Attributes:
        score: score in percent.
        msg_rate, msg_throughput: msg/s and bytes/s, including traffic that moves to the broker because of drains in
            this run.
        pool: the policy that reserves the broker; empty for a shared broker.
    """

    broker: str
    score: float
    msg_rate: float
    msg_throughput: float
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Pair number `number`, counted from the outside in.

    If the number of brokers is odd, the middle broker is paired with itself.
    """

    number: int
    source: ScoredBroker
    destination: ScoredBroker

    @property
    def gap(self) -> float:
        """Return the difference between the two brokers' scores, in points."""
        return self.source.score - self.destination.score

    @property
    def is_middle(self) -> bool:
        """Return whether this is the middle broker paired with itself."""
        return self.source.broker == self.destination.broker


class Hits(NamedTuple):
    """The hit counts of a pair's two brokers."""

    source: HitCount
    destination: HitCount

    @property
    def high(self) -> int:
        """Return the larger of the two brokers' hit counts at the high threshold."""
        return max(self.source.high, self.destination.high)

    @property
    def low(self) -> int:
        """Return the larger of the two brokers' hit counts at the low threshold."""
        return max(self.source.low, self.destination.low)


class Amount(NamedTuple):
    """The amount of traffic to move for a pair. `target` is in msg/s or bytes/s, depending on `measure`."""

    measure: Measure
    target: float


def pairs(brokers: Iterable[ScoredBroker]) -> list[Pair]:
    """Pair the brokers of each pool from the outside in, and return the pairs by pool, outermost first."""
    paired: list[Pair] = []
    in_order = sorted(brokers, key=lambda broker: (broker.pool, broker.score, broker.broker))
    for _, members in groupby(in_order, key=lambda broker: broker.pool):
        pool = list(members)
        paired += [Pair(len(paired) + n, pool[-1 - n], pool[n]) for n in range((len(pool) + 1) // 2)]
    return paired


def count(pair: Pair, before: Hits, settings: Settings, *, repeated: bool, hot: float = math.inf) -> Hits:
    """Return a pair's hits after this sample. A gap that reaches the high threshold also counts as a low hit.

    The middle broker's gap is 0, so it gets hits only if the low threshold is 0. It then gets two hits per sample,
    because it is both brokers of its pair.

    Args:
        before: the pair's hits before this sample.
        settings: settings with the thresholds.
        repeated: True if the same sample has already caused a hit. It causes no further hit, but a gap below the
            thresholds still resets the hits.
        hot: score, in percent, from which every hit of a source counts as a high hit. Pulsar has no such rule.
    """
    if pair.gap < settings.low_threshold:
        return Hits(NO_HITS, NO_HITS)
    step = 0 if repeated else 2 if pair.is_middle else 1
    high = pair.gap >= settings.high_threshold or pair.source.score >= hot
    return Hits(*(HitCount(hit.high + step if high else 0, hit.low + step) for hit in before))


def ready(hits: Hits, settings: Settings) -> bool:
    """Return whether either broker of a pair has enough hits. Hits are counted per broker, not per pair."""
    return hits.high >= settings.hit_count_high or hits.low >= settings.hit_count_low


def amount(pair: Pair, settings: Settings) -> Amount | None:
    """Return the amount to move: a message rate or, if the rates differ too little, a throughput.

    Return None if both differ too little.
    """
    rate = (pair.source.msg_rate - pair.destination.msg_rate) * settings.max_unload_percentage
    throughput = (pair.source.msg_throughput - pair.destination.msg_throughput) * settings.max_unload_percentage
    if rate > settings.min_unload_message:
        return Amount(Measure.RATE, rate)
    if throughput > settings.min_unload_throughput:
        return Amount(Measure.THROUGHPUT, throughput)
    return None


def select(sample: ClusterSample, pair: Pair, wanted: Amount) -> list[CandidateMove]:
    """Choose all bundles of the source that fit into the remaining amount, busiest first.

    Bundles that have a reason to stay, or that policies keep in place, are passed over and do not reduce the remaining
    amount. Bundles smaller than the share `min_bundle_share` of the wanted amount are also passed over, because every
    unload disturbs clients. Pulsar has no such setting.

    Args:
        pair: a pair that has fired.
        wanted: the amount of traffic to move.

    Returns:
        The candidates, sorted by rank.
    """
    remaining, measure = wanted.target, wanted.measure
    least = wanted.target * sample.settings.min_bundle_share
    source, destination = pair.source.broker, pair.destination.broker
    forbidden: dict[str, Reason | None] = {}
    moves = []
    # The bundles are sorted by name; the sort keeps that order for equal traffic.
    busiest_first = sorted(sample.bundles.of(source), key=attrgetter(measure), reverse=True)
    for rank, bundle in enumerate(busiest_first):
        carried = bundle.mean(measure)
        reason = bundle.reason or (Reason.SYSTEM_NAMESPACE if is_heartbeat(bundle.bundle) else None)
        if reason is None:
            # All namespaces under no policy share one result.
            namespace = namespace_of(bundle.bundle) if bundle.policy else ""
            if namespace not in forbidden:
                forbidden[namespace] = sample.forbids(bundle.bundle, source, destination)
            reason = forbidden[namespace] or _fit(carried, remaining, least)
        if reason is Reason.TAKEN:
            remaining -= carried
        of_bundle = bundle.msg_rate, bundle.msg_throughput
        moves.append(
            CandidateMove(pair.number, source, destination, bundle.bundle, rank, measure, carried, *of_bundle, reason)
        )
    return moves


def _fit(carried: float, remaining: float, least: float) -> Reason:
    if carried <= 0:
        return Reason.NO_TRAFFIC
    if carried < least:
        return Reason.BELOW_SHARE
    return Reason.OVER_REMAINING if carried > remaining else Reason.TAKEN


def shed(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """Make the shedding decisions for one run.

    Args:
        sample: the cluster. The hits of brokers left out do not change.
        kept: state after the last counted run; only `hits` is used.

    Returns:
        The result. Hits of brokers that have left the cluster are dropped; Pulsar keeps them until no pair is above the
        low threshold.
    """
    before = {} if sample.counting.clear else kept.hits
    judged = judge(sample, before)
    decisions = [_with_amount(pair, decision, sample) for pair, decision in judged]
    sample.bundles.announce([decision.source for decision in decisions if decision.target is not None])
    moves: list[CandidateMove] = []
    for (pair, _), decision in zip(judged, decisions, strict=True):
        if decision.measure is not None and decision.target is not None:
            moves += select(sample, pair, Amount(decision.measure, decision.target))
    words = sentence(decisions, sample.settings)
    decisions += left_out(sample, before)
    return SheddingResult(decisions, moves, ShedderState(hits=hits_after(decisions)), words)


def judge(sample: ClusterSample, hits: Mapping[str, HitCount], hot: float = math.inf) -> list[tuple[Pair, Decision]]:
    """Return the pairs, each with its decision.

    The hits of pairs that fire are not reset yet.

    Args:
        hits: hits before this sample, by broker.
        hot: as in `count`.
    """
    brokers = [_scored(broker, sample) for broker in sample.taking_part]
    return [(pair, _judged(sample, pair, hits, hot)) for pair in pairs(brokers)]


def left_out(sample: ClusterSample, hits: Mapping[str, HitCount]) -> list[Decision]:
    """Return the decisions for brokers that are left out, with their unchanged hits."""
    return [_frozen(decision, hits.get(decision.source, NO_HITS)) for decision in left_out_decisions(sample)]


def sentence(decisions: Iterable[Decision], settings: Settings) -> str:
    """Return a sentence that says how many pairs differ, how many fire, and what the largest hit counts are."""
    pairs = [decision for decision in decisions if decision.reason is not Reason.MIDDLE]
    over = sum(pair.gap is not None and pair.gap >= settings.low_threshold for pair in pairs)
    low = max((pair.low_hits or 0 for pair in pairs), default=0)
    high = max((pair.high_hits or 0 for pair in pairs), default=0)
    hits = (
        f"{low} of {number_of(settings.hit_count_low, 'low hit')}, "
        f"{high} of {number_of(settings.hit_count_high, 'high hit')}"
    )
    fired = sum(pair.fired for pair in pairs)
    differ = f"{over} of {number_of(len(pairs), 'pair')} differ by {settings.low_threshold:g} points or more"
    return f"{differ}, {hits}, {fired} fired"


def _scored(broker: BrokerSample, sample: ClusterSample) -> ScoredBroker:
    coming = sample.arriving.get(broker.broker, {})
    rate, throughput = (broker.traffic(measure) + coming.get(measure, 0.0) for measure in Measure)
    return ScoredBroker(broker.broker, score(broker, sample.settings), rate, throughput, broker.reserved_by or "")


def _judged(sample: ClusterSample, pair: Pair, hits: Mapping[str, HitCount], hot: float) -> Decision:
    settings, counting = sample.settings, sample.counting
    before = Hits(hits.get(pair.source.broker, NO_HITS), hits.get(pair.destination.broker, NO_HITS))
    repeated = counting.is_repeated(
        {pair.source.broker: pair.source.score, pair.destination.broker: pair.destination.score}
    )
    judged = count(pair, before, settings, repeated=repeated, hot=hot) if counting.judges else before
    if sample.force_threshold is not None:
        fired = pair.gap >= sample.force_threshold and not pair.is_middle
    else:
        fired = counting.judges and not repeated and pair.gap >= settings.low_threshold and ready(judged, settings)
    after = judged if counting.counts else before
    return Decision(
        pair.source.broker,
        Reason.FIRED if fired and not pair.is_middle else _reason(pair, settings, counting, repeated=repeated, hot=hot),
        pair=pair.number,
        pool=pair.source.pool or None,
        destination=pair.destination.broker,
        source_score=pair.source.score,
        destination_score=pair.destination.score,
        gap=pair.gap,
        source_high_before=before.source.high,
        source_low_before=before.source.low,
        destination_high_before=before.destination.high,
        destination_low_before=before.destination.low,
        source_high=after.source.high,
        source_low=after.source.low,
        destination_high=after.destination.high,
        destination_low=after.destination.low,
        high_hits=judged.high,
        low_hits=judged.low,
        fired=fired,
    )


def _with_amount(pair: Pair, decision: Decision, sample: ClusterSample) -> Decision:
    """Return the decision. If it fired, add the amount to move and, if the sample counts, reset the hits."""
    if not decision.fired:
        return decision
    # Counts restart when a pair fires, even if the pair has no bundle to move: it must collect its hits again.
    if sample.counting.counts:
        decision = decision.with_hits_reset({pair.source.broker, pair.destination.broker})
    wanted = amount(pair, sample.settings)
    if wanted is None:
        return decision if pair.is_middle else replace(decision, reason=Reason.BELOW_MINIMUM)
    return replace(decision, measure=wanted.measure, target=wanted.target)


def _reason(pair: Pair, settings: Settings, counting: Counting, *, repeated: bool, hot: float) -> Reason:
    if pair.is_middle:
        return Reason.MIDDLE
    if pair.gap < settings.low_threshold:
        return Reason.BELOW_LOW
    if counting.reason is Reason.FORCED:
        return Reason.BELOW_FORCE
    if repeated or counting.reason is Reason.TOO_SOON:
        return Reason.TOO_SOON
    if pair.gap >= settings.high_threshold:
        return Reason.HITS_HIGH
    return Reason.HITS_HOT if pair.source.score >= hot else Reason.HITS_LOW


def _frozen(decision: Decision, hits: HitCount) -> Decision:
    """Return the decision for a broker that is left out, with its unchanged hits."""
    high, low = hits
    return replace(decision, source_high_before=high, source_low_before=low, source_high=high, source_low=low)


def _check(settings: Settings) -> None:
    if settings.placement not in (None, Placement.AVG):
        raise ValueError(
            f"placement {settings.placement} has nothing to place: strategy {settings.strategy} plans destinations"
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
    check=_check,
    run_params=("low_threshold", "high_threshold", "hit_count_low", "hit_count_high"),
    lines=lambda settings, mean: around(mean, _thresholds(settings)),
    sentence=within,
    grid={"low_threshold": [10, 15, 20, 30], "hit_count_low": [4, 8], "min_bundle_share": [0, 0.05]},
)
