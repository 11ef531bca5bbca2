"""Bring bundles back to their homes: the brokers that had them before."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.decide.by_hand.filling import Filling, new_brokers, of_moves, unreported
from pulsar_rebalancer.decide.by_hand.makers import Wish
from pulsar_rebalancer.decide.by_hand.preview import candidates_of, placed
from pulsar_rebalancer.decide.by_hand.scene import Scene
from pulsar_rebalancer.decide.by_hand.spare_capacity import SpareCapacity
from pulsar_rebalancer.decide.remembered import RememberedPlacement, homes_in
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.attempts import TRIES
from pulsar_rebalancer.strategies import caps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pulsar_rebalancer.run.snapshot import Snapshot
    from pulsar_rebalancer.state.state_documents import Unload
    from pulsar_rebalancer.strategies.sample import CandidateMove


_GROWN = 0.1
"""Ratio by which a home may exceed its usual share of the traffic, because traffic always varies."""


def restore(snapshot: Snapshot) -> Filling | None:
    """Return the moves that bring bundles back to their brokers in the remembered placement; None if all are there.

    Only brokers that started recently get bundles back: a broker that was away, or all brokers after a cold start. A
    bundle stays if moving it back would raise its home's share of the cluster's traffic above the home's share in the
    placement.


    Raises:
        SnapshotError: one of the run's files cannot be read.
    """
    placement = RememberedPlacement.read(snapshot) if new_brokers(snapshot) else None
    return None if placement is None else restored(_scene(snapshot), placement)


def restored(scene: Scene, placement: RememberedPlacement) -> Filling | None:
    """Return the same moves as `restore`, for a given placement.

    Args:
        scene: the input without the grace period.
    """
    home = placement.homes(pa.array(scene.owners, pa.string()), new_brokers(scene.snapshot))
    return _brought_back(scene, home, placement.shares)


def bring_back(snapshot: Snapshot, home: Mapping[str, str]) -> Filling | None:
    """Return the moves that bring bundles back to their homes, most traffic first; None if all are there.

    Policies, exclusions and caps apply, and no home may exceed `overloaded_threshold`; a bundle that does not fit
    stays. The grace period applies too, except to a bundle that left only because its home was drained or down, and to
    a bundle that missed its home in fewer than `TRIES` runs. If all bundles stay, the plan has no decisions, only the
    reasons.

    Args:
        home: brokerId of each bundle's home, which is also that of the parts into which Pulsar has split the bundle.
            Bundles that no broker reports are ignored.

    Raises:
        SnapshotError: one of the run's files cannot be read.
    """
    scene = _scene(snapshot)
    return _brought_back(scene, homes_in(home, scene.owners))


def _scene(snapshot: Snapshot) -> Scene:
    return Scene.read(snapshot, (Overrule.GRACE_PERIOD,))


def _brought_back(scene: Scene, home: Mapping[str, str], shares: Mapping[str, float] | None = None) -> Filling | None:
    hottest_first = sorted(candidates_of(scene, _wishes(scene, home)), key=lambda move: (-move.traffic, move.bundle))
    if shares is not None:
        hottest_first = _within_shares(hottest_first, scene.traffic, shares)
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
    plan = of_moves(scene, ordered, Reason.GIVE_BACK, "gives bundles back to", "Brought back: bundles of {}")
    return plan or _all_stay(ordered)


def _all_stay(moves: list[CandidateMove]) -> Filling:
    reasons = Counter(move.reason for move in moves)
    why = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    return Filling([], moves, {}, f"Not brought back: {why}")


def _wishes(scene: Scene, home: Mapping[str, str]) -> Iterator[Wish]:
    snapshot, unloads = scene.snapshot, scene.snapshot.before.moves.unloads
    recent = snapshot.before.moves.recent(snapshot.request.collected_at, scene.settings.grace_period_minutes)
    started = snapshot.started
    for bundle, owner in scene.owners.items():
        broker, unload = home.get(bundle, owner), unloads.get(bundle)
        if broker == owner:
            continue
        if unload and not unload.missed(broker):
            unload = recent.get(bundle)
        reason = None
        if broker not in scene.listed:
            reason = Reason.DESTINATION_GONE
        elif unload:
            start = started[broker]
            left_before = start is not None and start > unload.at
            drained = snapshot.before.roll is not None and unload.source == broker
            reason = None if left_before or drained else _moved_again(unload, broker)
        yield Wish(bundle, broker, reason)


def _moved_again(unload: Unload, home: str) -> Reason | None:
    if not unload.missed(home):
        return Reason.RECENTLY_UNLOADED
    return None if unload.tries < TRIES else Reason.ASTRAY


def _within_shares(
    moves: Iterable[CandidateMove], traffic: Mapping[str, float], shares: Mapping[str, float]
) -> list[CandidateMove]:
    """Return the moves. A move that would take the home above its share is marked with the reason why the bundle stays.

    All departures are counted before any arrival.

    Args:
        traffic: current traffic of each broker in bytes/s.
        shares: each home's usual share of the cluster's traffic, 0 to 1; the share may grow by a tenth.
    """
    candidates, held = list(moves), dict(traffic)
    total = math.fsum(held.values())
    for move in candidates:
        held[move.source] -= move.traffic if move.taken else 0.0
    for index, move in enumerate(candidates):
        if not move.taken:
            continue
        home = str(move.destination)
        if held[home] + move.traffic > shares.get(home, 0.0) * (1 + _GROWN) * total:
            home, candidates[index] = move.source, move._replace(reason=Reason.HOME_FULL)
        held[home] += move.traffic
    return candidates
