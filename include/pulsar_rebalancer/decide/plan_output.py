"""Write the files of a strategy's plan: moves, decisions, new state and, last, the summary."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_rebalancer.decide.explain import complete, reasons_by_pair
from pulsar_rebalancer.decide.splits import split_planning
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Forced, ShadowPlan, Summary, plan_hash, write_decisions, write_moves
from pulsar_rebalancer.run.splits import write_splits
from pulsar_rebalancer.run.tables import DECISIONS, MOVES, table
from pulsar_rebalancer.state.counting import samples_after, taken_at
from pulsar_rebalancer.state.state_documents import DecisionState, ShadowState
from pulsar_rebalancer.strategies.fitting import force_threshold
from pulsar_rebalancer.strategies.left_out import apart_of
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision, hits_after, used_samples
from pulsar_rebalancer.strategies.scoring import scores_after
from pulsar_rebalancer.strategies.shedders.registry import profile_of
from pulsar_rebalancer.texts import capitalized, number_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from pulsar_rebalancer.decide.by_hand.drains import Served
    from pulsar_rebalancer.decide.by_hand.filling import Filling
    from pulsar_rebalancer.decide.pipeline import RunDecision
    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer.decide.shadow import ShadowDecision
    from pulsar_rebalancer.run.manual_request import DrainProgress
    from pulsar_rebalancer.run.request import RunRequest
    from pulsar_rebalancer.run.tables import Cell, Row
    from pulsar_rebalancer.state.roll_document import Roll
    from pulsar_rebalancer.storage.path import StoragePath


def write(run: RunInput, decided: RunDecision, shadow: ShadowDecision | None = None) -> Summary:
    """Write a plan's moves, decisions, state and summary.

    Args:
        decided: the strategy's decision. This function adds the moves for drains, and for filling or a roll's returns.
        shadow: the shadow's decision, of which only the state and a few figures are kept.

    Returns:
        The summary, whose file is written last.
    """
    if run.before.roll:
        decided = _held(decided, run.before.roll)
    taken = [move for move in decided.moves if move.taken]
    traffic = _source_traffic(run, decided.decisions, taken)
    drained: Mapping[str, DrainProgress] = {}
    if run.before.drains.brokers:
        served = run.drained.serve(decided.decisions, taken)
        decided, drained = _with_drains(decided, served), served.progress
        traffic |= served.traffic
        taken = [move for move in served.moves if move.taken]
    if filling := None if taken else run.filling():
        decided, traffic = with_filling(decided, filling), filling.traffic
        taken = [move for move in filling.moves if move.taken]
    moves = move_table(run.cluster, decided.moves)
    write_moves(run.folder, moves)
    reasons = reasons_by_pair(decided.moves)
    decided = decided._replace(decisions=complete(decided.decisions, taken, reasons))
    fields = write_files(
        run.folder,
        run.request,
        _state(run, decided, shadow),
        decided.decisions,
        moves.filter(moves["taken"]).to_pylist(),
        reasons,
        run.splits.rows,
    )
    fields |= {"drains": dict(drained), "shadow": _shadow_plan(run, shadow)}
    summary = _summary(run, decided, taken, traffic, fields)
    summary.write(run.folder)
    return summary


def _source_traffic(run: RunInput, decisions: Iterable[Decision], taken: Iterable[CandidateMove]) -> dict[str, float]:
    """Return each source's current traffic, in the same measure as its moves (msg/s or bytes/s)."""
    measures = {decision.source: decision.measure for decision in decisions if decision.measure}
    measures |= {move.source: move.measure for move in taken}
    return {b.broker: b.traffic(measures[b.broker]) for b in run.brokers if b.broker in measures}


def _held(decided: RunDecision, roll: Roll) -> RunDecision:
    """Return the decision with all its moves postponed, because a rolling restart is active."""
    held = [move.put_off(Reason.ROLLING) for move in decided.moves]
    return decided._replace(moves=held, sentence=f"{decided.sentence}. {capitalized(roll.progress)}")


