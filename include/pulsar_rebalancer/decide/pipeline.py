"""One run of any shedder over one cluster: shed and place bundles, apply caps, and return the new state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.decide.explain import HELD_BACK, taken_and_passed_over
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.kept import KeptState
from pulsar_rebalancer.strategies.learning import Lesson
from pulsar_rebalancer.strategies.placement import assignment
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.sample import ClusterSample
from pulsar_rebalancer.strategies.shedders.registry import profile_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.bundle_columns import Bundles
    from pulsar_rebalancer.run.tables import BrokerSample, Measure
    from pulsar_rebalancer.state.counting import Counting
    from pulsar_rebalancer.strategies.sample import CandidateMove, Decision, SheddingResult


class RunDecision(NamedTuple):
    """A run's decision.

    Attributes:
        decisions: the shedder's decisions. `explain.complete` adds the bundles that move after policies and caps.
        moves: the candidates after placement and caps, with destinations and waves.
        kept: state of the strategy and of its placement strategy, for the next run.
        sentence: the shedder's result, and the bundles that move after policies and caps.
        samples: figure by broker if the figures caused moves or a cluster-wide hit; else empty. For AvgShedder, the
            figures are in the decisions instead (`sample.used_samples`).
    """

    decisions: list[Decision]
    moves: list[CandidateMove]
    kept: KeptState
    sentence: str
    samples: dict[str, float]


@dataclass(frozen=True)
class RunContext:
    """The input to one cluster's run, except for the tables.

    Attributes:
        counting: rules for counting this sample.
        kept: the strategy's state after the last counted run.
        policies: isolation policies, anti-affinity groups and failure domains.
        forced: True if the run moves bundles without waiting for hits.
        force_threshold: smallest gap, in score points, at which a forced run moves bundles, if the shedder has
            thresholds.
        unloaded_brokers: seconds between each broker's last unload and the sample.
        arriving: traffic that drains move to each broker in this run, in msg/s and bytes/s.
        lesson: figures learned up to this sample, for a shedder that learns.
        seed: seed for choosing among equally good destinations; the same seed gives the same plan.
    """

    settings: Settings
    counting: Counting
    kept: KeptState = field(default_factory=KeptState)
    policies: Policies = field(default_factory=Policies)
    forced: bool = False
    force_threshold: float | None = None
    unloaded_brokers: Mapping[str, float] = field(default_factory=dict)
    arriving: Mapping[str, Mapping[Measure, float]] = field(default_factory=dict)
    lesson: Lesson = field(default_factory=Lesson)
    seed: str = ""


def decide(context: RunContext, brokers: Sequence[BrokerSample], bundles: Bundles) -> RunDecision:
    """Return a run's decision: shed and place bundles, and apply the caps.

    Args:
        brokers: all brokers that the cluster lists.
        bundles: all bundles that these brokers report.
    """

    @cache
    def policies() -> PolicyFilter:
        # Made only when needed: in most samples nothing moves.
        return PolicyFilter(context.policies, brokers, bundles, context.settings)

    kept = context.kept
    before = replace(kept, shedder=kept.shedder.without_hits()) if context.counting.clear else kept
    sample = ClusterSample(
        brokers,
        bundles,
        context.settings,
        counting=context.counting,
        forced=context.forced,
        force_threshold=context.force_threshold,
        unloaded_brokers=_unloaded_before_the_report(context, brokers),
        arriving=context.arriving,
        lesson=context.lesson,
        forbids=lambda *move: policies().forbids(*move),
    )
    profile = profile_of(context.settings)
    shed = profile.shed(sample, before.shedder)
    if profile.judges_pairs:
        moves, after = _capped(context, brokers, shed.moves), replace(before, shedder=shed.kept)
        return RunDecision(shed.decisions, moves, after, shed.sentence, {})
    return _placed(context, sample, shed, policies, before)


def _placed(
    context: RunContext,
    sample: ClusterSample,
    shed: SheddingResult,
    policies: Callable[[], PolicyFilter],
    before: KeptState,
) -> RunDecision:
    """Return the decision of a shedder for which the pipeline handles samples and policies.

    A sample that follows the last one too soon still has the last sample's moving averages. For such a sample, the
    shedder's result is reported, but nothing is shed. If the shedder counts hits, the same applies to a sample without
    a new figure. Only samples that count change the state for the next run.
    """
    counting = context.counting
    samples = _samples(sample, shed)
    repeated = not context.forced and counting.is_repeated({broker: samples[broker] for broker in shed.outermost})
    if repeated or counting.reason is Reason.TOO_SOON:
        return RunDecision(
            [_too_soon(decision) for decision in shed.decisions],
            [],
            before,
            "too soon after the last sample: nothing is shed",
            {},
        )
    moves, placement = assignment.place(sample, shed.moves, policies(), before.placement, context.seed)
    after = KeptState(shed.kept, placement)
    moves = _capped(context, sample.brokers, moves)
    if counting.counts:
        used = any(move.taken for move in shed.moves) or after.shedder.cluster_hits > before.shedder.cluster_hits
    else:
        used, after = any(move.taken for move in moves), before
    return RunDecision(shed.decisions, moves, after, _with_moves(shed.sentence, moves), samples if used else {})


def _capped(
    context: RunContext, brokers: Sequence[BrokerSample], moves: Sequence[CandidateMove]
) -> list[CandidateMove]:
    return caps.apply(moves, context.settings, context.policies.groups, brokers)


def _samples(sample: ClusterSample, shed: SheddingResult) -> dict[str, float]:
    """Return the brokers' figures that cause cluster-wide hits; empty if the shedder counts no such hits."""
    if not shed.outermost:
        return {}
    figure = profile_of(sample.settings).figure
    return {broker.broker: figure(broker, sample.settings) for broker in sample.taking_part}


def _too_soon(decision: Decision) -> Decision:
    reason = decision.reason if decision.pair is None else Reason.TOO_SOON
    return replace(decision, reason=reason, fired=False, measure=None, target=None)


def _with_moves(found: str, moves: Sequence[CandidateMove]) -> str:
    """Return the shedder's result as text, with the number of bundles that move and the number passed over, if any."""
    if not moves:
        return found
    held_back = Counter(move.reason for move in moves if move.reason in HELD_BACK)
    return f"{found}. {taken_and_passed_over([move for move in moves if move.taken], held_back)}"


def _unloaded_before_the_report(context: RunContext, brokers: Sequence[BrokerSample]) -> dict[str, float]:
    # Brokers that report averages say when they measured these; others say when they last wrote to the metadata store.
    ages = {broker.broker: broker.report_age_seconds or 0 for broker in brokers if broker.load_average is not None}
    return {name: since - ages.get(name, 0) for name, since in context.unloaded_brokers.items()}
