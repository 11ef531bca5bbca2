"""One way to a plan, for runs, dry runs, plans that are carried out, rolling restarts and replays.

Sources (`sources/`) say what they want (`Proposal`), in this order: a requested or approved plan; drained brokers; the
strategy; and, if nothing else moves, the returns of a rolling restart or new brokers to fill.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple, Self

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Reason, Trait, reasons_text
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.request import DrainProgress
from pulsar_rebalancer.run.tables import BrokerSample, Measure
from pulsar_rebalancer.state import PlacementState, StrategyState
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.caps import CapacityCheck
from pulsar_rebalancer.strategies.placement import choose_destinations
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision, gap_and_hits_text, moves_text
from pulsar_rebalancer.texts import one_line

MEASURE = Measure.THROUGHPUT

_MAX_NAMES_CHARS = 500
"""Maximum length of a broker list in a sentence, in characters."""


class RequestedMove(NamedTuple):
    """A bundle that a source wants to move.

    Attributes:
        destination: brokerId of the new owner; None if placement chooses it.
        reason: why the bundle must not be moved, if this is already known; else None.
        source: broker whose report is used, as two can report a bundle; None to use the owner's.
    """

    bundle: str
    destination: str | None = None
    reason: Reason | None = None
    source: str | None = None


class SourceReport(NamedTuple):
    """What a source says of its moves once the caps are applied; for the fields, see `planning.Plan`."""

    decisions: list[Decision]
    sentence: str = ""
    source_traffic: Mapping[str, float] = {}
    used_scores: Mapping[str, float] = {}
    drain_progress: Mapping[str, DrainProgress] = {}

    @classmethod
    def of_givers(
        cls, sample: PlanningSample, moves: Sequence[CandidateMove], reason: Reason, explanation: str, sentence: str
    ) -> Self:
        """Report a source whose brokers give bundles to others that need them; no decisions if nothing moves.

        Args:
            moves: candidates after the caps, with one negative pair number for each source.
            explanation: what each source does; the names of the receiving brokers are appended.
            sentence: what the plan does; `{}` is replaced with the names of the receiving brokers.
        """
        receiving = sorted({str(move.destination) for move in moves if move.is_taken})
        if not receiving:
            return cls([])
        named = one_line(", ".join(receiving), _MAX_NAMES_CHARS)
        pairs = {move.source: move.pair for move in moves}
        decisions = [
            Decision(
                source=source,
                reason=reason,
                pair=pair,
                source_score=sample.broker_scores.get(source),
                fired=True,
                explanation=f"{source} {explanation} {named}",
                measure=MEASURE,
                target=math.fsum(move.traffic for move in moves if move.source == source),
            )
            for source, pair in pairs.items()
        ]
        return cls(decisions, sentence.format(named), {source: sample.broker_traffic[source] for source in pairs})


@dataclass(frozen=True)
class Proposal:
    """What one source wants.

    Attributes:
        moves: candidates with destinations, before the caps, each taken or with the reason why it stays.
        make_report: returns what the source says of its moves after the caps.
        strategy_state: the strategy's state for the next run; None if the source does not change it.
        new_check: returns a new check against moves that would overload a broker; None for no check.
        renumber: gives the moves their pairs if the caps needed another order; None if the pairs stay.
    """

    moves: list[CandidateMove]
    make_report: Callable[[Sequence[CandidateMove]], SourceReport]
    strategy_state: StrategyState | None = None
    new_check: Callable[[], CapacityCheck] | None = None
    renumber: Callable[[Sequence[CandidateMove]], list[CandidateMove]] | None = None


def to_candidates(
    sample: PlanningSample, requested_moves: Iterable[RequestedMove], first_pair_number: int = 0
) -> list[CandidateMove]:
    """Convert requested moves to candidates, a pair number for each source, most traffic first."""
    of_source: dict[str, list[RequestedMove]] = {}
    for move in requested_moves:
        source = sample.owners.get(move.bundle, "") if move.source is None else move.source
        of_source.setdefault(source, []).append(move)
    candidates = []
    # Bundles that no broker reports come last.
    for pair, source in enumerate(sorted(of_source, key=lambda name: (not name, name)), first_pair_number):
        known = [
            (move, sample.bundles.find(source, move.bundle) if source else BundleSample("", move.bundle))
            for move in of_source[source]
        ]
        ordered = sorted(known, key=lambda item: (-item[1].mean(MEASURE), item[1].bundle))
        candidates += [
            CandidateMove.new(
                bundle,
                pair=pair,
                rank=rank,
                measure=MEASURE,
                reason=move.reason or sample.stay_reason(bundle) or Reason.TAKEN,
                destination=move.destination,
            )
            for rank, (move, bundle) in enumerate(ordered)
        ]
    return candidates


def assign_destinations(sample: PlanningSample, moves: Iterable[CandidateMove]) -> list[CandidateMove]:
    """Return the moves with their destinations, passed over if policies allow none."""
    seed = sample.snapshot.folder.name
    return choose_destinations(sample.cluster_sample, moves, sample.policy_filter, PlacementState(), seed)[0]


CAPPED, KEPT_IN_PLACE = Reason.with_trait(Trait.CAP), Reason.with_trait(Trait.KEPT_IN_PLACE)
HELD_BACK_REASONS = CAPPED | KEPT_IN_PLACE
"""Reasons why caps, policies or placement hold back a bundle that would otherwise move."""


def reasons_by_pair(moves: Iterable[CandidateMove]) -> dict[int, Counter[Reason]]:
    counts: dict[int, Counter[Reason]] = {}
    for (pair, reason), count in Counter(map(attrgetter("pair", "reason"), moves)).items():
        counts.setdefault(pair, Counter())[reason] = count
    return counts


def decisions_with_bundles(
    decisions: Iterable[Decision], taken_moves: Iterable[CandidateMove], reasons: Mapping[int, Mapping[Reason, int]]
) -> list[Decision]:
    """Return the decisions with the bundles that move; a pair that fired without any also gets the reason."""
    of_pair: dict[int | None, list[CandidateMove]] = {}
    for move in sorted(taken_moves, key=lambda move: (move.pair, move.rank)):
        of_pair.setdefault(move.pair, []).append(move)
    return [
        _completed_decision(
            decision, of_pair.get(decision.pair, []), {} if decision.pair is None else reasons.get(decision.pair, {})
        )
        for decision in decisions
    ]


def _completed_decision(decision: Decision, moves: Sequence[CandidateMove], reasons: Mapping[Reason, int]) -> Decision:
    reason = decision.reason
    if reason is Reason.FIRED and not reasons.keys() & {Reason.TAKEN, *CAPPED}:
        reason = Reason.NO_ALLOWED_BUNDLE if reasons.keys() & KEPT_IN_PLACE else Reason.NO_FITTING_BUNDLE
    completed = replace(
        decision,
        reason=reason,
        bundles_taken=len(moves),
        # fsum does not depend on the order of the moves.
        traffic_taken=math.fsum(move.traffic for move in moves),
    )
    explanation = decision.explanation or explain_decision(completed)
    if decision.measure is not None:
        explanation = f"{explanation.rstrip('.')}. {taken_and_passed_over_text(moves, reasons)}"
    return replace(completed, explanation=explanation)


def taken_and_passed_over_text(moves: Sequence[CandidateMove], reasons: Mapping[Reason, int]) -> str:
    """Return two sentences: one about the bundles that move, one about those passed over and the reasons."""
    destination_of_pair = {move.pair: move.destination for move in reversed(moves)}
    there = [move for move in moves if move.source != destination_of_pair[move.pair]]
    back = [move for move in moves if move.source == destination_of_pair[move.pair]]
    words = f"Taken: {moves_text(there)}" + (f", {moves_text(back)} in return" if back else "")
    others = reasons_text({reason: count for reason, count in reasons.items() if reason is not Reason.TAKEN})
    return f"{words}. Passed over: {others}." if others else f"{words}."


def explain_decision(decision: Decision) -> str:
    if decision.gap is None:
        return f"{decision.source} is left out. {decision.reason.meaning}"
    return f"{gap_and_hits_text(decision)}. {decision.reason.meaning}"


ArrivingTraffic = Mapping[str, Mapping[Measure, float]]
"""Traffic that bundles of drained brokers bring to each broker, by broker and measure (msg/s or bytes/s)."""


@dataclass(frozen=True)
class ProposalSources:
    """Who may want something moved, in order of precedence.

    Attributes:
        requested: a person's request or an approved plan; nobody else is asked then.
        strategy: returns the strategy's moves, given what the drains move.
        roll_text: text about the rolling restart that postpones the strategy's moves; empty if there is none.
        fallback: called if nothing else moves: returns of a rolling restart, or new brokers to fill.
    """

    requested: Proposal | None = None
    drains: Proposal | None = None
    strategy: Callable[[ArrivingTraffic], Proposal] | None = None
    roll_text: str = ""
    fallback: Callable[[], Proposal | None] = lambda: None


@dataclass(frozen=True)
class Plan:
    """A plan before it is written. With up to a million moves, they are walked through as rarely as possible.

    Attributes:
        decisions: one for each pair or broker that was judged; `full_decisions` adds the bundles that move.
        moves: all candidates with destinations and waves, each taken or with the reason why it stays.
        strategy_state: state of the strategy and of its placement, for the next run; None if no strategy was asked.
        source_traffic: current traffic of the sources, in the measure of their moves (msg/s or bytes/s).
        used_scores: brokers' values that caused moves or a cluster-wide hit; AvgShedder's are in the decisions.
    """

    decisions: list[Decision]
    moves: list[CandidateMove]
    strategy_state: StrategyState | None = None
    sentence: str = ""
    source_traffic: Mapping[str, float] = field(default_factory=dict)
    used_scores: Mapping[str, float] = field(default_factory=dict)
    drain_progress: Mapping[str, DrainProgress] = field(default_factory=dict)

    @cached_property
    def taken_moves(self) -> list[CandidateMove]:
        return [move for move in self.moves if move.reason is Reason.TAKEN]

    @cached_property
    def pair_reasons(self) -> dict[int, Counter[Reason]]:
        return reasons_by_pair(self.moves)

    @cached_property
    def full_decisions(self) -> list[Decision]:
        """Return the decisions with the number of bundles that move, and the reason if none of a pair's does."""
        return decisions_with_bundles(self.decisions, self.taken_moves, self.pair_reasons)


