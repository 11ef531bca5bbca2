"""What a run does for the brokers that are drained: their bundles leave first, then what the strategy wants moves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.decide.by_hand import makers
from pulsar_rebalancer.decide.by_hand.preview import candidates_of, placed
from pulsar_rebalancer.decide.by_hand.scene import Scene
from pulsar_rebalancer.decide.by_hand.spare_capacity import SpareCapacity
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.manual_request import DrainProgress
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.sums import one_by_one
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies import caps, waves
from pulsar_rebalancer.strategies.sample import Decision

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_rebalancer.state.manual_plans import Drain
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer.strategies.sample import CandidateMove

NAMED = 20
"""How many bundles that cannot move are named for each broker."""

_NEVER = (Reason.SYSTEM_NAMESPACE, Reason.NO_TOPIC)


class Served(NamedTuple):
    """A decided run with its drains.

    Attributes:
        decisions: one for each drained broker that has bundles, before those of the strategy.
        moves: all candidates, within the caps: those of drained brokers come first.
        traffic: bytes/s of the drained brokers that give bundles.
        progress: by drained broker.
    """

    decisions: list[Decision]
    moves: list[CandidateMove]
    traffic: dict[str, float]
    progress: dict[str, DrainProgress]


def serve(
    run: StoragePath,
    state_folder: StoragePath,
    drains: Mapping[str, Drain],
    decisions: Sequence[Decision],
    moves: Iterable[CandidateMove],
) -> Served:
    """Return what a run decides once the bundles of drained brokers have been put first.

    Args:
        run: folder of the run.
        state_folder: where the means of its cluster lie.
        drains: by broker; not empty.
        decisions: of the strategy, for which these brokers are left out.
        moves: its candidates; caps may bite some of those that are taken.

    Raises:
        SnapshotError: a file of the run cannot be read.
    """
    # What is overruled for one broker holds for the others.
    groups: dict[frozenset[Overrule], list[str]] = {}
    for broker in sorted(drains):
        groups.setdefault(frozenset(drains[broker].overrule) - {Overrule.CAPS}, []).append(broker)
    snapshot = Snapshot(run)
    scenes: dict[str, Scene] = {}
    leaving: list[CandidateMove] = []
    first_pair = -len(drains)  # below zero: caps take the pairs in their order, those of drains first
    for overruled, brokers in groups.items():
        scene = Scene.read(snapshot, state_folder, overruled)
        wishes = [wish for broker in brokers for wish in makers.leaving(scene, broker)]
        leaving += placed(scene, candidates_of(scene, wishes, first_pair))
        first_pair += len(brokers)
        scenes |= dict.fromkeys(brokers, scene)
    # One bundle of each anti-affinity group goes at a time, whatever is overruled.
    groups_of, by_range = snapshot.policies.groups, waves.needed(scene.sample.brokers)
    room = SpareCapacity(scene, scenes, {broker: drain.overrule for broker, drain in drains.items()})
    capped = caps.apply([*leaving, *moves], scene.settings, groups_of, by_range=by_range, room=room)
    of_drain = [move for move in capped if move.pair < 0]
    pairs = {move.source: move.pair for move in of_drain}
    found = [_decision(scenes[broker], broker, pairs[broker], drains[broker]) for broker in sorted(pairs)]
    givers = {move.source for move in of_drain if move.taken}
    return Served(
        [*found, *decisions],
        capped,
        {broker: scenes[broker].traffic[broker] for broker in givers},
        {broker: _progress(broker, drains[broker], of_drain) for broker in sorted(drains)},
    )


def _decision(scene: Scene, broker: str, pair: int, drain: Drain) -> Decision:
    return Decision(
        source=broker,
        reason=Reason.DRAIN,
        pair=pair,
        source_score=scene.scores.get(broker),
        fired=True,
        explanation=f"{broker} is drained, {drain.by or 'somebody'} asked for it: {drain.reason}",
        measure=Measure.THROUGHPUT,
        target=one_by_one(bundle.msg_throughput for bundle in scene.sample.bundles.of(broker)),
    )


def _progress(broker: str, drain: Drain, moves: Iterable[CandidateMove]) -> DrainProgress:
    mine = [move for move in moves if move.source == broker]
    stay = Counter(move.reason for move in mine if not move.taken)
    return DrainProgress(
        since=drain.at,
        by=drain.by,
        reason=drain.reason,
        overrule=drain.overrule,
        bundles=len(mine),
        moving=len(mine) - stay.total(),
        stay=dict(sorted(stay.items())),
        named=tuple(sorted(move.bundle for move in mine if move.reason in _NEVER)[:NAMED]),
    )