def _with_drains(decided: RunDecision, served: Served) -> RunDecision:
    """Return the decision with the moves from drained brokers first. Moves that were passed over come last."""
    leaving = number_of(sum(drain.moving for drain in served.progress.values()), "bundle")
    return decided._replace(
        decisions=served.decisions,
        moves=[*served.moves, *(move for move in decided.moves if not move.taken)],
        sentence=f"{decided.sentence}. Drained: {', '.join(served.progress)}, {leaving} to move",
    )


def with_filling(decided: RunDecision, filling: Filling) -> RunDecision:
    """Return the decision with the moves that fill brokers or return bundles.

    The hits of the brokers in these moves are reset. If all bundles stay, only the reasons are added.
    """
    ends = {end for move in filling.moves if move.taken for end in (move.source, move.destination)}
    decisions = (decision.with_hits_reset(ends) for decision in decided.decisions)
    return decided._replace(
        decisions=[*filling.decisions, *decisions],
        moves=[*filling.moves, *decided.moves],
        sentence=f"{decided.sentence}. {filling.sentence}",
    )


def _state(run: RunInput, decided: RunDecision, shadow: ShadowDecision | None) -> DecisionState:
    counts, now, before = run.counting.counts, run.request.collected_at, run.before.decision
    used = decided.samples | used_samples(decided.decisions, run.counting, decided.moves)
    return DecisionState(
        seq=before.seq + 1,
        plan_id=run.folder.name,
        counted_at=now if counts else before.counted_at,
        strategy=run.settings.strategy,
        hits=hits_after(decided.decisions),
        kept=decided.kept.document(),
        samples=samples_after(before.of_strategy(run.settings.strategy), run.counting, used if counts else {}, now),
        restarts={} if counts else taken_at(used, now),
        means=run.new_means.name if counts else before.means,
        split_hits=run.splits.hits if counts else before.split_hits,
        shadow=_shadow_state(run, shadow),
    )


def _shadow_state(run: RunInput, shadow: ShadowDecision | None) -> ShadowState:
    """Return the shadow's state after this sample.

    The state is empty without a shadow, unchanged if the sample does not count, and without hits if the shadow failed:
    hits from before would no longer be consecutive.
    """
    before, now = run.before.decision, run.request.collected_at
    if not run.settings.shadow:
        return ShadowState()
    if shadow is None:
        return before.shadow
    if shadow.decided is None:
        return before.shadow.without_hits()
    strategy, counting, decided = shadow.context.settings.strategy, shadow.context.counting, shadow.decided
    used = decided.samples | used_samples(decided.decisions, counting)
    return ShadowState(
        strategy=strategy,
        hits=hits_after(decided.decisions),
        kept=decided.kept.document(),
        samples=samples_after(before.of_strategy(strategy), counting, used, now),
    )


def _shadow_plan(run: RunInput, shadow: ShadowDecision | None) -> ShadowPlan | None:
    if shadow is None:
        return None
    strategy, decided = shadow.context.settings.strategy, shadow.decided
    if decided is None:
        return ShadowPlan(strategy=strategy, error=shadow.error)
    taken = [move for move in decided.moves if move.taken]
    after = scores_after(_scores(decided.decisions), taken, _source_traffic(run, decided.decisions, taken))
    apart = apart_of(run, shadow.context.settings)
    compared = [figure for broker, figure in after.items() if broker not in apart]
    return ShadowPlan(
        strategy=strategy,
        sentence=decided.sentence,
        bundles_taken=len(taken),
        predicted_range=max(compared) - min(compared) if compared else None,
    )


def _scores(decisions: Iterable[Decision]) -> dict[str, float]:
    """Return the scores of the brokers that were compared, in percent."""
    judged = [decision for decision in decisions if decision.pair is not None]
    sources = [(decision.source, decision.source_score) for decision in judged]
    ends = [*sources, *((decision.destination, decision.destination_score) for decision in judged)]
    return {broker: score for broker, score in ends if broker is not None and score is not None}


