"""What a run does for the brokers that are drained: their bundles leave first, then what the strategy wants moves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.by_hand import makers
from pulsar_rebalancer.by_hand.plan import candidates_of, placed
from pulsar_rebalancer.by_hand.scene import Scene
from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.by_hand import DrainProgress
from pulsar_rebalancer.strategies import caps, waves
from pulsar_rebalancer.strategies.explain import scores_after
from pulsar_rebalancer.strategies.sample import Decision, Measure
from pulsar_rebalancer.sums import one_by_one

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from pulsar_rebalancer.state.by_hand import Drain
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
    scenes: dict[str, Scene] = {}
    leaving: list[CandidateMove] = []
    after: dict[str, float] = {}
    first_pair = -len(drains)  # below zero: caps take the pairs in their order
    for overruled, brokers in groups.items():
        scene = Scene.read(run, state_folder, overruled)
        wishes = [wish for broker in brokers for wish in makers.leaving(scene, broker)]
        leaving += _within_load(scene, placed(scene, candidates_of(scene, wishes, first_pair)), after, overruled)
        first_pair += len(brokers)
        scenes |= dict.fromkeys(brokers, scene)
    # One bundle of each anti-affinity group goes at a time, whatever is overruled.
    groups_of, by_range = Policies.read(run).groups, waves.needed(scene.sample.brokers)
    # Caps take the drains first: what moves of them is the same with the strategy's moves and without.
    first = [move for move in caps.apply(leaving, scene.settings, groups_of, by_range=by_range) if move.taken]
    capped = caps.apply([*leaving, *_beside(scene, moves, first)], scene.settings, groups_of, by_range=by_range)
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


def _within_load(
    scene: Scene, moves: Iterable[CandidateMove], after: dict[str, float], overruled: Container[Overrule]
) -> list[CandidateMove]:
    """Return the moves, none of which brings a broker above `overloaded_threshold`.

    One that would goes to the coldest broker that policies and the topic ceiling leave and that has room, or stays.

    Args:
        scene: the snapshot.
        moves: of some drained brokers.
        after: scores of the brokers that took bundles before these moves; these are added.
        overruled: what does not hold for these moves.
    """
    limit, policies, found = scene.settings.overloaded_threshold, scene.policy_filter(), []
    for move in sorted(moves, key=lambda move: (move.pair, move.rank)):
        if not move.taken or move.destination is None:
            found.append(move)
            continue
        bundle = scene.sample.bundles.find(move.source, move.bundle)
        share = makers.share_of_score(scene, bundle)
        predicted = {name: after.get(name, scene.scores.get(name, 0.0)) + share for name in scene.listed}
        to: str | None = move.destination
        if share > 0 and predicted[move.destination] > limit and Overrule.OVERLOAD not in overruled:
            others = (name for name in policies.candidates(move.bundle) if name != move.source)
            to = min((name for name in others if predicted[name] <= limit), key=lambda n: predicted[n], default=None)
        if to is None:
            found.append(replace(move, reason=Reason.WOULD_OVERLOAD))
            continue
        after[to] = predicted[to]
        policies.placed(bundle, to)
        found.append(replace(move, destination=to))
    return found


def _beside(scene: Scene, moves: Iterable[CandidateMove], drained: Sequence[CandidateMove]) -> list[CandidateMove]:
    """Return the strategy's moves; a broker that takes bundles of a drain goes above `overloaded_threshold` by none."""
    after, taking = scores_after(scene.scores, drained, scene.traffic), {move.destination for move in drained}
    found = []
    for unit in caps.units(moves):
        change: Counter[str] = Counter()
        for move in unit:
            if move.taken and move.destination is not None:
                share = makers.share_of_score(scene, scene.sample.bundles.find(move.source, move.bundle))
                change.update({move.destination: share, move.source: -share})
        grown = (name for name, points in change.items() if points > 0 and name in taking)
        if any(after.get(name, 0.0) + change[name] > scene.settings.overloaded_threshold for name in grown):
            found += [replace(move, reason=Reason.WOULD_OVERLOAD, wave=None) for move in unit]
        else:
            after |= {name: after.get(name, 0.0) + points for name, points in change.items()}
            found += unit
    return found


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
