"""Write the files of a plan: moves, decisions, new state, splits and, last, the summary. Nothing is decided here."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pydantic import JsonValue

from pulsar_rebalancer.decide import split_planning
from pulsar_rebalancer.decide.planning import Plan
from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.stays import RULES
from pulsar_rebalancer.reasons import Reason, reasons_text
from pulsar_rebalancer.run.outcome import ClientGap, last_gaps_text
from pulsar_rebalancer.run.plan import (
    ForcedRun,
    Summary,
    candidate_rows,
    plan_hash,
    read_moves,
    write_plan_tables,
    write_splits,
)
from pulsar_rebalancer.run.request import ManualPlanRecord
from pulsar_rebalancer.run.snapshot import Snapshot, StateBefore
from pulsar_rebalancer.run.tables import DECISIONS, MOVES, Cell, Row, table
from pulsar_rebalancer.state import DecisionState, HitSample, new_hit_samples, next_hit_samples
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision, hits_after, used_score_by_broker
from pulsar_rebalancer.strategies.scoring import predict_scores
from pulsar_rebalancer.strategies.shedders.registry import brokers_not_compared, force_threshold, profile_of
from pulsar_rebalancer.texts import number_of, one_line


def write_run_plan(run: RunInput, plan: Plan) -> Summary:
    scores, request, params = _score_by_broker(plan.decisions), run.request, run.request.params
    judged = [decision for decision in plan.decisions if decision.pair is not None]
    gaps = [pair.gap for pair in judged if pair.gap is not None and pair.source != pair.destination]
    forced = ForcedRun(by=request.requested_by, reason=params.force, threshold=force_threshold(request))
    low = profile_of(run.settings).thresholds(run.settings).get("low")
    roll = run.state.roll
    requesters = {request.requested_by} if params.changes_decision else set()
    requesters |= {roll.by} if roll is not None and plan.taken_moves else set()
    not_compared = brokers_not_compared(run.settings, run.policies, run.state.drains.brokers)
    return write_plan(
        run,
        plan,
        _state_after_run(run, plan),
        run.split_plan.split_rows,
        **summary_scores(scores, predict_scores(scores, plan.taken_moves, plan.source_traffic), not_compared),
        drains=dict(plan.drain_progress),
        forced=forced if request.is_forced else None,
        requesters=tuple(sorted(requesters)),
        counting=run.hit_rules.reason,
        pairs=len(gaps),
        pairs_over=sum(gap >= low.gap for gap in gaps) if low else 0,
        pairs_fired=sum(decision.fired for decision in judged),
        hits=(
            max((decision.low_hits or 0 for decision in judged), default=0),
            max((decision.high_hits or 0 for decision in judged), default=0),
        ),
        split_skip_reasons=run.split_plan.skip_reasons,
        splits_told=(
            *run.split_plan.advice_lines,
            *split_planning.split_advice(run, plan.full_decisions, plan.moves, plan.source_traffic),
        ),
    )


def write_manual_plan(
    sample: PlanningSample,
    plan: Plan,
    record: ManualPlanRecord,
    predicted_scores: Mapping[str, float],
    splits: Sequence[Row],
    restarts: Mapping[str, HitSample],
) -> Summary:
    """Write a plan that no strategy decided, and return its summary. It counts no hits.

    `predicted_scores` are scores, in percent; `restarts` are brokers whose hits are reset when the plan is
    carried out.
    """
    before = sample.snapshot.state.decision
    changed = {"seq": before.seq + 1, "plan_id": sample.snapshot.folder.name, "restarts": dict(restarts)}
    return write_plan(
        sample.snapshot,
        plan,
        before.model_copy(update=changed),
        splits,
        **summary_scores(sample.broker_scores, predicted_scores, sample.left_out_reasons),
        by_hand=_add_predicted_effect(sample, plan, splits, record, predicted_scores),
        counting=Reason.BY_HAND,
        pairs=0,
        pairs_over=0,
        pairs_fired=0,
        hits=(0, 0),
        splits_told=tuple(row[key] for row in splits for key in ("explanation", "compared") if key in row),
    )


def write_plan(run: Snapshot, plan: Plan, state: DecisionState, splits: Sequence[Row], **fields: Any) -> Summary:
    """Write a plan's moves, decisions, state, splits and, last, its summary.

    `state` is what the *record* task will commit, with a sequence number one higher than that of the state
    from which the plan was made. `fields` are the summary's fields that do not follow from the files.
    """
    request, decisions = run.request, plan.full_decisions
    moves = move_table(request.cluster, plan.moves)
    empty = {"restarts"} if not state.restarts else set()
    plan_document = state.model_dump(mode="json", exclude=empty)
    decided = table([_decision_row(request.cluster, decision) for decision in decisions], DECISIONS)
    write_plan_tables(run.folder, moves, decided, plan_document)
    cuts = write_splits(run.folder, splits)
    taken = moves.filter(moves["taken"]).to_pylist()
    skip_reasons = sum(plan.pair_reasons.values(), Counter[Reason]())
    del skip_reasons[Reason.TAKEN]
    summary = Summary(
        **fields,
        sentence=plan.sentence,
        plan_id=run.folder.name,
        cluster=request.cluster,
        airflow_run_id=request.airflow_run_id,
        base_seq=state.seq - 1,
        # The hash covers the values that a reader of the files will see.
        hash=plan_hash(decided.to_pylist(), taken, json.loads(json.dumps(plan_document)), cuts),
        collected_at=request.collected_at,
        reasons=dict(sorted(Counter(decision.reason for decision in decisions).items())),
        bundles_taken=len(taken),
        bundle_skip_reasons=dict(sorted(skip_reasons.items())),
        bundles_split=len(cuts),
        waves=max((row["wave"] + 1 for row in taken), default=0),
        in_force=request.in_force,
        resolved=request.resolved,
    )
    summary.write(run.folder)
    return summary


def _state_after_run(run: RunInput, plan: Plan) -> DecisionState:
    counts, now, before = run.hit_rules.counts, run.request.collected_at, run.state.decision
    used = {**plan.used_scores, **used_score_by_broker(plan.decisions, run.hit_rules, plan.moves)}
    return DecisionState(
        seq=before.seq + 1,
        plan_id=run.folder.name,
        counted_at=now if counts else before.counted_at,
        strategy=run.settings.strategy,
        hits=hits_after(plan.decisions),
        strategy_state=(plan.strategy_state or run.strategy_state).document(),
        samples=next_hit_samples(before, run.hit_rules, used if counts else {}, now),
        restarts={} if counts else new_hit_samples(used, now),
        means=run.new_means_file.name if counts else before.means,
        split_hits=run.split_plan.hits_by_bundle if counts else before.split_hits,
    )


def _add_predicted_effect(
    sample: PlanningSample, plan: Plan, splits: Sequence[Row], record: ManualPlanRecord, scores: Mapping[str, float]
) -> ManualPlanRecord:
    ends = {end for move in plan.taken_moves for end in (move.source, move.destination) if end is not None}
    unloaded = [(move.source, move.bundle) for move in plan.taken_moves]
    # A bundle that has moved since its split was planned is split on its present owner.
    cut = [split["bundle"] for split in splits if split["unload"]]
    unloaded += [(sample.owners[bundle], bundle) for bundle in cut if bundle in sample.owners]
    bundles = [sample.bundles.find(*each) for each in unloaded]
    return record.model_copy(
        update={
            "scores": {name: (sample.broker_scores[name], scores[name]) for name in sorted(ends)},
            **{name: sum(getattr(bundle, name) for bundle in bundles) for name in ("topics", "producers", "consumers")},
            "unknown": tuple(sorted(move.bundle for move in plan.moves if move.reason is Reason.UNKNOWN_NAME)),
        }
    )


def _score_by_broker(decisions: Iterable[Decision]) -> dict[str, float]:
    judged = [decision for decision in decisions if decision.pair is not None]
    sources = [(decision.source, decision.source_score) for decision in judged]
    ends = [*sources, *((decision.destination, decision.destination_score) for decision in judged)]
    return {broker: score for broker, score in ends if broker is not None and score is not None}


def move_table(cluster: str, moves: Sequence[CandidateMove]) -> pa.Table:
    """Return the moves table, built by column for speed: there can be hundreds of thousands of moves."""
    columns: dict[str, Any] = dict.fromkeys(MOVES.names, ())
    if moves:
        columns |= zip(CandidateMove._fields, zip(*moves, strict=True), strict=True)
    taken = [reason is Reason.TAKEN for reason in columns["reason"]]
    columns |= {"cluster": pa.repeat(cluster, len(moves)), "taken": taken}
    return pa.table(columns, schema=MOVES)


def _decision_row(cluster: str, decision: Decision) -> dict[str, Cell]:
    return {name: getattr(decision, name, cluster) for name in DECISIONS.names}


def summary_scores(before: Mapping[str, float], after: Mapping[str, float], left_out: Container[str]) -> dict[str, Any]:
    """Return the summary's score fields, in percent; brokers in `left_out` are not compared and are left out."""
    before, after = ({name: value for name, value in side.items() if name not in left_out} for side in (before, after))
    return {
        "brokers": len(before),
        "score_min": min(before.values(), default=None),
        "score_max": max(before.values(), default=None),
        "score_mean": math.fsum(before.values()) / len(before) if before else None,
        "predicted_min": min(after.values(), default=None),
        "predicted_max": max(after.values(), default=None),
    }


