"""The files of a plan: decisions, moves, new state, and the summary that makes it a plan."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_rebalancer.choices import Strategy
from pulsar_rebalancer.plan import Forced, Summary, plan_hash
from pulsar_rebalancer.snapshot import DECISIONS, table
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.strategies.outcome import complete, hits_after, predict

if TYPE_CHECKING:
    from pulsar_rebalancer.storage import Folder
    from pulsar_rebalancer_spark.decided import Decided
    from pulsar_rebalancer_spark.run_input import RunInput

Rows = list[dict[str, Any]]


def write(run: RunInput, decided: Decided) -> Summary:
    """Write decisions, state and summary beside the moves that are there already.

    Args:
        run: the run.
        decided: what its strategy decided.

    Returns:
        The summary, written last.
    """
    plan = run.folder / "plan"
    taken, reasons = _moves(plan / "moves.parquet")
    decisions = table([_columns(row) for row in complete(decided.decisions, taken, reasons)], DECISIONS)
    (plan / "decisions.parquet").write_table(decisions)
    rows = decisions.to_pylist()
    state = _state(run, rows, decided.kept).model_dump(mode="json")
    (plan / "state.json").write_json(state)
    # The hash is taken over what a reader of the files will see.
    identity = plan_hash(rows, taken, json.loads(json.dumps(state)))
    passed_over = sum(reasons.values(), Counter())
    del passed_over["taken"]
    summary = _summary(run, rows, taken, decided, identity, dict(sorted(passed_over.items())))
    summary.write(run.folder)
    return summary


def _moves(file: Folder) -> tuple[Rows, dict[int, Counter[str]]]:
    """The taken bundles, and how many have which reason, by pair; the others stay on disk."""
    file_system, path = file.open()
    taken = pq.read_table(path, filesystem=file_system, filters=pc.field("taken")).to_pylist()
    counted = file.read_table(columns=["pair", "reason"]).group_by(["pair", "reason"]).aggregate([([], "count_all")])
    reasons: dict[int, Counter[str]] = {}
    for row in counted.to_pylist():
        reasons.setdefault(row["pair"], Counter())[row["reason"]] = row["count_all"]
    return taken, reasons


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in DECISIONS.names}


def _state(run: RunInput, decisions: Rows, kept: dict[str, Any]) -> DecisionState:
    counts = run.counting.counts
    return DecisionState(
        seq=run.decision.seq + 1,
        plan_id=run.folder.name,
        counted_at=run.request.collected_at if counts else run.decision.counted_at,
        strategy=run.settings.strategy,
        hits=hits_after(decisions),
        kept=kept,
        means=run.new_means.name if counts else run.decision.means,
    )


def _summary(
    run: RunInput, decisions: Rows, taken: Rows, decided: Decided, identity: str, passed_over: dict[str, int]
) -> Summary:
    judged = [row for row in decisions if row["pair"] is not None]
    pairs = [row for row in judged if row["gap"] is not None and row["source"] != row["destination"]]
    scores = {row[side]: row[f"{side}_score"] for row in judged for side in ("source", "destination") if row[side]}
    predicted = predict(scores, taken, decided.source_traffic)
    request = run.request
    return Summary(
        plan_id=run.folder.name,
        cluster=run.cluster,
        airflow_run_id=request.airflow_run_id,
        base_seq=run.decision.seq,
        hash=identity,
        collected_at=request.collected_at,
        forced=Forced(by=request.requested_by, reason=request.params.force, threshold=request.force_threshold)
        if request.forced
        else None,
        counting=run.counting.reason,
        score_min=min(scores.values(), default=None),
        score_max=max(scores.values(), default=None),
        score_mean=math.fsum(scores.values()) / len(scores) if scores else None,
        brokers=len(scores),
        pairs=len(pairs),
        pairs_over=sum(row["gap"] >= run.settings.low_threshold for row in pairs)
        if run.settings.strategy is Strategy.AVG
        else 0,
        pairs_fired=sum(row["fired"] for row in judged),
        hits=(
            max((row["low_hits"] or 0 for row in judged), default=0),
            max((row["high_hits"] or 0 for row in judged), default=0),
        ),
        reasons=dict(sorted(Counter(row["reason"] for row in decisions).items())),
        sentence=decided.sentence,
        bundles_taken=len(taken),
        bundles_passed_over=passed_over,
        waves=max((row["wave"] + 1 for row in taken), default=0),
        predicted_min=predicted.smallest,
        predicted_max=predicted.largest,
        resolved=request.resolved,
    )