def _summary(
    run: RunInput,
    decided: RunDecision,
    taken: Sequence[CandidateMove],
    traffic: Mapping[str, float],
    fields: dict[str, Any],
) -> Summary:
    judged = [decision for decision in decided.decisions if decision.pair is not None]
    gaps = [pair.gap for pair in judged if pair.gap is not None and pair.source != pair.destination]
    scores = _scores(decided.decisions)
    request, params = run.request, run.request.params
    forced = Forced(by=request.requested_by, reason=params.force, threshold=force_threshold(request))
    low = profile_of(run.settings).thresholds(run.settings).get("low")
    return Summary(
        **fields,
        **scores_fields(scores, scores_after(scores, taken, traffic), apart_of(run, run.settings)),
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


def move_table(cluster: str, moves: Sequence[CandidateMove]) -> pa.Table:
    """Return the moves table. It is built column by column for speed: there can be hundreds of thousands of moves."""
    columns: dict[str, Any] = dict.fromkeys(MOVES.names, ())
    if moves:
        columns |= zip(CandidateMove._fields, zip(*moves, strict=True), strict=True)
    taken = [reason is Reason.TAKEN for reason in columns["reason"]]
    columns |= {"cluster": pa.repeat(cluster, len(moves)), "taken": taken}
    return pa.table(columns, schema=MOVES)


def write_files(
    run: StoragePath,
    request: RunRequest,
    state: DecisionState,
    decisions: Sequence[Decision],
    taken: Sequence[Row],
    reasons: Mapping[int, Mapping[Reason, int]],
    splits: Sequence[Row],
) -> dict[str, Any]:
    """Write the decisions, the state and the splits.

    The moves file must already exist; the caller must write the summary afterwards.

    Args:
        run: the run's folder.
        state: the state that the *record* task will commit. Its sequence number is one higher than that of the state
            from which the plan was made.
        decisions: decisions, completed by `explain.complete`.
        taken: rows of the moves table for accepted moves, as read back from the file.
        reasons: number of candidates by pair and reason.
        splits: rows of the splits table.

    Returns:
        The fields of the summary that are derived from the files.
    """
    empty = {
        name for name in ("restarts", "shadow") if getattr(state, name) == DecisionState.model_fields[name].default
    }
    document = state.model_dump(mode="json", exclude=empty)
    decided = table([_row(request.cluster, decision) for decision in decisions], DECISIONS)
    write_decisions(run, decided, document)
    cuts = write_splits(run, splits)
    passed_over: Counter[Reason] = sum(map(Counter, reasons.values()), Counter())
    del passed_over[Reason.TAKEN]
    return {
        "plan_id": run.name,
        "cluster": request.cluster,
        "airflow_run_id": request.airflow_run_id,
        "base_seq": state.seq - 1,
        # The hash covers the values that a reader of the files will see.
        "hash": plan_hash(decided.to_pylist(), taken, json.loads(json.dumps(document)), cuts),
        "collected_at": request.collected_at,
        "reasons": dict(sorted(Counter(decision.reason for decision in decisions).items())),
        "bundles_taken": len(taken),
        "bundles_passed_over": dict(sorted(passed_over.items())),
        "bundles_split": len(cuts),
        "waves": max((row["wave"] + 1 for row in taken), default=0),
        "in_force": request.in_force,
        "resolved": request.resolved,
    }


def _row(cluster: str, decision: Decision) -> dict[str, Cell]:
    return {name: getattr(decision, name, cluster) for name in DECISIONS.names}


def scores_fields(before: Mapping[str, float], after: Mapping[str, float], apart: Container[str]) -> dict[str, Any]:
    """Return the summary's score fields.

    Args:
        before: scores of the compared brokers before the moves, in percent.
        after: scores after the moves (`scoring.scores_after`), in percent.
        apart: brokers that are not compared with other brokers and are therefore left out.
    """
    before, after = ({name: figure for name, figure in side.items() if name not in apart} for side in (before, after))
    return {
        "brokers": len(before),
        "score_min": min(before.values(), default=None),
        "score_max": max(before.values(), default=None),
        "score_mean": math.fsum(before.values()) / len(before) if before else None,
        "predicted_min": min(after.values(), default=None),
        "predicted_max": max(after.values(), default=None),
    }
