"""The files of a plan: decisions, moves, new state, and the summary that makes it a plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.decide import plan_files
from pulsar_rebalancer.decide.by_hand.drains import serve
from pulsar_rebalancer.decide.explain import complete
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Forced, Summary
from pulsar_rebalancer.run.tables import MOVES
from pulsar_rebalancer.state.counting import samples_after
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer.strategies import rows
from pulsar_rebalancer.strategies.fitting import force_threshold
from pulsar_rebalancer.strategies.hits import hits_after, start_anew, used_samples
from pulsar_rebalancer.strategies.left_out import apart_of
from pulsar_rebalancer.strategies.scoring import scores_after
from pulsar_rebalancer.strategies.shedders.registry import profile_of
from pulsar_rebalancer.strategies.wording import number_of
from pulsar_rebalancer_spark import split_planning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer.strategies.sample import CandidateMove, Decision
    from pulsar_rebalancer_spark.run_input import RunInput
    from pulsar_rebalancer_spark.strategy import Decided


def write(run: RunInput, decided: Decided) -> Summary:
    """Write decisions, state and summary beside the moves that are there already.

    Args:
        run: the run.
        decided: what its strategy decided.

    Returns:
        The summary, written last.
    """
    taken, reasons = _moves(run.folder / "plan" / "moves.parquet")
    moves = [rows.move(row) for row in taken]
    decisions = start_anew(complete(decided.decisions, moves, reasons), run.counting)
    state = _state(run, decisions, decided)
    fields = plan_files.write(run.folder, run.request, state, decisions, taken, reasons, run.splits.rows)
    summary = _summary(run, decisions, moves, decided, fields)
    summary.write(run.folder)
    return summary


def with_drains(run: RunInput, decided: Decided) -> Decided:
    """Return a decided run in which the bundles of drained brokers leave first; its moves are written anew."""
    file = run.folder / "plan" / "moves.parquet"
    moves = file.read_table().cast(MOVES)
    # Drains bite among those that would move; the others, which are most, stay columns.
    taken, others = rows.taken_moves(moves), moves.filter(pc.invert(moves["taken"]))
    served = serve(run.folder, run.state_folder, run.drains.brokers, decided.decisions, taken)
    file.write_table(pa.concat_tables([rows.move_table(run.cluster, served.moves), others]))
    leaving = number_of(sum(drain.moving for drain in served.progress.values()), "bundle")
    return decided._replace(
        decisions=served.decisions,
        source_traffic=decided.source_traffic | served.traffic,
        sentence=f"{decided.sentence}. Drained: {', '.join(served.progress)}, {leaving} to move",
        drains=served.progress,
    )


def _moves(file: StoragePath) -> tuple[list[dict[str, Any]], dict[int, Counter[Reason]]]:
    """Return the rows of the taken bundles, and how many have which reason, by pair; the others stay on disk."""
    found = file.read_table()
    taken = found.filter(found["taken"]).to_pylist()
    reasons: dict[int, Counter[Reason]] = {}
    for row in found.group_by(["pair", "reason"]).aggregate([([], "count_all")]).to_pylist():
        reasons.setdefault(row["pair"], Counter())[Reason(row["reason"])] = row["count_all"]
    return taken, reasons


def _state(run: RunInput, decisions: Sequence[Decision], decided: Decided) -> DecisionState:
    counts, now = run.counting.counts, run.request.collected_at
    return DecisionState(
        seq=run.decision.seq + 1,
        plan_id=run.folder.name,
        counted_at=now if counts else run.decision.counted_at,
        strategy=run.settings.strategy,
        hits=hits_after(decisions),
        kept=decided.kept.document(),
        samples=samples_after(run.decision, run.counting, decided.samples | used_samples(decisions, run.counting), now),
        means=run.new_means.name if counts else run.decision.means,
        split_hits=run.splits.hits if counts else run.decision.split_hits,
    )


def _summary(
    run: RunInput,
    decisions: Sequence[Decision],
    taken: Sequence[CandidateMove],
    decided: Decided,
    fields: dict[str, Any],
) -> Summary:
    judged = [decision for decision in decisions if decision.pair is not None]
    gaps = [pair.gap for pair in judged if pair.gap is not None and pair.source != pair.destination]
    ends = [(each.source, each.source_score) for each in judged]
    ends += [(each.destination, each.destination_score) for each in judged if each.destination]
    scores = {broker: score for broker, score in ends if broker is not None and score is not None}
    request, params = run.request, run.request.params
    forced = Forced(by=request.requested_by, reason=params.force, threshold=force_threshold(request))
    low = profile_of(run.settings).thresholds(run.settings).get("low")
    return Summary(
        **fields,
        **plan_files.scores(scores, scores_after(scores, taken, decided.source_traffic), apart_of(run.snapshot)),
        forced=forced if request.forced else None,
        drains=dict(decided.drains or {}),
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
        splits_told=(*run.splits.told, *split_planning.helpful(run, decisions, decided.source_traffic)),
    )