def plan(sources: ProposalSources, settings: Settings, policies: Policies, brokers: Sequence[BrokerSample]) -> Plan:
    """Make a plan with the caps in `settings`; only one bundle of an anti-affinity group in `policies` may move.

    Raises PlanError `bad_result` if a custom shedder returns an impossible move, SnapshotError if a file of
    the run cannot be read.
    """

    def moves_within_caps(*proposals: Proposal) -> list[list[CandidateMove]]:
        """Return the moves of each source after the caps; those of the first source come first."""
        room = next((each.new_check() for each in proposals if each.new_check), None)
        moves = caps.apply_caps((move for p in proposals for move in p.moves), settings, policies.groups, brokers, room)
        if sum(bool(each.moves) for each in proposals) < 2:  # a plan may have a million moves
            return [moves if each.moves else [] for each in proposals]
        pairs = [{move.pair for move in each.moves} for each in proposals]
        return [[move for move in moves if move.pair in of] for of in pairs]

    if sources.requested is not None:
        (moves,) = moves_within_caps(sources.requested)
        return _combine_reports([sources.requested.make_report(moves)], moves)
    drains = sources.drains or _EMPTY_PROPOSAL
    arriving = _traffic_by_destination(*moves_within_caps(drains)) if drains.moves else {}
    strategy = sources.strategy(arriving) if sources.strategy else _EMPTY_PROPOSAL
    if sources.roll_text:
        strategy = replace(strategy, moves=[move.put_off(Reason.ROLLING) for move in strategy.moves])
    leaving, chosen = moves_within_caps(drains, strategy)
    reports = [drains.make_report(leaving), strategy.make_report(chosen)]
    if sources.roll_text:
        reports[1] = reports[1]._replace(sentence=f"{reports[1].sentence}. {sources.roll_text}")
    plan = replace(_combine_reports(reports, [*leaving, *chosen]), strategy_state=strategy.strategy_state)
    if not plan.taken_moves and (other := sources.fallback()):
        (moves,) = moves_within_caps(other)
        moves = other.renumber(moves) if other.renumber else moves
        plan = _plan_with_fallback(plan, other.make_report(moves), moves)
    return plan


