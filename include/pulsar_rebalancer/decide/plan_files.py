"""The files of a plan, decided by the strategy of a run or by a person."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import plan_hash, write_decisions
from pulsar_rebalancer.run.splits import write_splits
from pulsar_rebalancer.run.tables import DECISIONS, table
from pulsar_rebalancer.strategies import rows

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from pulsar_rebalancer.run.request import RunRequest
    from pulsar_rebalancer.state.state_documents import DecisionState
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer.strategies.sample import Decision


def write(
    run: StoragePath,
    request: RunRequest,
    state: DecisionState,
    decisions: Sequence[Decision],
    taken: Sequence[Mapping[str, Any]],
    reasons: Mapping[int, Mapping[Reason, int]],
    splits: list[dict[str, Any]],
) -> dict[str, Any]:
    """Write decisions, state and splits next to the moves, which are there already; the summary must be written last.

    Args:
        run: the run's folder.
        request: of the run.
        state: that record is to commit; its number is that of the state the plan was made from plus one.
        decisions: complete ones.
        taken: rows of the moves table that are taken, as a reader of the file sees them.
        reasons: how many candidates have which reason, by pair.
        splits: rows of the splits table.

    Returns:
        The fields of the summary that follow from the files.
    """
    document = state.model_dump(mode="json", exclude=None if state.restarts else {"restarts"})
    decided = table([rows.decision_row(request.cluster, decision) for decision in decisions], DECISIONS)
    write_decisions(run, decided, document)
    cuts = write_splits(run, splits)
    passed_over: Counter[Reason] = sum(map(Counter, reasons.values()), Counter())
    del passed_over[Reason.TAKEN]
    return {
        "plan_id": run.name,
        "cluster": request.cluster,
        "airflow_run_id": request.airflow_run_id,
        "base_seq": state.seq - 1,
        # Taken over what a reader of the files will see.
        "hash": plan_hash(decided.to_pylist(), taken, json.loads(json.dumps(document)), cuts),
        "collected_at": request.collected_at,
        "reasons": dict(sorted(Counter(decision.reason for decision in decisions).items())),
        "bundles_taken": len(taken),
        "bundles_passed_over": dict(sorted(passed_over.items())),
        "bundles_split": len(cuts),
        "waves": max((row["wave"] + 1 for row in taken if row["wave"] is not None), default=0),
        "in_force": request.in_force,
        "resolved": request.resolved,
    }


def scores(before: Mapping[str, float], after: Mapping[str, float], apart: Container[str]) -> dict[str, Any]:
    """Return the fields of the summary about scores.

    Args:
        before: of the brokers that were judged, percent.
        after: with the moves (`scoring.scores_after`), percent.
        apart: brokers that are not compared with the others.
    """
    before, after = ({name: figure for name, figure in each.items() if name not in apart} for each in (before, after))
    return {
        "brokers": len(before),
        "score_min": min(before.values(), default=None),
        "score_max": max(before.values(), default=None),
        "score_mean": math.fsum(before.values()) / len(before) if before else None,
        "predicted_min": min(after.values(), default=None),
        "predicted_max": max(after.values(), default=None),
    }
