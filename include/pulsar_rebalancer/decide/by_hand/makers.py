"""Bundles that a person wants to move, with their destinations. Policies, placement and caps are applied later."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from pulsar_rebalancer.config.enums import SplitAlgorithm
from pulsar_rebalancer.decide.splits.planner import where_to_cut
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.patterns import matching, of_glob
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.splits import in_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pulsar_rebalancer.decide.by_hand.scene import Scene
    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.run.manual_request import HandRequest
    from pulsar_rebalancer.run.outcome import MoveOutcome, Outcome
    from pulsar_rebalancer.run.plan import Move
    from pulsar_rebalancer.run.topic_loads import Candidates


class Wish(NamedTuple):
    """A bundle that a person wants to move.

    Attributes:
        destination: brokerId of the new owner; None if placement chooses it.
        reason: why the bundle must not be moved, if this is already known; else None.
        source: broker whose report on the bundle is used; None to use the owner's. Two brokers can briefly report the
            same bundle.
    """

    bundle: str
    destination: str | None = None
    reason: Reason | None = None
    source: str | None = None


def unload(scene: Scene, named: Iterable[str], destination: str) -> list[Wish]:
    """Return the named bundles without duplicates.

    An entry that matches no bundle is returned with the reason `no_such_bundle`.

    Args:
        named: bundles, namespaces, or patterns of bundle names, in which `*` matches any text and `?` any character.
        destination: the broker that receives the bundles; empty if placement chooses a broker for each bundle.

    Raises:
        PlanError: no bundle has any of these names (`no_such_bundle`), or the destination cannot receive bundles
            (`check_broker`).
    """
    if destination:
        check_broker(scene, destination)
    names = pa.array(scene.owners, pa.string())
    bundles = dict.fromkeys(bundle for name in named for bundle in _named(scene.owners, names, name) or [name])
    if not bundles.keys() & scene.owners.keys():
        raise PlanError(Reason.NO_SUCH_BUNDLE, f"{', '.join(named)[:200]}: no broker reports such a bundle")
    return [Wish(bundle, destination or None) for bundle in bundles]


def _named(owners: Mapping[str, str], names: Any, name: str) -> list[str]:
    if name in owners:
        return [name]
    pattern = of_glob(name if {"*", "?"} & set(name) else f"{name}/*")
    return [str(bundle) for bundle in names.filter(matching(pattern, names)).to_pylist()]


LARGEST, HOT = "LARGEST", "HOT"
"""Placeholders for the bundle with the most topics or the most traffic in a namespace (BundleType in pulsar-admin)."""


def target_of_split(scene: Scene, named: str) -> BundleSample:
    """Return the bundle that a person wants to split.

    Args:
        named: the bundle's name, or `tenant/namespace/LARGEST` or `tenant/namespace/HOT`.

    Raises:
        PlanError: `no_such_bundle`, or the reason why the bundle must not be changed.
    """
    namespace, _, which = named.rpartition("/")
    held = [name for name in scene.owners if namespace_of(name) == namespace] if which in (LARGEST, HOT) else [named]
    samples = [scene.sample.bundles.find(scene.owners[name], name) for name in held if name in scene.owners]
    if not samples:
        raise PlanError(Reason.NO_SUCH_BUNDLE, f"{named[:200]}: no broker reports such a bundle")
    chosen = max(samples, key=lambda bundle: _size(bundle, which))
    reason = scene.stays(chosen)
    if reason not in (None, Reason.RECENTLY_UNLOADED, Reason.DESTINATION_KEPT):  # a split needs no grace period
        raise PlanError(reason, f"{chosen.bundle} stays: {reason.meaning}")
    return chosen


def _size(bundle: BundleSample, which: str) -> tuple[float, str]:
    return (bundle.topics if which == LARGEST else bundle.present_msg_throughput, bundle.bundle)


def split(scene: Scene, request: HandRequest, candidates: Candidates) -> dict[str, Any]:
    """Return the row of the splits table for the bundle that a person wants to split.

    Args:
        candidates: the bundle's topics and its namespace's bounds.

    Raises:
        PlanError: the reason why the bundle must not be changed, or cannot be cut as requested
            (`decide.splits.planner.where_to_cut`).
    """
    bundle = target_of_split(scene, request.bundles[0])
    algorithm = request.algorithm or SplitAlgorithm.RANGE
    candidate = next((c for c in candidates.bundles if c.bundle == bundle.bundle), None)
    if candidate is None:
        raise PlanError(Reason.TOPICS_UNKNOWN, f"{bundle.bundle}: its topics were not read")
    single, given = scene.snapshot.extensible, len(request.positions)
    if single and given > 1:
        raise PlanError(
            Reason.CONTRADICTION, f"{given} positions: the extensible load manager cuts a bundle in two, so give one"
        )
    cut = where_to_cut(candidate, algorithm, scene.settings, specified=request.positions, single=single)
    if isinstance(cut, Reason):
        raise PlanError(cut, f"{bundle.bundle} cannot be split by {algorithm}: {cut.meaning}")
    return {
        "cluster": scene.snapshot.request.cluster,
        "broker": bundle.broker,
        "bundle": bundle.bundle,
        "rank": 0,
        "algorithm": algorithm,
        "positions": list(cut.positions),
        "shares": list(cut.shares),
        "unload": request.unload,
        "taken": True,
        "reason": Reason.TO_BE_SPLIT,
        "explanation": f"{bundle.bundle} is split permanently {in_parts(cut.positions, cut.shares)}",
    }


def drain(scene: Scene, brokers: Collection[str]) -> list[Wish]:
    """Return every bundle on the brokers to drain; raise an error if one of these brokers cannot be drained.

    Raises:
        PlanError: `unknown_destination`, `last_broker`, or the reason why the broker is left out.
    """
    for broker in brokers:
        if scene.left_out.get(broker) is not Reason.DRAINING:
            check_broker(scene, broker)
    if not scene.sample.taking_part:
        raise PlanError(Reason.LAST_BROKER, f"no broker would be left to take the bundles of {', '.join(brokers)}")
    return [wish for broker in brokers for wish in of_broker(scene, broker)]


def of_broker(scene: Scene, broker: str) -> list[Wish]:
    """Return every bundle that a drained broker reports."""
    return [Wish(bundle.bundle, source=broker) for bundle in scene.sample.bundles.of(broker)]


def fill(scene: Scene, brokers: Sequence[str]) -> list[Wish]:
    """Fill brokers up to the mean score with bundles from the hottest brokers, largest bundles first.

    The coldest broker is filled first. A bundle is suitable if, after its move, the filled broker's score is at most
    the mean and at most the source's score.

    Raises:
        PlanError: `unknown_destination`, or the reason why one of the brokers is left out.
    """
    for broker in brokers:
        check_broker(scene, broker)
    scores, policies = dict(scene.scores), scene.policy_filter()
    mean = fmean(figure for name, figure in scores.items() if name not in scene.left_out)
    pools = {
        source: sorted(
            (
                (share_of_score(scene, bundle), bundle.bundle)
                for bundle in scene.sample.bundles.of(source)
                if scene.stays(bundle) is None
            ),
            reverse=True,
        )
        for source in scores.keys() - set(brokers)
    }
    forbids = cache(policies.forbids)
    run, onto = scene.settings.max_bundles_per_run, _onto(scene)
    wishes: list[Wish] = []
    taken = Counter[str]()
    while run is None or len(wishes) < run:
        fitting = (
            (source, share, bundle, broker)
            for broker in sorted(brokers, key=lambda name: (scores[name], name))
            if taken[broker] < onto
            for source in sorted(pools, key=lambda name: (-scores[name], name))
            for share, bundle in pools[source]
            if 0 < share <= min(mean - scores[broker], (scores[source] - scores[broker]) / 2)
            and forbids(bundle, source, broker) is None
        )
        largest = next(fitting, None)
        if largest is None:
            break
        source, share, bundle, broker = largest
        pools[source].remove((share, bundle))
        scores[source] -= share
        scores[broker] += share
        taken[broker] += 1
        wishes.append(Wish(bundle, broker))
    return wishes


def share_of_score(scene: Scene, bundle: BundleSample) -> float:
    """Return the number of points by which the source's score drops when a bundle is moved.

    This assumes that scores are proportional to traffic.
    """
    whole = max(scene.traffic[bundle.broker], bundle.msg_throughput)
    return scene.scores[bundle.broker] * bundle.msg_throughput / whole if whole > 0 else 0.0


def _onto(scene: Scene) -> float:
    """Return the maximum number of bundles that may move to one broker."""
    caps = (scene.settings.max_bundles_per_broker, scene.settings.max_bundles_onto_broker)
    return min((cap for cap in caps if cap is not None), default=math.inf)


def undo(scene: Scene, outcome: Outcome) -> list[Wish]:
    """Return a `Wish` to undo each of a run's moves, except for bundles that have moved again since then.

    Bundles that the run split are included with a reason, because a split cannot be undone.
    """
    moved = [_back(scene, move) for move in outcome.moves if move.reason.has(Trait.NEW_OWNER)]
    return moved + [Wish(split.bundle, None, Reason.SPLIT_STAYS) for split in outcome.splits if split.ok]


def _back(scene: Scene, move: MoveOutcome) -> Wish:
    owner = scene.owners.get(move.bundle)
    reason = None
    if owner is not None and owner != move.owner:
        reason = Reason.OWNER_CHANGED
    elif move.source not in scene.listed:
        reason = Reason.DESTINATION_GONE
    return Wish(move.bundle, move.source, reason)


def again(scene: Scene, moves: Iterable[Move]) -> list[Wish]:
    """Return a `Wish` for each move of an earlier plan, except for bundles that have moved since then."""
    return [
        Wish(
            move.bundle,
            move.destination,
            None if scene.owners.get(move.bundle) in (None, move.source, move.destination) else Reason.OWNER_CHANGED,
        )
        for move in moves
    ]


def check_broker(scene: Scene, broker: str) -> None:
    """Raise an error if a broker cannot receive bundles.

    Raises:
        PlanError: `unknown_destination` if the cluster does not list the broker; else the reason for its exclusion.
    """
    if broker not in scene.listed:
        raise PlanError(Reason.UNKNOWN_DESTINATION, f"{broker} is not one of the {len(scene.listed)} active brokers")
    if broker in scene.left_out:
        reason = scene.left_out[broker]
        raise PlanError(reason, f"{broker} cannot take bundles: {reason.meaning}")
