"""GainShedder: AvgShedder's pairs and hits, but a bundle moves only if its move is worth a price. Not part of Pulsar.

A move gains what it takes off the squared distances of its two brokers from the cluster's mean, averaged over the
present and the last hour. So small bundles stay, a burst moves only for what remains of it after the hour, and no
broker is drained below the mean to fill another. The formulas are explained in docs/gain-shedder.md.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pulsar_rebalancer.names import is_heartbeat
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.learned import LearnedBroker
from pulsar_rebalancer.strategies.bottleneck import MEMORY, UNIT
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.learning import MOVED, Sums
from pulsar_rebalancer.strategies.sample import CandidateMove, SheddingResult, hits_after
from pulsar_rebalancer.strategies.scoring import relative_limits
from pulsar_rebalancer.strategies.shedders import avg_shedder
from pulsar_rebalancer.strategies.wording import gap_and_hits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.state.learned import Learned
    from pulsar_rebalancer.strategies.sample import ClusterSample, Decision

    Floats = npt.NDArray[np.float64]

_ROUNDS = 40  # the largest number of bundles that a pair may move in one run
_CRUMB = 0.2  # points; smaller bundles stay
_LARGE = 8.0  # points; the move of such a bundle has twice the price of a small one
_URGENT = 2  # by which the price of a move is divided for an urgent pair
_OF_OTHERS = 50  # number of candidates, the largest, of a broker whose pair does not fire


class GainSettings(BaseModel):
    """GainShedder's own settings."""

    model_config = ConfigDict(extra="forbid")

    min_gain: float = Field(30, ge=0, description="minimum gain of a move, points squared; half if the pair is urgent")
    hot_threshold: float = Field(80, ge=0, description="score from which a gap above low_threshold is urgent, percent")


@dataclass(slots=True, eq=False)
class _Broker:
    """A broker while moves are chosen.

    Attributes:
        height: points above the mean of its pool: at present, and on the hour's average.
        gives, takes: whether it is the hotter or the colder broker of a pair that fires.
        urgent: whether its pair fires by high hits, or because the run is forced.
        loads: points that the candidates add to a broker with the median number of cores; two rows as in `height`.
        reasons: why a candidate does not move; None while it may.
        at_first: the same if another bundle moves first.
    """

    name: str
    pair: int
    cores: float
    height: Floats
    gives: bool
    takes: bool
    urgent: bool
    bundles: list[BundleSample] = field(default_factory=list)
    loads: Floats = field(default_factory=lambda: np.zeros((2, 0)))
    reasons: list[Reason | None] = field(default_factory=list)
    at_first: list[Reason] = field(default_factory=list)
    words: str = ""

    @property
    def level(self) -> float:
        """Return the mean of both heights."""
        return float(self.height[0] + self.height[1]) / 2


