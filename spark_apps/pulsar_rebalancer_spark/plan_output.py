"""The files of a plan: decisions, moves, new state, and the summary that makes it a plan."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_rebalancer.plan import Forced, Summary, plan_hash
from pulsar_rebalancer.snapshot import DECISIONS, table
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.strategies.outcome import SELECTED, complete, hits_after, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.storage import Folder
    from pulsar_rebalancer_spark.run_input import RunInput

Rows = list[dict[str, Any]]


def write(run: RunInput, judged: Sequence[dict[str, Any]]) -> Summary:
    """Write decisions, state and summary beside the moves that are there already.

    Args:
        run: the run.
        judged: rows of the decisions table and `source_traffic`, as `hit_counting.decide` gives them.

    Returns:
        The summary, written last.
    """
    plan = run.folder / "plan"
    selected, passed_over = _moves(plan / "moves.parquet")
    taken = [row for row in selected if row["taken"]]
    traffic = {row["source"]: row["source_traffic"] for row in judged}
    decisions = table(complete(judged, selected), DECISIONS)
    (plan / "decisions.parquet").write_table(decisions)
    rows = decisions.to_pylist()
    state = _state(run, rows).model_dump(mode="json")
    (plan / "state.json").write_json(state)
    # The hash is taken over what a reader of the files will see.
    identity = plan_hash(rows, taken, json.loads(json.dumps(state)))
    summary = _summary(run, rows, taken, traffic, identity, passed_over)
    summary.write(run.folder)
    return summary


def _moves(file: Folder) -> tuple[Rows, dict[str, int]]:
    """The bundles that selection chose, and how many were passed over by reason; the others stay on disk."""
    file_system, path = file.open()
    selected = pq.read_table(path, filesystem=file_system, filters=pc.field("reason").isin(list(SELECTED)))
    counted = file.read_table(columns=["reason"]).group_by("reason").aggregate([("reason", "count")]).to_pylist()
    passed_over = {row["reason"]: row["reason_count"] for row in counted if row["reason"] != "taken"}
    return selected.to_pylist(), dict(sorted(passed_over.items()))


def _state(run: RunInput, decisions: Rows) -> DecisionState:
    counts = run.counting.counts
    return DecisionState(
        seq=run.decision.seq + 1,
        plan_id=run.folder.name,
        counted_at=run.request.collected_at if counts else run.decision.counted_at,
        strategy=run.settings.strategy,
        hits=hits_after(decisions),
        means=run.new_means.name if counts else run.decision.means,
    )


def _summary(
    run: RunInput, decisions: Rows, taken: Rows, traffic: dict[str, float], identity: str, passed_over: dict[str, int]
) -> Summary:
    pairs = [row for row in decisions if row["pair"] is not None]
    partners = [row for row in pairs if row["source"] != row["destination"]]
    scores = {row[side]: row[f"{side}_score"] for row in pairs for side in ("source", "destination")}
    predicted = predict(pairs, traffic)
    request = run.request
    return Summary(
        plan_id=run.folder.name,
        cluster=run.cluster,
        airflow_run_id=request.airflow_run_id,
        base_seq=run.decision.seq,
        hash=identity,
        collected_at=request.collected_at,
        forced=None
        if request.force_threshold is None
        else Forced(by=request.requested_by, reason=request.params.force, threshold=request.force_threshold),
        counting=run.counting.reason,
        score_min=min(scores.values(), default=None),
        score_max=max(scores.values(), default=None),
        score_mean=math.fsum(scores.values()) / len(scores) if scores else None,
        brokers=len(scores),
        pairs=len(partners),
        pairs_over=sum(row["gap"] >= run.settings.low_threshold for row in partners),
        pairs_fired=sum(row["fired"] for row in partners),
        hits=(
            max((row["low_hits"] for row in pairs), default=0),
            max((row["high_hits"] for row in pairs), default=0),
        ),
        bundles_taken=len(taken),
        bundles_passed_over=passed_over,
        waves=max((row["wave"] + 1 for row in taken), default=0),
        predicted_min=predicted.smallest,
        predicted_max=predicted.largest,
        resolved=request.resolved,
    )
