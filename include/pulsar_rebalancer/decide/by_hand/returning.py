"""Bring bundles back to their homes: the brokers that had them before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.decide.by_hand.filling import Filling, of_moves, unreported
from pulsar_rebalancer.decide.by_hand.makers import Wish
from pulsar_rebalancer.decide.by_hand.preview import candidates_of, placed
from pulsar_rebalancer.decide.by_hand.scene import Scene
from pulsar_rebalancer.decide.by_hand.spare_capacity import SpareCapacity
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies import caps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pulsar_rebalancer.run.snapshot import Snapshot
    from pulsar_rebalancer.storage.path import StoragePath


def bring_back(snapshot: Snapshot, state_folder: StoragePath, home: Mapping[str, str]) -> Filling | None:
    """Return the moves of bundles back to their homes, those with the most traffic first; None if there are none.

    Policies, exclusions and caps apply, and no home may exceed `overloaded_threshold`; a bundle that does not fit
    stays. The grace period applies too, except to a bundle that left a process of its home that has ended since then:
    nothing moves to and fro when a drained broker has restarted.

    Args:
        state_folder: the folder with the moving averages of the run's cluster.
        home: brokerId of each bundle's home. Bundles that no broker reports are ignored.

    Raises:
        SnapshotError: a file of the run cannot be read.
    """
    scene = Scene.read(snapshot, state_folder, (Overrule.GRACE_PERIOD,))
    hottest_first = sorted(candidates_of(scene, _wishes(scene, home)), key=lambda move: (-move.traffic, move.bundle))
    if not hottest_first:
        return None
    # While caps apply, each move is a pair of its own: the order of pairs decides which moves are within the caps.
    wanted = placed(scene, (move._replace(pair=pair) for pair, move in enumerate(hottest_first)))
    sources = sorted({move.source for move in wanted})
    room = SpareCapacity(
        dict.fromkeys(sources, scene), dict.fromkeys(sources, ()), fixed=True, gained=unreported(scene)
    )
    moves = caps.apply(wanted, scene.settings, scene.policies.groups, scene.sample.brokers, room)
    pairs = {source: pair for pair, source in enumerate(sources, -len(sources))}
    ordered = caps.in_order(move._replace(pair=pairs[move.source], rank=move.pair) for move in moves)
    return of_moves(scene, ordered, Reason.GIVE_BACK, "gives bundles back to", "Brought back: bundles of {}")


def _wishes(scene: Scene, home: Mapping[str, str]) -> Iterator[Wish]:
    snapshot = scene.snapshot
    recent = snapshot.before.moves.recent(snapshot.request.collected_at, scene.settings.grace_period_minutes)
    started = {broker.broker: broker.started_at for broker in scene.sample.brokers}
    for bundle, owner in scene.owners.items():
        broker, unload = home.get(bundle, owner), recent.get(bundle)
        if broker == owner:
            continue
        reason = None
        if broker not in scene.listed:
            reason = Reason.DESTINATION_GONE
        elif unload:
            start = started[broker]
            ended = unload.source == broker and start is not None and start > unload.at
            reason = None if ended else Reason.RECENTLY_UNLOADED
        yield Wish(bundle, broker, reason)
