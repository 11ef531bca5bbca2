"""GainShedder: AvgShedder's pairs and hits, but a move's gain must cover its price. Not part of Pulsar.

A gain is the decrease in two brokers' squared distances from the mean, by the loads to expect (docs/gain-shedder.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pulsar_rebalancer.names import is_heartbeat
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.tables import Measure, java_sum
from pulsar_rebalancer.state import LearnedBroker, LearnedValues, ShedderState
from pulsar_rebalancer.strategies.learning import BundleSums
from pulsar_rebalancer.strategies.sample import (
    CandidateMove,
    ClusterSample,
    Decision,
    SheddingResult,
    gap_and_hits_text,
    hits_after,
)
from pulsar_rebalancer.strategies.scoring import MEMORY, UNIT_DIVISORS, relative_limits
from pulsar_rebalancer.strategies.shedders import avg_shedder

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_MAX_MOVES_PER_PAIR = 40  # the largest number of bundles that a pair may move in one run
_MIN_BUNDLE_POINTS = 0.2  # points; smaller bundles stay
_LARGE_BUNDLE_POINTS = 8.0  # points; the move of such a bundle has twice the price of a small one
_URGENT_DIVISOR = 2  # by which the price of a move is divided for an urgent pair
_MAX_OTHER_CANDIDATES = 50  # number of candidates, the largest, of a broker whose pair does not fire


class GainSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    min_gain: float = Field(45, ge=0, description="minimum gain of a move, points squared; halved for an urgent pair")
    hot_threshold: float = Field(80, ge=0, description="source score at which a pair becomes urgent, percent")


@dataclass(slots=True, eq=False)
class _Broker:
    """A broker while moves are being chosen.

    Attributes:
        height: points above the mean of the broker's pool.
        is_giver, is_taker: whether the broker is the hotter (gives) or the colder (takes) broker of a pair that fires.
        is_urgent: whether the broker's pair fires because of high hits or because the run is forced.
        has_unread: whether the broker has candidates that have not been read yet; they are read for its first move.
        reasons: why each candidate stays; None for a candidate that can still move.
        first_reasons: why each candidate was not moved first; reported for candidates without a reason in `reasons`.
        loads: points that each candidate adds to a broker with the median number of cores; infinite if it stays.
        price_factors: price of each candidate's move, in multiples of the lowest possible price.
        remark: about its last move; before its first move, about the best one when it was first examined.
    """

    name: str
    pair: int
    cores: float
    height: float
    is_giver: bool
    is_taker: bool
    is_urgent: bool
    has_unread: bool = False
    bundles: list[BundleSample] = field(default_factory=list)
    reasons: list[Reason | None] = field(default_factory=list)
    first_reasons: list[Reason] = field(default_factory=list)
    loads: Floats = field(init=False)
    price_factors: Floats = field(init=False)
    remark: str = ""

    @property
    def may_give(self) -> bool:
        """Return whether the broker might have a bundle that can move."""
        return self.has_unread or None in self.reasons


def shed(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    own = GainSettings.model_validate(sample.settings.strategy_settings)
    before = {} if sample.counting.clear else state.hits
    decisions = avg_shedder.pair_decisions(sample, before, own.hot_threshold)
    known = sample.learning.learned
    learned = known if sample.counting.counts else state.learned
    if known.bottleneck == MEMORY:
        return _shed_as_avg_shedder(sample, state, learned)
    sentence = avg_shedder.pairs_sentence(decisions, sample.settings)
    moves: list[CandidateMove] = []
    if any(decision.fired for decision in decisions):
        pools = _broker_pools(sample, decisions)
        _read_giver_candidates(sample, pools)
        remarks: dict[int | None, str] = {}
        moves = [move for pool in pools for move in _choose_moves(sample, own, pool, remarks)]
        for broker in (broker for pool in pools for broker in pool if broker.is_giver):
            remarks.setdefault(broker.pair, broker.remark)
        decisions = _complete_decisions(sample, decisions, remarks, moves)
    decisions += avg_shedder.decisions_with_kept_hits(sample, before)
    return SheddingResult(decisions, moves, ShedderState(hits=hits_after(decisions), learned=learned), sentence)


def _shed_as_avg_shedder(sample: ClusterSample, state: ShedderState, learned: LearnedValues) -> SheddingResult:
    plan = avg_shedder.shed(sample, state)
    why = f"{Reason.MEMORY_DECIDES.meaning} [{Reason.MEMORY_DECIDES}]"
    rows = [replace(of, explanation=f"{gap_and_hits_text(of)}. {why}") if of.fired else of for of in plan.decisions]
    return plan._replace(decisions=rows, state=replace(plan.state, learned=learned), sentence=f"{plan.sentence}. {why}")


def _broker_pools(sample: ClusterSample, decisions: Sequence[Decision]) -> list[list[_Broker]]:
    learned, of_brokers = sample.learning.learned, sample.learning.sums
    cores = relative_limits(sample.brokers, learned.bottleneck)
    pairs = {end: pair for pair in decisions for end in (pair.source, pair.destination)}
    pools: defaultdict[str, list[_Broker]] = defaultdict(list)
    for broker in sample.compared_brokers:
        name = broker.broker
        pair, sums = pairs[name], of_brokers.get(name, BundleSums())
        fires = pair.fired and pair.source != pair.destination
        coming = sample.arriving.get(name, {}).get(sample.measure, 0.0) / UNIT_DIVISORS[sample.measure]
        unexplained = learned.idle + learned.brokers.get(name, LearnedBroker()).residual
        expected = sums.hour_sum + learned.persistence * (sums.quick_sum - sums.hour_sum)
        height = unexplained + learned.points / cores[name] * (expected + coming)
        gives, takes = fires and name == pair.source, fires and name == pair.destination
        urgent = sample.forced or (pair.high_hits or 0) >= sample.settings.hit_count_high
        pools[broker.reserved_by or ""].append(
            _Broker(name, pair.pair or 0, cores[name], height, is_giver=gives, is_taker=takes, is_urgent=urgent)
        )
    for pool in pools.values():
        _subtract_mean(pool)
    return [pools[name] for name in sorted(pools)]


def _read_giver_candidates(sample: ClusterSample, pools: Sequence[Sequence[_Broker]]) -> None:
    points = sample.learning.learned.points
    above = [broker for pool in pools for broker in pool if broker.is_giver or broker.height > 0]
    sample.bundles.announce_brokers([broker.name for broker in above])
    able = sample.bundles.brokers_with_bundle_above(_MIN_BUNDLE_POINTS / points) if points else set()
    for broker in above:
        broker.has_unread = broker.name in able
        if broker.is_giver:
            _read_candidates(sample, broker)


def _read_candidates(sample: ClusterSample, broker: _Broker) -> None:
    broker.has_unread = False
    broker.bundles = sample.bundles.of_broker(broker.name, None if broker.is_giver else _MAX_OTHER_CANDIDATES)
    loads = sample.learning.learned.points * np.array([bundle.load for bundle in broker.bundles])
    broker.price_factors = 1 + loads / broker.cores / _LARGE_BUNDLE_POINTS
    broker.reasons = [
        bundle.reason
        or (Reason.SYSTEM_NAMESPACE if is_heartbeat(bundle.bundle) else None)
        or (None if load > _MIN_BUNDLE_POINTS else Reason.BELOW_GAIN if load > 0 else Reason.NO_TRAFFIC)
        for bundle, load in zip(broker.bundles, loads.tolist(), strict=True)
    ]
    broker.loads = np.where([reason is None for reason in broker.reasons], loads, np.inf)


def _subtract_mean(pool: Sequence[_Broker]) -> None:
    mean = java_sum(broker.cores * broker.height for broker in pool) / java_sum(broker.cores for broker in pool)
    for broker in pool:
        broker.height -= mean


def _choose_moves(
    sample: ClusterSample, gain_settings: GainSettings, pool: Sequence[_Broker], texts: dict[int | None, str]
) -> list[CandidateMove]:
    """Return a pool's moves, chosen one after another, and the bundles that stay on the hotter broker of each pair.

    The remark about the first move of each pair goes into `texts`.
    """
    moves: list[CandidateMove] = []
    measure, ranks = sample.measure, {broker.pair: count() for broker in pool}
    for _ in range(_MAX_MOVES_PER_PAIR):
        # A hot broker without candidates leaves its partner to the next one.
        able = [broker for broker in pool if broker.height < 0 or broker.may_give]
        able.sort(key=lambda broker: (broker.height, broker.name))
        before = len(moves)
        for colder, hotter in zip(able[: len(able) // 2], reversed(able), strict=False):
            if (hotter.is_giver or colder.is_taker) and (bundle := _pick(sample, gain_settings, hotter, colder)):
                pair = hotter.pair if hotter.is_giver else colder.pair
                texts.setdefault(pair, hotter.remark)
                of_move: dict[str, Any] = {"pair": pair, "rank": next(ranks[pair]), "destination": colder.name}
                moves.append(CandidateMove.new(bundle, measure=measure, reason=Reason.TAKEN, **of_move))
        if len(moves) == before:
            break
    left = (_staying_candidates(broker, ranks[broker.pair], measure) for broker in pool if broker.is_giver)
    return [*moves, *chain.from_iterable(left)]


def _staying_candidates(broker: _Broker, free_ranks: Iterator[int], measure: Measure) -> Iterator[CandidateMove]:
    if broker.may_give and not broker.first_reasons:  # it was never the hotter of two brokers
        broker.remark = f"The expected load is {broker.height:+.0f} points from the mean; hotter brokers shed first"
    taken, pair, source = Reason.TAKEN, broker.pair, broker.name  # looked up once instead of for each bundle
    first_reasons = broker.first_reasons or repeat(Reason.NOT_REACHED)
    for of, reason, first in zip(broker.bundles, broker.reasons, first_reasons, strict=False):
        if reason is not taken:
            values = of.mean(measure), of.msg_rate, of.msg_throughput
            yield CandidateMove(pair, source, None, of.bundle, next(free_ranks), measure, *values, reason or first)


def _pick(sample: ClusterSample, gain_settings: GainSettings, hotter: _Broker, colder: _Broker) -> BundleSample | None:
    """Move the bundle whose gain exceeds its price the most, and return it; None if no bundle is moved."""
    urgent = (hotter.is_giver and hotter.is_urgent) or (colder.is_taker and colder.is_urgent)
    least = gain_settings.min_gain / (_URGENT_DIVISOR if urgent else 1)
    if hotter.has_unread:
        _read_candidates(sample, hotter)
    slope = 2 * (hotter.height / hotter.cores - colder.height / colder.cores)
    narrow = hotter.cores**-2 + colder.cores**-2
    most = slope**2 / 4 / narrow  # with a bundle of the best size
    if None not in hotter.reasons or (hotter.first_reasons and most < least):
        return None
    # The squared heights before the move minus those after it.
    gains = hotter.loads * (slope - narrow * hotter.loads)
    prices = least * hotter.price_factors
    net = gains - prices
    if not hotter.first_reasons:
        hotter.first_reasons = [
            Reason.BELOW_GAIN if left >= 0 or gain > 0 else Reason.WOULD_OVERSHOOT
            for gain, left in zip(gains.tolist(), net.tolist(), strict=True)
        ]
    while net[best := int(net.argmax())] >= 0:
        forbidden = sample.forbids(hotter.bundles[best].bundle, hotter.name, colder.name)
        if forbidden is None:
            break
        hotter.first_reasons[best], net[best] = forbidden, -np.inf
    bundle, load = hotter.bundles[best], float(hotter.loads[best])
    after = hotter.height - load / hotter.cores, colder.height + load / colder.cores
    if net[best] >= 0 or (not hotter.remark and net[best] > -np.inf):
        giver = "" if hotter.is_giver else f" from {hotter.name}"  # a pair may take from a broker that is not its own
        points = f"{hotter.height:+.0f} and {colder.height:+.0f} before, {after[0]:+.0f} and {after[1]:+.0f} after"
        worth = f"gain {gains[best]:.0f}, price {prices[best]:.0f}"
        hotter.remark = f"Best move: {bundle.bundle}{giver} to {colder.name}; points from the mean: {points}; {worth}"
    if net[best] < 0:
        return None
    hotter.height, colder.height = after
    hotter.reasons[best], hotter.loads[best] = Reason.TAKEN, np.inf
    return bundle


def _complete_decisions(
    sample: ClusterSample, decisions: list[Decision], texts: Mapping[int | None, str], moves: Sequence[CandidateMove]
) -> list[Decision]:
    """Return the decisions, completed with their moves.

    Hits are reset for each pair that fires, also if nothing moves, and for each broker that loses or gains a bundle.
    """
    taken = [move for move in moves if move.is_taken]
    touched: set[str | None] = set()
    if sample.counting.counts:
        used: list[CandidateMove | Decision] = [*taken, *(pair for pair in decisions if pair.fired)]
        touched = {end for each in used for end in (each.source, each.destination)}
    traffic: defaultdict[int | None, float] = defaultdict(float)
    for move in taken:
        traffic[move.pair] += move.traffic
    return [
        replace(
            each,
            reason=Reason.FIRED if each.pair in traffic else Reason.NO_GAIN,
            measure=sample.measure,
            target=traffic.get(each.pair, 0.0),
            explanation=f"{gap_and_hits_text(each)}. {texts[each.pair] or 'The source has no bundle that may move'}",
        )
        if each.pair in texts
        else each
        for each in (decision.with_hits_reset(touched) for decision in decisions)
    ]


_REPLAY_GRID: dict[str, object] = {"low_threshold": [10, 15, 20, 30], "hit_count_low": [4, 8]}
PROFILE = replace(avg_shedder.PROFILE, shed=shed, own_settings=GainSettings, learns=True, grid=_REPLAY_GRID)
