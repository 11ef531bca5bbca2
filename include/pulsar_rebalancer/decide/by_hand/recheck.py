"""The plan of a run that carries out an earlier plan.

A person approved the earlier plan or referred to it by its hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.decide.by_hand import makers
from pulsar_rebalancer.decide.by_hand.drains import leaving
from pulsar_rebalancer.decide.by_hand.preview import candidates_of, placed, write
from pulsar_rebalancer.decide.by_hand.scene import Scene
from pulsar_rebalancer.errors import PlanError, SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.manual_request import ByHand, HandRequest
from pulsar_rebalancer.run.plan import Summary, read_state, verify
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.splits import taken_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.decide.by_hand.drains import Leaving
    from pulsar_rebalancer.run.plan import Move
    from pulsar_rebalancer.run.request import RunRequest
    from pulsar_rebalancer.state.manual_plans import HandedOver
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath


def carry_out_shown(storage: ClusterStorage, run: StoragePath) -> Summary:
    """Check an earlier plan against a new snapshot, and write the plan of the run that carries it out.

    An approved plan is carried out as a whole or refused. From any other plan, only the moves that are still valid are
    carried out.

    Raises:
        PlanError: `other_plan`, `plan_changed`, `shown_too_long_ago`, `awaited_too_long`, `not_whole` or
            `would_overload`.
        SnapshotError: one of the run's files, or a file of the plan that was shown, cannot be read.
    """
    snapshot = Snapshot(run)
    request, handed = snapshot.request, snapshot.before.handed_over
    if handed is None:
        raise SnapshotError(Reason.FILE_DAMAGED, f"{run.uri} does not say which plan it carries out")
    folder, summary = _shown(storage, request, handed)
    # A plan that a strategy made is requested only by its hash.
    wanted = summary.by_hand.request if summary.by_hand else HandRequest(plan=summary.hash, reason=handed.reason)
    overruled = wanted.overruled
    if handed.approved and summary.by_hand is None:
        # The run that made the plan applied the grace period, and only the plan's own runs have moved bundles since.
        overruled |= {Overrule.GRACE_PERIOD}
    scene = Scene.read(snapshot, overruled)
    approved = {"approved_by": handed.by, "approved_because": handed.reason} if handed.approved else {}
    asked_by = summary.by_hand.by if summary.by_hand and approved else handed.by
    record = ByHand(by=asked_by, request=wanted, carries_out=summary.hash, **approved)
    moves, _ = verify(folder, summary)
    of_drains = [
        move for move in moves if scene.owners.get(move.bundle) == move.source and move.source in summary.drains
    ]
    others = [move for move in moves if move not in of_drains]
    again, room = placed(scene, candidates_of(scene, makers.again(scene, others))), None
    if of_drains:
        left = _leaving(storage, snapshot, summary, of_drains)
        again, room = [*left.moves, *again], left.room(fixed=True)
    # A split that no longer fits is noticed later, from the bundle's bounds, before any request is sent.
    restarts = read_state(folder).restarts
    return write(scene, again, record, taken_rows(folder), room, whole=handed.approved, restarts=restarts)


def _shown(storage: ClusterStorage, request: RunRequest, handed: HandedOver) -> tuple[StoragePath, Summary]:
    """Return the folder and the summary of the plan that was shown."""
    entry, settings = handed.plan, request.resolved.settings
    folder = storage.run(entry.plan_id)
    if folder is None or (summary := Summary.read(folder)).hash != request.params.plan:
        raise PlanError(Reason.OTHER_PLAN, f"{entry.plan_id} is not the plan {request.params.plan[:16]}")
    oldest, too_old = settings.max_shown_plan_age_seconds, Reason.SHOWN_TOO_LONG_AGO
    if handed.approved:
        oldest, too_old = settings.max_awaiting_minutes * 60, Reason.AWAITED_TOO_LONG
    age = (request.collected_at - entry.at).total_seconds()
    if age > oldest:
        raise PlanError(too_old, f"plan {entry.plan_id} is {age:.0f} s old")
    return folder, summary


def _leaving(storage: ClusterStorage, snapshot: Snapshot, shown: Summary, moves: Sequence[Move]) -> Leaving:
    """Return the shown plan's moves off drained brokers.

    A rule is lifted only if it was lifted for the shown plan and still is. Bundles of a broker that is no longer
    drained are not moved.
    """
    drained = snapshot.before.drains.brokers
    overruled = {
        source: frozenset(shown.drains[source].overrule).intersection(
            drained[source].overrule if source in drained else ()
        )
        for source in {move.source for move in moves}
    }

    def wishes(_: Scene, source: str) -> list[makers.Wish]:
        released = None if source in drained else Reason.NOT_DRAINED
        return [makers.Wish(move.bundle, move.destination, released, source) for move in moves if move.source == source]

    return leaving(snapshot, overruled, wishes)