MAX_LISTED = 20


def plan_document(summary: Summary, run: StoragePath, last_gaps: Mapping[str, ClientGap]) -> dict[str, JsonValue]:
    """Return the plan as JSON, with its first moves. `last_gaps` is the known cost of each bundle's last move."""
    hand, moves = summary.by_hand, read_moves(run)[:MAX_LISTED]
    return {
        "plan": summary.hash if summary.has_effect else "",
        "no_effect": "" if summary.has_effect else why_no_effect(summary, run),
        "until": summary.manual_plan_deadline.isoformat(timespec="seconds"),
        "bundles": summary.bundles_taken,
        "moves": [{"bundle": m.bundle, "from": m.source, "to": m.destination} for m in moves],
        "splits": list(summary.splits_told),
        "stay": {str(reason): count for reason, count in summary.bundle_skip_reasons.items()},
        "unknown": list(hand.unknown) if hand else [],
        "scores": {name: [round(before, 2), round(after, 2)] for name, (before, after) in _score_shifts(summary)},
        "disturbed": {"topics": hand.topics, "producers": hand.producers, "consumers": hand.consumers} if hand else {},
        "last_seconds": {m.bundle: last_gaps[m.bundle].clients_seconds for m in moves if m.bundle in last_gaps},
        "folder": run.uri,
    }


