"""A run's plan on the page: moves, disturbed clients, reasons why other bundles are not moved, and the outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.findings import ReasonWithMeaning
from pulsar_rebalancer.run.outcome import BundleClientGaps, ClientGap, MoveOutcome, client_gap_summary, last_gaps_text
from pulsar_rebalancer.run.plan import Actions, Move, Summary, read_moves, read_splits, split_rows, taken_candidates
from pulsar_rebalancer.run.snapshot import CLIENT_COLUMNS
from pulsar_rebalancer.show.page.brokers import pair_views
from pulsar_rebalancer.show.page.page_model import BrokerChangeView, MoveView, PairView, PlanView, SplitView, StayCount
from pulsar_rebalancer.show.page.recent_runs import Run, known_scores, rounded_or_none
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.sample import CandidateMove
from pulsar_rebalancer.strategies.scoring import predict_scores
from pulsar_rebalancer.texts import capitalized

MAX_LISTED = 100

MAX_BROKERS_LISTED = 40
"""Maximum number of brokers whose predicted scores are shown; the largest predicted change comes first."""


def predicted_broker_scores(run: Run) -> dict[str, float]:
    """Return the predicted scores of a plan's sources and destinations; empty if unknown."""
    if run.summary is None or not run.summary.bundles_taken:
        return {}
    try:
        moves = [CandidateMove.from_row(row) for row in taken_candidates(run.folder)]
        measures = {move.source: move.measure for move in moves}
        samples = (sample for sample in run.snapshot.read_broker_samples({}) if sample.broker in measures)
        traffic = {sample.broker: sample.traffic(measures[sample.broker]) for sample in samples}
        # A source without a score, for example because it is drained, is a KeyError.
        after = predict_scores(known_scores(run.folder).score_by_broker, moves, traffic)
    except (SnapshotError, KeyError, ValueError):
        return {}
    ends = {end for move in moves for end in (move.source, move.destination)}
    return {name: value for name, value in after.items() if name in ends}


def make_plan_view(storage: ClusterStorage, run: Run | None) -> PlanView | None:
    """Return the readable parts of a run's plan; None if the run has no plan."""
    if run is None or run.summary is None:
        return None
    summary = run.summary
    try:
        actions = Actions(read_moves(run.folder), read_splits(run.folder))
    except SnapshotError:
        actions = Actions([], [])
    moves = actions.moves
    verdict = run.outcome.verdict if run.outcome else Reason.OPEN if run.is_under_way else None
    ended_at = run.outcome.ended_at if run.outcome else None
    disturbed = _clients_by_bundle_and_kind(run, actions)
    last = BundleClientGaps.last_gaps(storage.state, (move.bundle for move in moves)) if run.request.dry_run else None
    rows = _move_views(run, summary, moves, disturbed, last or {})
    splits = tuple(
        SplitView(
            planned=split,
            why=split.excess_text or _request_text(summary),
            ended=run.split_outcomes.get(split.bundle),
            **_topic_and_client_counts(disturbed.get(split.bundle, {})),
        )
        for split in actions.splits
    )
    noticed: list[MoveView | SplitView] = [*rows, *splits]
    ended = [row.ended for row in noticed if row.ended and not row.ended.reason.has(Trait.NOT_BEGUN)]
    return PlanView(
        folder=run.folder.name,
        run_id=run.request.airflow_run_id,
        hash=summary.hash,
        collected_at=summary.collected_at,
        until=summary.manual_plan_deadline if run.request.dry_run else summary.gate_deadline,
        ended_at=ended_at,
        has_effect=summary.has_effect,
        marks_drains=summary.is_drain_plan,
        by=requester_text(summary),
        requested_by=tuple(sorted(summary.requested_by)),
        verdict=ReasonWithMeaning(reason=verdict) if verdict else None,
        measure=moves[0].measure if moves else "msg_throughput",
        bundles=len(moves),
        traffic=math.fsum(move.traffic for move in moves),
        topics=sum(row.topics for row in noticed),
        clients=sum(row.clients for row in noticed),
        range_before=round(summary.score_range, 2),
        predicted_range=rounded_or_none(summary.predicted_range),
        brokers=_broker_change_views(run),
        moves=tuple(rows[:MAX_LISTED]),
        more=max(0, len(rows) - MAX_LISTED),
        splits=splits,
        about_splits=_split_sentences(run, summary),
        unknown=summary.by_hand.unknown if summary.by_hand else (),
        stay=_stay_counts(summary.bundle_skip_reasons),
        done=len(ended),
        failed=sum(not each.ok for each in ended),
        client_gap=_client_gap_text(run, len(moves), last),
    )