def shed(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """Make the decisions of one run; what was learned comes with the sample."""
    own = GainSettings.model_validate(sample.settings.strategy_settings)
    before = {} if sample.counting.clear else kept.hits
    decisions = [decision for _, decision in avg_shedder.judge(sample, before, own.hot_threshold)]
    known = sample.lesson().learned  # Spark may still be learning it
    learned = known if sample.counting.counts else kept.learned
    if known.bottleneck == MEMORY:
        return _as_avg_shedder(sample, kept, learned)
    sentence = avg_shedder.sentence(decisions, sample.settings)
    moves: list[CandidateMove] = []
    if any(decision.fired for decision in decisions):
        pools = _pools(sample, decisions)
        _read(sample, known.points, pools)
        moves = [move for pool in pools for move in _planned(sample, own, pool)]
        words = {broker.pair: broker.words for pool in pools for broker in pool if broker.gives}
        decisions = _completed(sample, decisions, words, moves)
    decisions += avg_shedder.excluded(sample, before)
    return SheddingResult(decisions, moves, ShedderState(hits=hits_after(decisions), learned=learned), sentence)


def _as_avg_shedder(sample: ClusterSample, kept: ShedderState, learned: Learned) -> SheddingResult:
    result = avg_shedder.shed(sample, kept)
    why = f"{Reason.MEMORY_DECIDES.meaning} [{Reason.MEMORY_DECIDES}]"
    decisions = [replace(of, explanation=f"{gap_and_hits(of)}. {why}") if of.fired else of for of in result.decisions]
    after = replace(result.kept, learned=learned)
    return result._replace(decisions=decisions, kept=after, sentence=f"{result.sentence}. {why}")


def _pools(sample: ClusterSample, decisions: Sequence[Decision]) -> list[list[_Broker]]:
    """Return the brokers of each pool, with their heights above 0."""
    learned, of_brokers = sample.lesson().learned, sample.lesson().sums
    cores = relative_limits(sample.brokers, learned.bottleneck)
    pairs = {end: pair for pair in decisions for end in (pair.source, pair.destination)}
    pools: defaultdict[str, list[_Broker]] = defaultdict(list)
    for broker in sample.taking_part:
        name = broker.broker
        pair, sums = pairs[name], of_brokers.get(name, Sums())
        fires = pair.fired and pair.source != pair.destination
        coming = sample.arriving.get(name, {}).get(sample.measure, 0.0) / UNIT[sample.measure]
        unexplained = learned.idle + learned.brokers.get(name, LearnedBroker()).residual
        pools[broker.reserved_by or ""].append(
            _Broker(
                name,
                pair.pair or 0,
                cores[name],
                unexplained + learned.points / cores[name] * (np.array([sums.now, sums.later]) + coming),
                gives=fires and name == pair.source,
                takes=fires and name == pair.destination,
                urgent=sample.forced or (pair.high_hits or 0) >= sample.settings.hit_count_high,
            )
        )
    return [pools[name] for name in sorted(pools)]


def _read(sample: ClusterSample, points: float, pools: Sequence[Sequence[_Broker]]) -> None:
    """Subtract the mean from the heights of each pool's brokers, and read the candidates of those above it."""
    _from_mean(pools)
    at = {broker.name: broker for pool in pools for broker in pool}
    above = [broker for broker in at.values() if broker.gives or broker.level > 0]
    late = {name: move for name, move in sample.recent.items() if move.minutes < MOVED}
    sample.bundles.announce({*(broker.name for broker in above), *(move.source for move in late.values())})
    for name, move in late.items():
        with suppress(KeyError):  # unless the source still reports the bundle
            load = points * np.array(sample.bundles.find(move.source, name).loads)
            for end, sign in ((move.source, -1), (move.destination, 1)):
                if end in at:
                    at[end].height = at[end].height + sign * load / at[end].cores
    _from_mean(pools)
    for broker in above:
        broker.bundles = sample.bundles.of(broker.name, None if broker.gives else _OF_OTHERS)
        broker.loads = points * np.array([bundle.loads for bundle in broker.bundles]).reshape(-1, 2).T
        broker.reasons = [
            bundle.reason
            or (Reason.SYSTEM_NAMESPACE if is_heartbeat(bundle.bundle) else None)
            or (None if load > _CRUMB else Reason.BELOW_GAIN if load > 0 else Reason.NO_TRAFFIC)
            for bundle, load in zip(broker.bundles, broker.loads.max(axis=0).tolist(), strict=True)
        ]


def _from_mean(pools: Sequence[Sequence[_Broker]]) -> None:
    for pool in pools:
        mean = sum(broker.cores * broker.height for broker in pool) / sum(broker.cores for broker in pool)
        for broker in pool:
            broker.height = broker.height - mean


def _planned(sample: ClusterSample, own: GainSettings, pool: Sequence[_Broker]) -> list[CandidateMove]:
    """Return the moves within a pool, chosen one after another, and the bundles that givers keep."""
    taken: list[tuple[int, BundleSample, Reason, str | None]] = []
    for _ in range(_ROUNDS):
        # A hot broker without candidates leaves its partner to the next one.
        able = [broker for broker in pool if broker.level < 0 or None in broker.reasons]
        able.sort(key=lambda broker: (broker.level, broker.name))
        half, moved = len(able) // 2, len(taken)
        for colder, hotter in zip(able[:half], able[: -half - 1 : -1], strict=True):
            if (hotter.gives or colder.takes) and (bundle := _move(sample, own, hotter, colder)):
                taken.append((hotter.pair if hotter.gives else colder.pair, bundle, Reason.TAKEN, colder.name))
        if len(taken) == moved:
            break
    left = [
        (broker.pair, bundle, reason or (broker.at_first[at] if broker.at_first else Reason.BELOW_GAIN), None)
        for broker in pool
        if broker.gives
        for at, (bundle, reason) in enumerate(zip(broker.bundles, broker.reasons, strict=True))
        if reason is not Reason.TAKEN
    ]
    ranks, measure = {broker.pair: count() for broker in pool}, sample.measure
    return [
        CandidateMove.of(bundle, pair=pair, rank=next(ranks[pair]), measure=measure, reason=reason, destination=to)
        for pair, bundle, reason, to in [*taken, *left]
    ]


def _move(sample: ClusterSample, own: GainSettings, hotter: _Broker, colder: _Broker) -> BundleSample | None:
    """Move the bundle with the largest gain above its price, and return it; None if there is none."""
    urgent = (hotter.gives and hotter.urgent) or (colder.takes and colder.urgent)
    least = own.min_gain / (_URGENT if urgent else 1)
    apart = hotter.height / hotter.cores - colder.height / colder.cores
    most = float(apart @ apart) / 2 / (hotter.cores**-2 + colder.cores**-2)  # with a bundle of the best size
    if None not in hotter.reasons or (hotter.at_first and most < least):
        return None
    off, onto = hotter.loads / hotter.cores, hotter.loads / colder.cores
    hot, cold = hotter.height[:, None], colder.height[:, None]
    taken_off = (hot**2 - (hot - off) ** 2) + (cold**2 - (cold + onto) ** 2)
    gains = (taken_off[0] + taken_off[1]) / 2
    prices = least * (1 + (off[0] + off[1]) / 2 / _LARGE)
    net = gains - prices
    if not hotter.at_first:
        hotter.at_first = [
            Reason.BETTER_BUNDLE if left >= 0 else Reason.BELOW_GAIN if gain > 0 else Reason.WOULD_OVERSHOOT
            for gain, left in zip(gains.tolist(), net.tolist(), strict=True)
        ]
    net[[reason is not None for reason in hotter.reasons]] = -np.inf
    while net[best := int(net.argmax())] >= 0:
        forbidden = sample.forbids(hotter.bundles[best].bundle, hotter.name, colder.name)
        if forbidden is None:
            break
        hotter.at_first[best], net[best] = forbidden, -np.inf
    if net[best] == -np.inf:
        return None
    bundle, after = hotter.bundles[best], (hotter.height - off[:, best], colder.height + onto[:, best])
    if not hotter.words:
        hotter.words = f"{_words(hotter, colder, bundle, after)}: gain {gains[best]:.0f}, price {prices[best]:.0f}"
    if net[best] < 0:
        return None
    hotter.height, colder.height = after
    hotter.reasons[best] = Reason.TAKEN
    return bundle


def _words(hotter: _Broker, colder: _Broker, bundle: BundleSample, after: tuple[Floats, Floats]) -> str:
    heights = zip(hotter.height, colder.height, *after, strict=True)
    now, later = ("from {:+.0f}/{:+.0f} to {:+.0f}/{:+.0f}".format(*of) for of in heights)
    return f"{bundle.bundle} to {colder.name} brings the two {now} now, {later} on the hour's average"


def _completed(
    sample: ClusterSample, decisions: Sequence[Decision], words: Mapping[int, str], moves: Sequence[CandidateMove]
) -> list[Decision]:
    """Return the decisions with their moves. Hits start again for the brokers of every move, and only for these."""
    taken = [move for move in moves if move.taken]
    touched = {end for move in taken for end in (move.source, move.destination) if sample.counting.counts}
    traffic: defaultdict[int | None, float] = defaultdict(float)
    for move in taken:
        traffic[move.pair] += move.traffic
    completed = []
    for decision in decisions:
        if decision.source in touched:
            decision = replace(decision, source_high=0, source_low=0)
        if decision.destination in touched:
            decision = replace(decision, destination_high=0, destination_low=0)
        if decision.pair is not None and decision.pair in words:
            decision = replace(
                decision,
                reason=Reason.FIRED if decision.pair in traffic else Reason.NO_GAIN,
                measure=sample.measure,
                target=traffic.get(decision.pair, 0.0),
                explanation=f"{gap_and_hits(decision)}. {words[decision.pair] or 'It has no bundle that may move'}",
            )
        completed.append(decision)
    return completed


PROFILE = replace(
    avg_shedder.PROFILE,
    shed=shed,
    own_settings=GainSettings,
    learns=True,
    grid={"low_threshold": [10, 15, 20, 30], "hit_count_low": [4, 8]},
)
