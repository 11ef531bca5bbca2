"""The files of a plan that a strategy made: moves, decisions, new state, and the summary that makes it a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.decide import plan_files
from pulsar_rebalancer.decide.explain import complete, reasons_by_pair
from pulsar_rebalancer.decide.splits import split_planning
from pulsar_rebalancer.run.plan import Forced, Summary, write_moves
from pulsar_rebalancer.state.counting import samples_after, taken_at
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer.strategies import rows
from pulsar_rebalancer.strategies.fitting import force_threshold
from pulsar_rebalancer.strategies.hits import hits_after, used_samples
from pulsar_rebalancer.strategies.left_out import apart_of
from pulsar_rebalancer.strategies.scoring import scores_after
from pulsar_rebalancer.strategies.shedders.registry import profile_of
from pulsar_rebalancer.strategies.wording import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_rebalancer.decide.by_hand.drains import Served
    from pulsar_rebalancer.decide.pipeline import RunDecision
    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer.run.manual_request import DrainProgress
    from pulsar_rebalancer.strategies.sample import CandidateMove, Decision


def write(run: RunInput, decided: RunDecision) -> Summary:
    """Write moves, decisions, state and summary.

    Args:
        run: the run.
        decided: what its strategy decided; bundles of drained brokers leave before that.

    Returns:
        The summary, written last.
    """
    taken = [move for move in decided.moves if move.taken]
    traffic = _source_traffic(run, decided.decisions, taken)
    drained: Mapping[str, DrainProgress] = {}
    if run.before.drains.brokers:
        served = run.drained.serve(decided.decisions, taken)
        decided, drained = _with_drains(decided, served), served.progress
        traffic |= served.traffic
        taken = [move for move in served.moves if move.taken]
    moves = rows.move_table(run.cluster, decided.moves)
    write_moves(run.folder, moves)
    reasons = reasons_by_pair(decided.moves)
    decided = decided._replace(decisions=complete(decided.decisions, taken, reasons))
    fields = plan_files.write(
        run.folder,
        run.request,
        _state(run, decided),
        decided.decisions,
        moves.filter(moves["taken"]).to_pylist(),
        reasons,
        run.splits.rows,
    )
    summary = _summary(run, decided, taken, traffic, fields | {"drains": dict(drained)})
    summary.write(run.folder)
    return summary


def _source_traffic(run: RunInput, decisions: Iterable[Decision], taken: Iterable[CandidateMove]) -> dict[str, float]:
    """Return the present traffic of the sources, in the measure of their moves."""
    measures = {decision.source: decision.measure for decision in decisions if decision.measure}
    measures |= {move.source: move.measure for move in taken}
    return {each.broker: each.traffic(measures[each.broker]) for each in run.brokers if each.broker in measures}


def _with_drains(decided: RunDecision, served: Served) -> RunDecision:
    """Return a decided run in which the bundles of drained brokers leave first; what it passed over stays in it."""
    leaving = number_of(sum(drain.moving for drain in served.progress.values()), "bundle")
    return decided._replace(
        decisions=served.decisions,
        moves=[*served.moves, *(move for move in decided.moves if not move.taken)],
        sentence=f"{decided.sentence}. Drained: {', '.join(served.progress)}, {leaving} to move",
    )


def _state(run: RunInput, decided: RunDecision) -> DecisionState:
    counts, now = run.counting.counts, run.request.collected_at
    used = decided.samples | used_samples(decided.decisions, run.counting)
    return DecisionState(
        seq=run.before.decision.seq + 1,
        plan_id=run.folder.name,
        counted_at=now if counts else run.before.decision.counted_at,
        strategy=run.settings.strategy,
        hits=hits_after(decided.decisions),
        kept=decided.kept.document(),
        samples=samples_after(run.before.decision, run.counting, used if counts else {}, now),
        restarts={} if counts else taken_at(used, now),
        means=run.new_means.name if counts else run.before.decision.means,
        split_hits=run.splits.hits if counts else run.before.decision.split_hits,
    )


def _summary(
    run: RunInput,
    decided: RunDecision,
    taken: Sequence[CandidateMove],
    traffic: Mapping[str, float],
    fields: dict[str, Any],
) -> Summary:
    judged = [decision for decision in decided.decisions if decision.pair is not None]
    gaps = [pair.gap for pair in judged if pair.gap is not None and pair.source != pair.destination]
    ends = [(each.source, each.source_score) for each in judged]
    ends += [(each.destination, each.destination_score) for each in judged if each.destination]
    scores = {broker: score for broker, score in ends if broker is not None and score is not None}
    request, params = run.request, run.request.params
    forced = Forced(by=request.requested_by, reason=params.force, threshold=force_threshold(request))
    low = profile_of(run.settings).thresholds(run.settings).get("low")
    return Summary(
        **fields,
        **plan_files.scores(scores, scores_after(scores, taken, traffic), apart_of(run)),
        forced=forced if request.forced else None,
        counting=run.counting.reason,
        pairs=len(gaps),
        pairs_over=sum(gap >= low.gap for gap in gaps) if low else 0,
        pairs_fired=sum(decision.fired for decision in judged),
        hits=(
            max((decision.low_hits or 0 for decision in judged), default=0),
            max((decision.high_hits or 0 for decision in judged), default=0),
        ),
        sentence=decided.sentence,
        splits_passed_over=run.splits.passed_over,
        splits_told=(*run.splits.told, *split_planning.helpful(run, decided.decisions, decided.moves, traffic)),
    )