_EMPTY_PROPOSAL = Proposal([], lambda _: SourceReport([]))


def _traffic_by_destination(moves: Iterable[CandidateMove]) -> dict[str, Counter[Measure]]:
    traffic: dict[str, Counter[Measure]] = {}
    for move in moves:
        if move.is_taken and move.destination is not None:
            brought = {measure: getattr(move, measure) for measure in Measure}
            traffic.setdefault(move.destination, Counter()).update(brought)
    return traffic


def _combine_reports(reports: Sequence[SourceReport], moves: list[CandidateMove]) -> Plan:
    return Plan(
        decisions=[decision for each in reports for decision in each.decisions],
        moves=moves,
        sentence=". ".join(each.sentence for each in reversed(reports) if each.sentence),
        source_traffic={broker: value for each in reversed(reports) for broker, value in each.source_traffic.items()},
        used_scores={broker: value for each in reports for broker, value in each.used_scores.items()},
        drain_progress={broker: progress for each in reports for broker, progress in each.drain_progress.items()},
    )


def _plan_with_fallback(plan: Plan, report: SourceReport, moves: list[CandidateMove]) -> Plan:
    """Add a source that acts because nothing else moves; its brokers' hits are reset unless all bundles stay."""
    if not report.decisions and not report.sentence:
        return plan
    ends = {end for move in moves if move.is_taken for end in (move.source, move.destination)}
    decisions = [decision.with_hits_reset(ends) for decision in plan.decisions]
    joined = _combine_reports(
        [report, SourceReport(decisions, plan.sentence, plan.source_traffic, plan.used_scores, plan.drain_progress)],
        moves,
    )
    return replace(
        joined,
        moves=[*moves, *plan.moves],
        strategy_state=plan.strategy_state,
        source_traffic=report.source_traffic or plan.source_traffic,
    )
