"""The strategy as a source: any shedder, its placement, and the rules that hold for the result of every shedder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import stays
from pulsar_rebalancer.decide.planning import HELD_BACK_REASONS, Proposal, SourceReport, taken_and_passed_over_text
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import Bundles
from pulsar_rebalancer.run.tables import BrokerSample, Measure
from pulsar_rebalancer.state import HitRules, StrategyState
from pulsar_rebalancer.strategies.candidates import PolicyFilter
from pulsar_rebalancer.strategies.learning import LearningResult
from pulsar_rebalancer.strategies.placement import choose_destinations
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, Decision, Judge, SheddingResult
from pulsar_rebalancer.strategies.scoring import Brokers
from pulsar_rebalancer.strategies.shedders.registry import profile_of


@dataclass(frozen=True)
class StrategyInput:
    """The input to one cluster's strategy.

    Attributes:
        brokers: all brokers that the cluster lists.
        strategy_state: the strategy's state after the last counted run.
        policies: isolation policies, anti-affinity groups and failure domains.
        is_forced: True if the run moves bundles without waiting for hits.
        force_threshold: smallest gap, in score points, at which a forced run moves bundles.
        seconds_since_unload: seconds between each broker's last unload and the sample.
        learning: what a shedder that learns has learned up to this sample.
        seed: for choosing among equally good destinations; the same seed gives the same plan.
        judge: how pairs of brokers are judged; None for numpy.
        may_omit_decisions: True if nobody reads the decisions that change nothing.
    """

    settings: Settings
    brokers: Sequence[BrokerSample]
    bundles: Bundles
    hit_rules: HitRules
    strategy_state: StrategyState = field(default_factory=StrategyState)
    policies: Policies = field(default_factory=Policies)
    is_forced: bool = False
    force_threshold: float | None = None
    seconds_since_unload: Mapping[str, float] = field(default_factory=dict)
    learning: LearningResult = field(default_factory=LearningResult)
    seed: str = ""
    judge: Judge | None = None
    may_omit_decisions: bool = False


def strategy_proposal(inputs: StrategyInput, arriving_traffic: Mapping[str, Mapping[Measure, float]]) -> Proposal:
    """Return what the strategy wants; drains' traffic is in msg/s and bytes/s. Raises PlanError `bad_result`."""

    @cache
    def policies() -> PolicyFilter:
        # Made only when needed: in most samples nothing moves.
        return PolicyFilter(inputs.policies, inputs.brokers, inputs.bundles, inputs.settings)

    state = inputs.strategy_state
    # Averages are kept, as they are in Pulsar until the leader changes.
    before = replace(state, shedder=replace(state.shedder, hits={})) if inputs.hit_rules.clear else state
    sample = ClusterSample(
        inputs.brokers,
        inputs.bundles,
        inputs.settings,
        counting=inputs.hit_rules,
        forced=inputs.is_forced,
        force_threshold=inputs.force_threshold,
        unloaded_brokers=_unload_age_by_broker(inputs),
        arriving=arriving_traffic,
        learning=inputs.learning,
        forbids=lambda *move: policies().refusal_reason(*move),
        judge=inputs.judge,
        brief=inputs.may_omit_decisions,
    )
    profile = profile_of(inputs.settings)
    shed = profile.shed(sample, before.shedder)
    shed = shed._replace(moves=stays.checked_moves(sample, shed.moves))
    if profile.judges_pairs:
        return Proposal(shed.moves, lambda moves: _to_report(sample, shed, moves), replace(before, shedder=shed.state))
    return _shed_proposal(inputs, sample, shed, policies, before)


def _shed_proposal(
    inputs: StrategyInput,
    sample: ClusterSample,
    result: SheddingResult,
    make_policies: Callable[[], PolicyFilter],
    state: StrategyState,
) -> Proposal:
    """Return what a shedder wants for which samples and policies are handled here.

    A sample that follows the last one too soon still has its moving averages, so nothing is shed; the same
    applies to a sample without a new value if the shedder counts hits. Only samples that count change the
    state.
    """
    counting, samples = inputs.hit_rules, _value_by_broker(sample, result)
    repeated = not inputs.is_forced and counting.are_repeated({broker: samples[broker] for broker in result.outermost})
    if repeated or counting.reason is Reason.TOO_SOON:
        decisions = [_too_soon_decision(decision) for decision in result.decisions]
        return Proposal([], lambda _: SourceReport(decisions, "nothing is shed so soon after the last sample"), state)
    moves, placement = choose_destinations(sample, result.moves, make_policies, state.placement, inputs.seed)
    counted = any(move.is_taken for move in result.moves) or result.state.cluster_hits > state.shedder.cluster_hits

    def report(capped_moves: Sequence[CandidateMove]) -> SourceReport:
        used = counted if counting.counts else any(move.is_taken for move in capped_moves)
        sentence = _sentence_with_moves(result.sentence, capped_moves)
        return _to_report(sample, result, capped_moves)._replace(sentence=sentence, used_scores=samples if used else {})

    return Proposal(moves, report, StrategyState(result.state, placement) if counting.counts else state)


def _to_report(sample: ClusterSample, shed_result: SheddingResult, moves: Sequence[CandidateMove]) -> SourceReport:
    measures = {decision.source: decision.measure for decision in shed_result.decisions if decision.measure}
    measures |= {move.source: move.measure for move in moves if move.is_taken}
    traffic = {name: sample.broker(name).traffic(measure) for name, measure in measures.items()}
    return SourceReport(shed_result.decisions, shed_result.sentence, traffic)


def _value_by_broker(sample: ClusterSample, shed_result: SheddingResult) -> dict[str, float]:
    if not shed_result.outermost:
        return {}
    value = profile_of(sample.settings).value
    return {broker.broker: value(broker, sample.settings) for broker in sample.compared_brokers}


def _too_soon_decision(decision: Decision) -> Decision:
    reason = decision.reason if decision.pair is None else Reason.TOO_SOON
    return replace(decision, reason=reason, fired=False, measure=None, target=None)


def _sentence_with_moves(sentence: str, moves: Sequence[CandidateMove]) -> str:
    if not moves:
        return sentence
    held_back = Counter(move.reason for move in moves if move.reason in HELD_BACK_REASONS)
    return f"{sentence}. {taken_and_passed_over_text([move for move in moves if move.is_taken], held_back)}"


def _unload_age_by_broker(inputs: StrategyInput) -> dict[str, float]:
    # Brokers that report averages say when they measured these; others say when they last wrote to the metadata store.
    ages = Brokers.wrap(inputs.brokers).report_age_by_broker
    return {name: since - ages.get(name, 0) for name, since in inputs.seconds_since_unload.items()}
