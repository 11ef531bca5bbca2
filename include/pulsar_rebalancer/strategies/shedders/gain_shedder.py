"""GainShedder: AvgShedder's pairs and hits, but a bundle moves only if its move is worth a price. Not part of Pulsar.

A move gains what it takes off the squared distances of its two brokers from the cluster's mean, averaged over the
present and the last hour. So small bundles stay, a burst moves only for what remains of it after the hour, and no
broker is drained below the mean to fill another. The formulas are explained in docs/gain-shedder.md.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pulsar_rebalancer.names import is_heartbeat
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state.learned import LearnedBroker
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.learning import MOVED, relative_cores
from pulsar_rebalancer.strategies.sample import CandidateMove, SheddingResult, hits_after
from pulsar_rebalancer.strategies.shedders import avg_shedder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.strategies.learning import Lesson
    from pulsar_rebalancer.strategies.sample import ClusterSample, Decision

    Floats = npt.NDArray[np.float64]

ROUNDS = 40
"""The largest number of bundles that a pair may move in one run."""

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
        pair: number of its pair.
        gives, takes: whether it is the hotter or the colder broker of a pair that fires.
        urgent: whether its pair fires by high hits, or because the run is forced.
        bundles: its candidates.
        loads: points that the candidates add to a broker with the median number of cores; two rows as in `height`.
        reasons: why a candidate does not move; None while it is open.
        at_first: the same if another bundle moves first.
        words: its best move, with numbers.
    """

    name: str
    pool: str
    cores: float
    height: Floats
    pair: int
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
        return float(self.height.mean())

    @property
    def can_give(self) -> bool:
        """Return whether a candidate is open."""
        return None in self.reasons


