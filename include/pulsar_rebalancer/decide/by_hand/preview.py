"""Make manual plans. Like other plans, they have tables, a hash and a new state, but they do not count hits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Action, Overrule
from pulsar_rebalancer.decide import plan_output
from pulsar_rebalancer.decide.by_hand import makers
from pulsar_rebalancer.decide.by_hand.scene import Scene
from pulsar_rebalancer.decide.by_hand.spare_capacity import SpareCapacity
from pulsar_rebalancer.decide.explain import complete, reasons_by_pair
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.manual_request import ByHand
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary, write_moves
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.run.topic_loads import Candidates
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.kept import PlacementState
from pulsar_rebalancer.strategies.placement import assignment
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision
from pulsar_rebalancer.strategies.scoring import scores_after
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_rebalancer.decide.by_hand.makers import Wish
    from pulsar_rebalancer.run.manual_request import HandRequest
    from pulsar_rebalancer.run.tables import Row
    from pulsar_rebalancer.state.state_documents import CountedSample
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer.strategies.caps import CapacityCheck

_MEASURE = Measure.THROUGHPUT


def show(storage: ClusterStorage, run: StoragePath, request: HandRequest, by: str) -> Summary:
    """Make the plan that a person requested through a form, write it to the run's folder, and return its summary.

    Args:
        run: folder of a run with a validated snapshot.
        by: name of the Airflow user.

    Raises:
        PlanError: `no_such_bundle`, `unknown_destination`, `would_overload`, or the reason why a
            named broker is left out.
        SnapshotError: one of the run's files cannot be read.
    """
    draining = request.broker if request.action is Action.DRAIN else ()
    scene = Scene.read(Snapshot(run), request.overruled).draining(draining)
    record = ByHand(by=by, request=request)
    if request.action is Action.SPLIT:
        return write(scene, (), record, [makers.split(scene, request, Candidates.find(run) or Candidates())])
    # A drain is shown as its runs will decide it.
    drained = dict.fromkeys(draining, scene), dict.fromkeys(draining, request.overrule)
    room = SpareCapacity(*drained) if draining else None
    wishes = _wishes(scene, storage, request)
    return write(scene, placed(scene, candidates_of(scene, wishes)), record, room=room)


def _wishes(scene: Scene, storage: ClusterStorage, request: HandRequest) -> list[Wish]:
    if request.action is Action.DRAIN:
        return makers.drain(scene, request.broker)
    if request.action is Action.FILL:
        return makers.fill(scene, request.broker)
    if request.action is Action.UNDO:
        folder = storage.run(request.run)
        if folder is None:
            raise PlanError(Reason.FILE_MISSING, f"run: {request.run!r} is not a plan_id, the name of a run's folder")
        return makers.undo(scene, Outcome.read(folder))
    return makers.unload(scene, request.bundles, request.destination)


def write(
    scene: Scene,
    wanted: Iterable[CandidateMove],
    record: ByHand,
    splits: Sequence[Row] = (),
    room: CapacityCheck | None = None,
    *,
    whole: bool = False,
    restarts: Mapping[str, CountedSample] | None = None,
) -> Summary:
    """Write a plan to the run's folder, and return its summary.

    Args:
        wanted: candidates with their destinations, before the caps are applied.
        record: the request and the person who made it.
        splits: rows of the splits table.
        room: check that refuses a move, or changes its destination, if the destination lacks capacity for the bundle.
        whole: True to refuse the plan if any of its bundles must not be moved.
        restarts: brokers whose hits are reset when the plan is carried out, each with the sample that the plan used.

    Raises:
        PlanError: `would_overload`; `not_whole`.
    """
    snapshot, request = scene.snapshot, scene.snapshot.request
    moves = caps.apply(wanted, scene.settings, scene.policies.groups, scene.sample.brokers, room)
    taken = [move for move in moves if move.taken]
    if whole:
        _refuse_parts(moves)
    after = scores_after(scene.scores, taken, scene.traffic)
    if record.request.action and room is None:  # an approved plan of a strategy is checked as in mode `auto`
        _check_load(scene, after, record.request.overruled)
    candidates = plan_output.move_table(request.cluster, moves)
    write_moves(snapshot.folder, candidates)
    by_pair = reasons_by_pair(moves)
    decisions = complete(_decisions(scene, moves, record), taken, by_pair)
    before = snapshot.before.decision
    changed = {"seq": before.seq + 1, "plan_id": snapshot.folder.name, "restarts": dict(restarts or {})}
    state = before.model_copy(update=changed)
    going = [row for row in candidates.to_pylist() if row["taken"]]
    fields = plan_output.write_files(snapshot.folder, request, state, decisions, going, by_pair, splits)
    told = tuple(row["explanation"] for row in splits)
    ends = told or (number_of(len(taken), "bundle") + " to move",)
    summary = Summary(
        **fields,
        **plan_output.scores_fields(scene.scores, after, scene.left_out),
        by_hand=_with_effect(scene, moves, splits, record, after),
        counting=Reason.BY_HAND,
        pairs=0,
        pairs_over=0,
        pairs_fired=0,
        hits=(0, 0),
        sentence=f"{_asked(record)}: {'; '.join(ends)}",
        splits_told=told,
    )
    summary.write(snapshot.folder)
    return summary


def _asked(record: ByHand) -> str:
    asked = f"{record.request.action} by hand" if record.request.action else ""
    return ", ".join(filter(None, [asked, record.approval])) or f"approved by {record.by or 'somebody'}"


def candidates_of(scene: Scene, wishes: Iterable[Wish], first_pair: int = 0) -> list[CandidateMove]:
    """Convert wishes to candidates, with one pair number for each source.

    Bundles with the most traffic come first.
    """
    of_source: dict[str, list[Wish]] = {}
    for wish in wishes:
        source = scene.owners.get(wish.bundle, "") if wish.source is None else wish.source
        of_source.setdefault(source, []).append(wish)
    candidates = []
    # Bundles that no broker reports come last.
    for pair, source in enumerate(sorted(of_source, key=lambda name: (not name, name)), first_pair):
        known = [
            (wish, scene.sample.bundles.find(source, wish.bundle) if source else BundleSample("", wish.bundle))
            for wish in of_source[source]
        ]
        ordered = sorted(known, key=lambda item: (-item[1].mean(_MEASURE), item[1].bundle))
        candidates += [
            CandidateMove.of(
                bundle,
                pair=pair,
                rank=rank,
                measure=_MEASURE,
                reason=wish.reason or scene.stays(bundle) or Reason.TAKEN,
                destination=wish.destination,
            )
            for rank, (wish, bundle) in enumerate(ordered)
        ]
    return candidates


def placed(scene: Scene, moves: Iterable[CandidateMove]) -> list[CandidateMove]:
    """Return the moves with their destinations. A move is passed over if policies allow no destination."""
    return assignment.place(scene.sample, moves, scene.policy_filter(), PlacementState(), scene.snapshot.folder.name)[0]


def _refuse_parts(moves: Iterable[CandidateMove]) -> None:
    lost = [move for move in moves if not move.taken and move.reason is not Reason.SAME_BROKER]
    if lost:
        named = ", ".join(f"{move.bundle} ({move.reason})" for move in lost[:10])
        raise PlanError(Reason.NOT_WHOLE, f"{number_of(len(lost), 'bundle')} would stay: {named}")


def _check_load(scene: Scene, after: Mapping[str, float], overruled: Iterable[Overrule]) -> None:
    limit = scene.settings.overloaded_threshold
    over = {name: score for name, score in after.items() if score > max(limit, scene.scores[name])}
    if over and Overrule.OVERLOAD not in overruled:
        named = ", ".join(f"{name} {scene.scores[name]:.1f} to {over[name]:.1f}" for name in sorted(over)[:10])
        raise PlanError(Reason.WOULD_OVERLOAD, f"predicted scores above {limit:g} percent: {named}")


def _decisions(scene: Scene, moves: Iterable[CandidateMove], record: ByHand) -> list[Decision]:
    """Return a decision for each source."""
    of_pair: dict[int, list[CandidateMove]] = {}
    for move in moves:
        of_pair.setdefault(move.pair, []).append(move)
    why = f", because: {record.request.reason}" if record.request.reason else ""
    action = record.request.action
    asked = f"asked to {action}{why}" if action else f"approved plan {record.carries_out[:16]}"
    asked += f"; {record.approval}" if action and record.approval else ""
    return [
        Decision(
            source=moved[0].source,
            reason=Reason.BY_HAND,
            pair=pair,
            source_score=scene.scores.get(moved[0].source),
            fired=True,
            explanation=f"{record.by or 'Somebody'} {asked}",
            measure=_MEASURE,
            target=math.fsum(move.traffic for move in moved),
        )
        for pair, moved in sorted(of_pair.items())
        if moved[0].source
    ]


def _with_effect(
    scene: Scene,
    moves: Sequence[CandidateMove],
    splits: Sequence[Row],
    record: ByHand,
    after: Mapping[str, float],
) -> ByHand:
    """Return a copy of the record that also says how the moves and splits affect brokers and clients."""
    taken = [move for move in moves if move.taken]
    ends = {end for move in taken for end in (move.source, move.destination) if end is not None}
    unloaded = [(move.source, move.bundle) for move in taken]
    unloaded += [(split["broker"], split["bundle"]) for split in splits if split["unload"]]
    bundles = [scene.sample.bundles.find(*each) for each in unloaded]
    return record.model_copy(
        update={
            "scores": {name: (scene.scores[name], after[name]) for name in sorted(ends)},
            **{name: sum(getattr(bundle, name) for bundle in bundles) for name in ("topics", "producers", "consumers")},
            "unknown": tuple(sorted(move.bundle for move in moves if move.reason is Reason.NO_SUCH_BUNDLE)),
        }
    )