def plan_text(summary: Summary, run: StoragePath, dag_id: str, last_gaps: Mapping[str, ClientGap]) -> str:
    """Return the plan as a few lines of text, with the command that carries it out."""
    hand, moves = summary.by_hand, read_moves(run)
    lines = [f"{summary.sentence} (this is only a plan: nothing was moved)"]
    lines += [f"No effect: {why_no_effect(summary, run)}"] if not summary.has_effect else []
    for move in moves[:MAX_LISTED]:
        client_gap = f"; last time, {last_gaps[move.bundle].text}" if move.bundle in last_gaps else ""
        lines.append(f"  {move.bundle}: {move.source} -> {move.destination}{client_gap}")
    if summary.bundles_taken > MAX_LISTED:
        lines.append(f"  and {summary.bundles_taken - MAX_LISTED} more: {run.uri}/plan/moves.parquet")
    lines += [
        f"  {number_of(count, 'bundle')} {'stays' if count == 1 else 'stay'} ({reason}): {reason.meaning}"
        for reason, count in summary.bundle_skip_reasons.items()
    ]
    lines += [f"  no broker reports a bundle matching {one_line(name, 512)}" for name in (hand.unknown if hand else ())]
    if hand is not None and summary.has_effect:
        lines += [f"  score of {name}: {before:.1f} -> {after:.1f}" for name, (before, after) in _score_shifts(summary)]
        disturbed = {"topic": hand.topics, "producer": hand.producers, "consumer": hand.consumers}
        lines.append(f"  disturbed: {', '.join(number_of(count, noun) for noun, count in disturbed.items())}")
        lines += [f"  last time: {last_gaps_text(last_gaps.values(), len(moves))}"] if moves else []
        until, conf = plan_document(summary, run, last_gaps)["until"], json.dumps({"plan": summary.hash})
        lines.append(f"To carry out this plan before {until}: airflow dags trigger {dag_id} --conf '{conf}'")
    return "\n".join(lines)


def why_no_effect(summary: Summary, run: StoragePath) -> str:
    """Return why no bundle of a manual plan may move, until when, and what a person may overrule."""
    reasons, moves = summary.bundle_skip_reasons, StateBefore.read(run).moves
    grace = timedelta(minutes=summary.resolved.settings.grace_period_minutes)
    recent = {row["bundle"] for row in candidate_rows(run) if row["reason"] == Reason.RECENTLY_UNLOADED}
    again = max((moves.unloads[name].at + grace for name in recent & moves.unloads.keys()), default=None)
    until = f"; bundles moved recently may move again at {again:%H:%M %Z}" if again else ""
    rules = sorted({str(rule.lifted_by) for rule in RULES if rule.lifted_by and rule.reason in reasons})
    offer = f" To move bundles anyway, overrule {', '.join(rules)}." if rules else ""
    return f"all bundles stay ({reasons_text(reasons)}){until}.{offer}" if reasons else "there is no bundle to move."


def _score_shifts(summary: Summary) -> list[tuple[str, tuple[float, float]]]:
    scores = summary.by_hand.scores if summary.by_hand else {}
    return sorted(scores.items(), key=lambda item: (-item[1][1], item[0]))[:MAX_LISTED]