def shed(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """Make the decisions of one run.

    Args:
        sample: the cluster, with what is known about it after this sample.
        kept: state after the last counted run; only `hits` is used.
    """
    own = GainSettings.model_validate(sample.settings.strategy_settings)
    before = {} if sample.counting.clear else kept.hits
    lesson = sample.lesson()
    decisions = [decision for _, decision in avg_shedder.judge(sample, before, own.hot_threshold)]
    brokers: list[_Broker] = []
    moves: list[CandidateMove] = []
    if any(decision.fired for decision in decisions):
        brokers = _brokers(sample, lesson, decisions)
        for _, pool in groupby(brokers, key=attrgetter("pool")):
            moves += _Plan(sample, own, list(pool)).moves()
    words = avg_shedder.sentence(decisions, sample.settings)
    decisions = _completed(decisions, brokers, moves, sample)
    decisions += avg_shedder.excluded(sample, before)
    after = ShedderState(hits=hits_after(decisions), learned=lesson.learned if sample.counting.counts else kept.learned)
    return SheddingResult(decisions, moves, after, words)


def _brokers(sample: ClusterSample, lesson: Lesson, decisions: Sequence[Decision]) -> list[_Broker]:
    """Return the brokers with their heights and candidates, sorted by pool and name."""
    learned, cores, settings = lesson.learned, relative_cores(sample.brokers), sample.settings
    sums = {name: np.array([of.now, of.later]) for name, of in lesson.sums.items()}
    pairs = {end: decision for decision in decisions for end in (decision.source, decision.destination)}
    brokers = []
    for broker in sorted(sample.taking_part, key=lambda broker: (broker.reserved_by or "", broker.broker)):
        name = broker.broker
        pair = pairs[name]
        fires = pair.fired and pair.source != pair.destination
        coming = sample.arriving.get(name, {}).get(Measure.RATE, 0.0)
        explained = learned.points / cores[name] * (sums.get(name, np.zeros(2)) + coming)
        brokers.append(
            _Broker(
                name,
                broker.reserved_by or "",
                cores[name],
                learned.idle + learned.brokers.get(name, LearnedBroker()).residual + explained,
                pair.pair or 0,
                gives=fires and name == pair.source,
                takes=fires and name == pair.destination,
                urgent=sample.forced or (pair.high_hits or 0) >= settings.hit_count_high,
            )
        )
    _read(sample, learned.points, brokers)
    return brokers


def _read(sample: ClusterSample, points: float, brokers: Sequence[_Broker]) -> None:
    """Subtract the mean from the heights of each pool's brokers, and read the candidates of those above it."""
    _from_mean(brokers)
    above = [broker for broker in brokers if broker.gives or broker.level > 0]
    late = {name: move for name, move in sample.recent.items() if move.minutes < MOVED}
    sample.bundles.announce({*(broker.name for broker in above), *(move.source for move in late.values())})
    at = {broker.name: broker for broker in brokers}
    for name, move in late.items():
        with suppress(KeyError):  # unless the source still reports the bundle
            load = points * np.array(sample.bundles.find(move.source, name).loads)
            for end, sign in ((move.source, -1), (move.destination, 1)):
                if end in at:
                    at[end].height = at[end].height + sign * load / at[end].cores
    _from_mean(brokers)
    for broker in above:
        broker.bundles = sample.bundles.of(broker.name, None if broker.gives else _OF_OTHERS)
        broker.loads = points * np.array([bundle.loads for bundle in broker.bundles]).reshape(-1, 2).T
        broker.reasons = [
            bundle.reason
            or (Reason.SYSTEM_NAMESPACE if is_heartbeat(bundle.bundle) else None)
            or (None if load > _CRUMB else Reason.BELOW_GAIN if load > 0 else Reason.NO_TRAFFIC)
            for bundle, load in zip(broker.bundles, broker.loads.max(axis=0).tolist(), strict=True)
        ]


def _from_mean(brokers: Sequence[_Broker]) -> None:
    for _, pool in groupby(brokers, key=attrgetter("pool")):
        members = list(pool)
        mean = sum(broker.cores * broker.height for broker in members) / sum(broker.cores for broker in members)
        for broker in members:
            broker.height = broker.height - mean


class _Plan:
    """The moves within a pool, chosen one after another."""

    def __init__(self, sample: ClusterSample, own: GainSettings, pool: Sequence[_Broker]) -> None:
        self._sample = sample
        self._own = own
        self._pool = pool
        self._taken: list[tuple[int, BundleSample, str]] = []

    def moves(self) -> list[CandidateMove]:
        """Return the moves, and the bundles that givers keep."""
        for _ in range(ROUNDS):
            if not self._round():
                break
        ranks: dict[int, Iterator[int]] = {broker.pair: count() for broker in self._pool}
        kept = [
            (broker.pair, bundle, None, reason or (broker.at_first[at] if broker.at_first else Reason.BELOW_GAIN))
            for broker in self._pool
            if broker.gives
            for at, (bundle, reason) in enumerate(zip(broker.bundles, broker.reasons, strict=True))
            if reason is not Reason.TAKEN
        ]
        taken = [(pair, bundle, destination, Reason.TAKEN) for pair, bundle, destination in self._taken]
        return [
            CandidateMove.of(
                bundle, pair=pair, rank=next(ranks[pair]), measure=Measure.RATE, reason=reason, destination=destination
            )
            for pair, bundle, destination, reason in [*taken, *kept]
        ]

    def _round(self) -> bool:
        """Pair the brokers, move a bundle for each pair that gives or takes, and return whether any moved."""
        # A hot broker without candidates leaves its partner to the next one.
        able = [broker for broker in self._pool if broker.level < 0 or broker.can_give]
        able.sort(key=lambda broker: (broker.level, broker.name))
        half = len(able) // 2
        moved = [
            self._move(hotter, colder)
            for colder, hotter in zip(able[:half], able[: -half - 1 : -1], strict=True)
            if (hotter.gives or colder.takes) and hotter.can_give
        ]
        return any(moved)

    def _move(self, hotter: _Broker, colder: _Broker) -> bool:
        """Move the bundle with the largest gain above its price, if there is one."""
        off, onto = hotter.loads / hotter.cores, hotter.loads / colder.cores
        gains = (_taken_off(hotter.height, -off) + _taken_off(colder.height, onto)).mean(axis=0)
        urgent = (hotter.gives and hotter.urgent) or (colder.takes and colder.urgent)
        prices = self._own.min_gain / (_URGENT if urgent else 1) * (1 + off.mean(axis=0) / _LARGE)
        if not hotter.at_first:
            hotter.at_first = _at_first(gains, gains - prices)
        net = np.where([reason is None for reason in hotter.reasons], gains - prices, -np.inf)
        best = int(net.argmax())
        while net[best] >= 0:
            forbidden = self._sample.forbids(hotter.bundles[best].bundle, hotter.name, colder.name)
            if forbidden is None:
                break
            hotter.at_first[best] = forbidden
            net[best] = -np.inf
            best = int(net.argmax())
        if net[best] == -np.inf:
            return False
        moves = bool(net[best] >= 0)
        after = hotter.height - off[:, best], colder.height + onto[:, best]
        if not hotter.words:
            words = _words(hotter, colder, hotter.bundles[best].bundle, after)
            hotter.words = f"{words}: gain {gains[best]:.0f}, price {prices[best]:.0f}"
        if moves:
            hotter.height, colder.height = after
            hotter.reasons[best] = Reason.TAKEN
            pair = hotter.pair if hotter.gives else colder.pair
            self._taken.append((pair, hotter.bundles[best], colder.name))
        return moves


def _taken_off(height: Floats, added: Floats) -> Floats:
    """Return by how much the squared heights fall if points are added: a row for each height, a column per bundle."""
    return np.asarray(height[:, None] ** 2 - (height[:, None] + added) ** 2)


def _at_first(gains: Floats, net: Floats) -> list[Reason]:
    return [
        Reason.BETTER_BUNDLE if left >= 0 else Reason.BELOW_GAIN if gain > 0 else Reason.WOULD_OVERSHOOT
        for gain, left in zip(gains.tolist(), net.tolist(), strict=True)
    ]


def _words(hotter: _Broker, colder: _Broker, bundle: str, after: tuple[Floats, Floats]) -> str:
    now, later = (
        f"from {hotter.height[i]:+.0f}/{colder.height[i]:+.0f} to {after[0][i]:+.0f}/{after[1][i]:+.0f}" for i in (0, 1)
    )
    return f"{bundle} to {colder.name} brings the two {now} now, {later} on the hour's average"


def _completed(
    decisions: Sequence[Decision], brokers: Sequence[_Broker], moves: Sequence[CandidateMove], sample: ClusterSample
) -> list[Decision]:
    """Return the decisions with their moves. Hits start again for the brokers of every move, and only for these."""
    traffic: dict[int, float] = {}
    touched: set[str | None] = set()
    for move in moves:
        if move.taken:
            traffic[move.pair] = traffic.get(move.pair, 0.0) + move.traffic
            touched |= {move.source, move.destination}
    words = {broker.pair: broker.words for broker in brokers if broker.gives}
    completed = []
    for decision in decisions:
        if sample.counting.counts and decision.source in touched:
            decision = replace(decision, source_high=0, source_low=0)
        if sample.counting.counts and decision.destination in touched:
            decision = replace(decision, destination_high=0, destination_low=0)
        if decision.fired and decision.pair in words:
            moved, hits = traffic.get(decision.pair), f"{decision.low_hits} low and {decision.high_hits} high hits"
            pair = f"{decision.source} is {decision.gap:.1f} points above {decision.destination}, {hits}"
            decision = replace(
                decision,
                reason=Reason.NO_GAIN if moved is None else Reason.FIRED,
                measure=Measure.RATE,
                target=moved or 0.0,
                explanation=f"{pair}. {words[decision.pair] or 'It has no bundle that may move'}",
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
