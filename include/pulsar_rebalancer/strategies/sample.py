"""Interface for shedders: the sample that they receive, and the result that they return."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import is_heartbeat
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import Bundles, BundleSample
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.tables import BrokerSample, Measure, Row
from pulsar_rebalancer.state import HitCount, HitRules, ShedderState
from pulsar_rebalancer.strategies.learning import LearningResult
from pulsar_rebalancer.strategies.scoring import SCORED, Brokers, measure_of, score
from pulsar_rebalancer.texts import number_of


class RecentMove(NamedTuple):
    """A move that was carried out a few minutes ago; the destination is the broker that owns the bundle now."""

    source: str
    destination: str
    minutes: float


COUNTED = HitRules(counts=True, reason=Reason.COUNTED)


class JudgedPair(NamedTuple):
    """Two brokers of a pool after this sample, numbered by pool from the outermost pair inwards.

    Attributes:
        source, destination: the hotter and the colder broker; the middle one of an odd number is both.
        source_high, …: hits after the sample, if it counts; those of pairs that fire are not reset yet.
        high_hits, low_hits: the larger of both brokers' counts.
        repeated: whether the same values have already caused a hit.
    """

    pair: int
    pool: str
    source: str
    destination: str
    source_score: float
    destination_score: float
    gap: float
    source_high_before: int
    source_low_before: int
    destination_high_before: int
    destination_low_before: int
    source_high: int
    source_low: int
    destination_high: int
    destination_low: int
    high_hits: int
    low_hits: int
    repeated: bool
    fired: bool

    @property
    def is_middle(self) -> bool:
        return self.source == self.destination


class Judge(Protocol):
    """A function that scores and pairs brokers, counts hits, and says which pairs fire."""

    def __call__(self, sample: ClusterSample, hits: Mapping[str, HitCount], hot_score: float) -> list[JudgedPair]:
        """Return the pairs, outermost first.

        Args:
            hits: hits before this sample, by broker.
            hot_score: score in percent, from which every hit of a source counts as a high hit. Pulsar has no such rule.
        """


@dataclass(frozen=True)
class ClusterSample:
    """One sample of one cluster, with the rules of the run.

    Attributes:
        brokers, bundles: all brokers that the cluster lists, and all bundles that these report.
        counting: rules for counting this sample.
        forced: True if the run moves bundles without waiting for hits.
        force_threshold: smallest gap, in points, at which a forced run moves bundles, if there are thresholds.
        unloaded_brokers: seconds from a broker's last unload to its report; negative if the report is older.
        arriving: traffic that this run's drains add, by broker and measure (msg/s or bytes/s).
        learning: values learned up to this sample, for a shedder that learns.
        forbids: returns why a bundle must not move from a source to a destination; None if it may.
        judge: how pairs are judged; None for numpy (`avg_shedder.judge_pairs`).
        brief: True in replays: decisions that neither fire nor concern hits may be omitted.
    """

    brokers: Sequence[BrokerSample]
    bundles: Bundles
    settings: Settings
    counting: HitRules = COUNTED
    forced: bool = False
    force_threshold: float | None = None
    unloaded_brokers: Mapping[str, float] = field(default_factory=dict)
    arriving: Mapping[str, Mapping[Measure, float]] = field(default_factory=dict)
    learning: LearningResult = field(default_factory=LearningResult)
    forbids: Callable[[str, str, str], Reason | None] = lambda *_: None
    judge: Judge | None = None
    brief: bool = False

    @cached_property
    def all_brokers(self) -> Brokers:
        return Brokers.wrap(self.brokers)

    @property
    def compared_brokers(self) -> list[BrokerSample]:
        """Return the brokers that are not left out, sorted by name."""
        return self.all_brokers.compared_brokers

    def usage_by_broker(self) -> Mapping[str, float]:
        """Return the weighted usage of the brokers that are not left out, sorted by name; 1 is 100 percent."""
        return self.all_brokers.usage_by_broker(self.settings)

    @property
    def left_out_reasons(self) -> Mapping[str, Reason]:
        """Return the brokers that can be neither source nor destination, each with the reason."""
        return self.all_brokers.left_out_reasons

    def broker(self, name: str) -> BrokerSample:
        """Return a broker; raises KeyError if the cluster does not list it."""
        return self.all_brokers.find_broker(name)

    def traffic(self, broker: str, measure: Measure) -> float:
        """Return a broker's traffic in msg/s or bytes/s, with what this run's drains add."""
        return self.broker(broker).traffic(measure) + self.arriving.get(broker, {}).get(measure, 0.0)

    @property
    def measure(self) -> Measure:
        return measure_of(self.learning.learned.bottleneck)

    def shed_candidates(self, broker: str) -> list[BundleSample]:
        """Return the bundles that a broker reports, sorted by name, without those in heartbeat namespaces."""
        return [bundle for bundle in self.bundles.of_broker(broker) if not is_heartbeat(bundle.bundle)]


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for a pair or a single broker: a row in the decisions table."""

    source: str
    reason: Reason
    pair: int | None = None
    pool: str | None = None
    destination: str | None = None
    source_score: float | None = None
    destination_score: float | None = None
    gap: float | None = None
    source_high_before: int | None = None
    source_low_before: int | None = None
    destination_high_before: int | None = None
    destination_low_before: int | None = None
    source_high: int | None = None
    source_low: int | None = None
    destination_high: int | None = None
    destination_low: int | None = None
    high_hits: int | None = None
    low_hits: int | None = None
    value: float | None = None
    bound: float | None = None
    fired: bool = False
    explanation: str | None = None
    measure: Measure | None = None
    target: float | None = None
    bundles_taken: int = 0
    traffic_taken: float = 0.0

    def with_hits_reset(self, brokers: Container[str | None]) -> Self:
        changed: dict[str, Any] = {}
        if self.source in brokers and self.source_high is not None:
            changed |= {"source_high": 0, "source_low": 0}
        if self.destination in brokers and self.destination_high is not None:
            changed |= {"destination_high": 0, "destination_low": 0}
        return replace(self, **changed) if changed else self