def _client_gap_text(run: Run, move_count: int, last_gaps: Mapping[str, ClientGap] | None) -> str:
    """Return the cost of the moves for clients; for a plan that is only shown, of its bundles' last moves."""
    if last_gaps is not None:
        return f"Last moves: {last_gaps_text(last_gaps.values(), move_count)}." if move_count else ""
    client_gap = client_gap_summary(run.outcome.moves) if run.outcome else None
    return f"{capitalized(client_gap.sentence)}." if client_gap else ""


def _clients_by_bundle_and_kind(run: Run, actions: Actions) -> dict[str, dict[str, int]]:
    try:
        return run.snapshot.clients_by_bundle_and_kind(actions.unloaded_bundles)
    except SnapshotError:
        return {}


def _split_sentences(run: Run, summary: Summary) -> tuple[str, ...]:
    try:
        planned = {row["explanation"] for row in split_rows(run.folder)}
    except (SnapshotError, KeyError):
        planned = set()
    return tuple(sentence for sentence in summary.splits_told if sentence not in planned)


def _move_views(
    run: Run,
    summary: Summary,
    moves: Sequence[Move],
    disturbed_by_bundle: Mapping[str, Mapping[str, int]],
    last_gaps: Mapping[str, ClientGap],
) -> list[MoveView]:
    fired = [pair for pair in pair_views(run) if pair.fired]
    # In a swap, bundles also leave the colder broker.
    pairs = {pair.destination: pair for pair in fired} | {pair.source: pair for pair in fired}
    rows = [
        MoveView(
            planned=move,
            why=_move_reason(summary, move, pairs),
            client_gap=_move_client_gap_text(run.move_outcomes.get(move.bundle), last_gaps.get(move.bundle)),
            ended=run.move_outcomes.get(move.bundle),
            **_topic_and_client_counts(disturbed_by_bundle.get(move.bundle, {})),
        )
        for move in moves
    ]
    return sorted(rows, key=lambda row: row.ended is None or row.ended.ok)


def _move_reason(summary: Summary, move: Move, pairs: Mapping[str, PairView]) -> str:
    drain, pair = summary.drains.get(move.source), pairs.get(move.source)
    if summary.by_hand is not None:
        return _request_text(summary)
    if drain is not None:
        return f"drained by {drain.by or 'unknown'}: {drain.reason}"
    if pair is None:
        return ""
    return f"{pair.gap:.0f} points apart" if pair.gap is not None else pair.meaning


def _request_text(summary: Summary) -> str:
    asked = summary.by_hand.request if summary.by_hand else None
    return ": ".join(filter(None, [str(asked.action or "by hand"), asked.reason])) if asked else ""


def requester_text(summary: Summary) -> str:
    if summary.by_hand is not None:
        return f"by {summary.by_hand.by or 'unknown'}"
    return f"forced by {summary.forced.by or 'unknown'}: {summary.forced.reason}" if summary.forced else ""


def _broker_change_views(run: Run) -> tuple[BrokerChangeView, ...]:
    before = known_scores(run.folder).score_by_broker
    ends = [
        BrokerChangeView(name=name, before=round(before[name], 2), after=round(after, 2))
        for name, after in predicted_broker_scores(run).items()
        if name in before
    ]
    return tuple(sorted(ends, key=lambda view: (-abs(view.before - view.after), view.name))[:MAX_BROKERS_LISTED])


def _move_client_gap_text(outcome: MoveOutcome | None, last_gap: ClientGap | None) -> str:
    if outcome and outcome.client_gap:
        return outcome.client_gap.text
    return f"last time, {last_gap.text}" if last_gap else ""


def _topic_and_client_counts(disturbed_counts: Mapping[str, int]) -> dict[str, int]:
    counts = {name: disturbed_counts.get(name, 0) for name in CLIENT_COLUMNS}
    return {"topics": counts["topics"], "clients": counts["producers"] + counts["consumers"]}


def _stay_counts(skip_reasons: Mapping[Reason, int]) -> tuple[StayCount, ...]:
    ordered = sorted(skip_reasons.items(), key=lambda item: (-item[1], item[0]))
    return tuple(StayCount(reason=reason, count=count) for reason, count in ordered)
