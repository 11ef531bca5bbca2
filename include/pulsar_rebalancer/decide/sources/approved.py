"""An earlier plan as a source: one that a person approved, or referred to by its hash."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.decide.planning import Proposal, RequestedMove, assign_destinations, to_candidates
from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.decide.sources.drains import drain_proposal_and_samples
from pulsar_rebalancer.errors import PlanError, SnapshotError
from pulsar_rebalancer.orders.manual_plans import HandedOverPlan
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Move, Summary, read_plan_state, split_rows, verified_actions
from pulsar_rebalancer.run.request import ManualPlanRecord, PlanRequest, RunRequest
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import Row
from pulsar_rebalancer.state import HitSample
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.caps import CapacityCheck
from pulsar_rebalancer.strategies.sample import CandidateMove


class EarlierPlan(NamedTuple):
    """An earlier plan, and the new sample in which it is carried out.

    `is_approved` is False if the plan's hash was given. `restart_samples` are the brokers whose hits are reset when the
    plan is carried out, each with the plan's sample.
    """

    sample: PlanningSample
    summary: Summary
    manual_plan: ManualPlanRecord
    is_approved: bool
    moves: list[Move]
    split_rows: list[Row]
    restart_samples: Mapping[str, HitSample]


def read_earlier_plan(storage: ClusterStorage, snapshot: Snapshot) -> EarlierPlan:
    """Return the earlier plan that a run carries out.

    Raises PlanError: `other_plan`, `plan_changed`, `plan_expired`.
    """
    handed = snapshot.state.handed_over
    if handed is None:
        raise SnapshotError(Reason.FILE_DAMAGED, f"run {snapshot.folder.uri} has no plan to carry out")
    folder, summary = _shown_plan(storage, snapshot.request, handed)
    # A plan that a strategy made is requested only by its hash.
    wanted = summary.by_hand.request if summary.by_hand else PlanRequest(plan=summary.hash, reason=handed.reason)
    overruled = wanted.overruled_rules
    if handed.approved and summary.by_hand is None:
        # The run that made the plan applied the grace period, and only the plan's own runs have moved bundles since.
        overruled |= {Overrule.GRACE_PERIOD}
    who = {"approved_by": handed.by, "approved_because": handed.reason} if handed.approved else {}
    asked_by = summary.by_hand.by if summary.by_hand and who else handed.by
    moves, _ = verified_actions(folder, summary)
    return EarlierPlan(
        sample=PlanningSample.read(snapshot, overruled),
        summary=summary,
        manual_plan=ManualPlanRecord(by=asked_by, request=wanted, carries_out=summary.hash, **who),
        is_approved=handed.approved,
        moves=list(moves),
        split_rows=split_rows(folder),
        restart_samples=read_plan_state(folder).restarts,
    )


def moves_and_room_check(earlier_plan: EarlierPlan) -> tuple[list[CandidateMove], Callable[[], CapacityCheck] | None]:
    """Return the candidates of an earlier plan, and the check for room if some of them leave drained brokers."""
    sample = earlier_plan.sample
    leave = [
        move
        for move in earlier_plan.moves
        if move.source in earlier_plan.summary.drains and sample.owners.get(move.bundle) == move.source
    ]
    others = [_repeated_request(sample, move) for move in earlier_plan.moves if move not in leave]
    moves = assign_destinations(sample, to_candidates(sample, others))
    if not leave:
        return moves, None
    drains = _drain_proposal(sample.snapshot, earlier_plan.summary, leave)
    return [*drains.moves, *moves], drains.new_check


def _repeated_request(sample: PlanningSample, move: Move) -> RequestedMove:
    stayed = sample.owners.get(move.bundle) in (None, move.source, move.destination)
    return RequestedMove(move.bundle, move.destination, None if stayed else Reason.OWNER_CHANGED)


def _shown_plan(storage: ClusterStorage, request: RunRequest, record: HandedOverPlan) -> tuple[StoragePath, Summary]:
    entry, limit = record.plan, 60 * request.resolved.settings.max_awaiting_minutes
    folder = storage.run_folder(entry.plan_id)
    if folder is None or (summary := Summary.read(folder)).hash != request.params.plan:
        raise PlanError(Reason.OTHER_PLAN, f"run {entry.plan_id} did not make the plan {request.params.plan[:16]}")
    age = (request.collected_at - entry.at).total_seconds()
    if age > limit:
        raise PlanError(Reason.PLAN_EXPIRED, f"plan {entry.plan_id} is {age:.0f} s old; the limit is {limit:g} s")
    return folder, summary


def _drain_proposal(snapshot: Snapshot, shown_summary: Summary, moves: Sequence[Move]) -> Proposal:
    """Return the moves off brokers still drained. A rule is lifted only if it was then and still is."""
    drained = snapshot.state.drains.brokers
    overruled = {
        source: frozenset(shown_summary.drains[source].overrule).intersection(
            drained[source].overrule if source in drained else ()
        )
        for source in {move.source for move in moves}
    }

    def moves_of_drain(_: PlanningSample, source: str) -> list[RequestedMove]:
        reason = None if source in drained else Reason.NOT_DRAINED
        return [RequestedMove(move.bundle, move.destination, reason, source) for move in moves if move.source == source]

    return drain_proposal_and_samples(snapshot, overruled, moves_of_drain, planned_only=True)[0]