class CandidateMove(NamedTuple):
    """A candidate bundle for a decision that fired, accepted or passed over: a row in the moves table.

    Attributes:
        pair: number of the decision.
        rank: position among the source's bundles, in the order in which they were considered.
        traffic: the bundle's value that was compared, in the unit of `measure`.
        reason: `taken` if the bundle is to be moved, else why it is passed over.
        destination: the planned broker; None if placement will choose it.
        wave: None until caps are applied, and for bundles that are passed over.
    """

    pair: int
    source: str
    destination: str | None
    bundle: str
    rank: int
    measure: Measure
    traffic: float
    msg_rate: float
    msg_throughput: float
    reason: Reason
    wave: int | None = None

    @property
    def is_taken(self) -> bool:
        return self.reason is Reason.TAKEN

    def put_off(self, reason: Reason) -> Self:
        """Return the candidate; if it was accepted before, it is now passed over for this reason."""
        return self._replace(reason=reason, wave=None) if self.is_taken else self

    @classmethod
    def new(
        cls,
        bundle: BundleSample,
        *,
        pair: int,
        rank: int,
        measure: Measure,
        reason: Reason,
        destination: str | None = None,
        traffic: float | None = None,
    ) -> Self:
        """Create the candidate for a bundle. `traffic` defaults to its short-term mean."""
        compared = bundle.mean(measure) if traffic is None else traffic
        of_bundle = bundle.msg_rate, bundle.msg_throughput
        return cls(pair, bundle.broker, destination, bundle.bundle, rank, measure, compared, *of_bundle, reason)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        columns = {name: row[name] for name in cls._fields}
        return cls(**columns | {"reason": Reason(row["reason"]), "measure": Measure(row["measure"])})


class SheddingResult(NamedTuple):
    """The result of running a shedder once.

    Attributes:
        decisions: one per pair or compared broker, then one per broker left out.
        moves: every candidate for the decisions that fired; `wave` is still None.
        sentence: the result as text, for the terminal and the summary.
        outermost: brokers whose values show whether the sample is new, if hits count for the cluster.
    """

    decisions: list[Decision]
    moves: list[CandidateMove]
    state: ShedderState
    sentence: str
    outermost: tuple[str, ...] = ()


def left_out_decisions(sample: ClusterSample) -> list[Decision]:
    return [Decision(name, reason) for name, reason in sorted(sample.left_out_reasons.items())]


def used_score_by_broker(
    decisions: Iterable[Decision], hit_rules: HitRules, moves: Iterable[CandidateMove] = ()
) -> dict[str, float]:
    """Return the scores that caused hits, by broker; if the run counts none, of brokers in pairs' moves.

    A move's brokers need not be those of its pair.
    """
    judged = {decision.pair: decision for decision in decisions if decision.low_hits is not None}
    taken = [move for move in moves if move.is_taken and move.pair in judged]
    moved = {end for move in taken for end in (move.source, move.destination)}
    used: dict[str, float] = {}
    for pair in judged.values():
        counted = (pair.low_hits or 0) > max(pair.source_low_before or 0, pair.destination_low_before or 0)
        for broker, its_score in ((pair.source, pair.source_score), (pair.destination, pair.destination_score)):
            if broker is not None and its_score is not None and (counted if hit_rules.counts else broker in moved):
                used[broker] = its_score
    return used


def hits_after(decisions: Iterable[Decision]) -> dict[str, HitCount]:
    """Return each broker's hit counts after the decisions, without zero counts.

    Counts of brokers that have left the cluster are dropped; Pulsar keeps them until no pair is above the low
    threshold.
    """
    counts = {}
    for decision in decisions:
        if decision.source_high is None:
            continue
        counts[decision.source] = HitCount(decision.source_high, decision.source_low or 0)
        if decision.destination is not None:
            counts[decision.destination] = HitCount(decision.destination_high or 0, decision.destination_low or 0)
    return {broker: hit for broker, hit in sorted(counts.items()) if hit != HitCount()}


def amount_text(measure: Measure, value: float) -> str:
    return f"{value:,.0f} msg/s" if measure is Measure.RATE else f"{value / MIB:,.2f} MiB/s"


def gap_and_hits_text(pair: Decision) -> str:
    hits = f"{pair.low_hits} low and {pair.high_hits} high hits"
    return f"{pair.source} is {pair.gap:.1f} points above {pair.destination}, {hits}"


def moves_text(moves: Sequence[CandidateMove]) -> str:
    if not moves:
        return "no bundle"
    traffic = amount_text(moves[0].measure, math.fsum(move.traffic for move in moves))
    return f"{number_of(len(moves), 'bundle')} with {traffic}"


class Shedder(Protocol):
    """A function that makes a strategy's decisions for one run of one cluster."""

    def __call__(self, sample: ClusterSample, state: ShedderState) -> SheddingResult:
        """Make the shedding decisions for one run; `state` is the state after the last counted run."""


class Threshold(NamedTuple):
    """The smallest score gap that counts as a hit, in points, and the number of consecutive hits needed to fire."""

    gap: float
    hits: int


class Line(BaseModel):
    """A band, or a line if both scores are equal, that the page draws across the brokers' bars."""

    model_config = ConfigDict(frozen=True)

    name: str
    lower: float
    upper: float


def bands_around_mean(mean: float | None, thresholds: Mapping[str, Threshold]) -> tuple[Line, ...]:
    """Return a range around the mean for each threshold; scores inside it differ by less."""
    if mean is None:
        return ()
    return tuple(
        Line(name=f"{kind} threshold", lower=round(max(0.0, mean - gap / 2), 2), upper=round(mean + gap / 2, 2))
        for kind, (gap, _) in thresholds.items()
    )


def score_range_text(summary: Summary) -> str:
    return f"the scores of {summary.brokers} brokers are within {summary.score_range:.1f} points"


class NoSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Profile:
    """A shedder's profile.

    Attributes:
        thresholds: `low` and maybe `high`; empty if the shedder does not pair brokers by score. With thresholds, hits
            are counted for both brokers of a pair, the page and the metrics show them, a forced run may set the gap
            (`ClusterSample.force_threshold`), and brokers without persistent topics are left out.
        judges_pairs: True if the shedder itself handles repeated samples and policies, and chooses the destinations.
            The pipeline then only applies caps.
        swaps: True if the grace period does not hold a bundle that goes back in exchange (TransferShedder).
        learns: True if the shedder needs the results of `strategies.learning`.
        cluster_hits: hits for the whole cluster at which the shedder sheds; None if it counts none.
        value: returns a broker's value. A sample with the same value is a repeat and causes no hit.
        resources: resources that the shedder considers (`run.tables.RESOURCES`).
        placement: default placement, for shedders that do not choose destinations.
        own_settings: model for `Settings.strategy_settings`.
        check: raises ValueError if settings contradict each other.
        run_params: parameters of a manual run that it accepts (`config.clusters_file.RunParams`).
        lines: lines for the page from the settings and the mean score (None without compared brokers).
        sentence: what the page shows if nothing has to be moved.
        grid: values that a replay compares by default, by setting.
    """

    shed: Shedder
    thresholds: Callable[[Settings], Mapping[str, Threshold]] = lambda _: {}
    judges_pairs: bool = False
    swaps: bool = False
    learns: bool = False
    cluster_hits: Callable[[Settings], int | None] = lambda _: None
    value: Callable[[BrokerSample, Settings], float] = score
    resources: tuple[str, ...] = SCORED
    placement: Placement = Placement.LEAST_USAGE
    own_settings: type[BaseModel] = NoSettings
    check: Callable[[Settings], None] = lambda _: None
    run_params: tuple[str, ...] = ()
    lines: Callable[[Settings, float | None], tuple[Line, ...]] = lambda *_: ()
    sentence: Callable[[Summary], str] = lambda summary: summary.sentence or score_range_text(summary)
    grid: dict[str, object] = field(default_factory=dict)
