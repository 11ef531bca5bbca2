"""Drained brokers in a run. Their bundles move before the bundles that the strategy chose."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.decide.by_hand.filling import arrived_lately
from pulsar_rebalancer.decide.by_hand.makers import of_broker
from pulsar_rebalancer.decide.by_hand.preview import candidates_of, placed
from pulsar_rebalancer.decide.by_hand.scene import Scene
from pulsar_rebalancer.decide.by_hand.spare_capacity import SpareCapacity
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.manual_request import DrainProgress
from pulsar_rebalancer.run.sums import one_by_one
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.sample import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pulsar_rebalancer.decide.by_hand.makers import Wish
    from pulsar_rebalancer.run.snapshot import Snapshot
    from pulsar_rebalancer.state.manual_plans import Drain
    from pulsar_rebalancer.strategies.sample import CandidateMove

NAMED = 20
"""Maximum number of immovable bundles to name, per broker."""

NEVER = (Reason.SYSTEM_NAMESPACE, Reason.NO_TOPIC)


class Served(NamedTuple):
    """A run's decision, including its drains.

    Attributes:
        decisions: one for each drained broker that has bundles, followed by the strategy's decisions.
        moves: all candidates after the caps; the drained brokers' candidates come first.
        traffic: current traffic of the drained brokers whose bundles move, in bytes/s, by broker.
        progress: progress of each drain, by drained broker.
    """

    decisions: list[Decision]
    moves: list[CandidateMove]
    traffic: dict[str, float]
    progress: dict[str, DrainProgress]


class Leaving(NamedTuple):
    """The moves that take bundles off drained brokers.

    Attributes:
        moves: candidates with their destinations. Their pair numbers are negative, so that the caps accept them first.
        scenes: by drained broker, the input for its moves, without the rules that a person lifted for this broker.
        overruled: rules that a person lifted, by drained broker.
    """

    moves: list[CandidateMove]
    scenes: dict[str, Scene]
    overruled: Mapping[str, Collection[Overrule]]

    @property
    def scene(self) -> Scene:
        """Return the scene of an arbitrary drained broker, for properties that are the same in all scenes."""
        return next(iter(self.scenes.values()))

    def room(self, *, fixed: bool = False) -> SpareCapacity:
        """Return a check that refuses moves, including the strategy's, if they would overload a broker."""
        return SpareCapacity(self.scenes, self.overruled, fixed=fixed)


def leaving(
    snapshot: Snapshot,
    overruled: Mapping[str, Collection[Overrule]],
    wishes: Callable[[Scene, str], list[Wish]],
) -> Leaving:
    """Return the moves that take bundles off drained brokers.

    Args:
        overruled: rules that a person lifted, by drained broker. At least one broker is required.
        wishes: function that returns the bundles to move from a drained broker.

    Raises:
        SnapshotError: one of the run's files cannot be read.
    """
    groups: dict[frozenset[Overrule], list[str]] = {}
    for broker in sorted(overruled):
        groups.setdefault(frozenset(overruled[broker]) - {Overrule.CAPS}, []).append(broker)
    left = Leaving([], {}, overruled)
    for rules, brokers in groups.items():
        scene = Scene.read(snapshot, rules)
        if snapshot.before.roll is not None:
            scene = scene.of_roll()
        wanted = [wish for broker in brokers for wish in wishes(scene, broker)]
        left.moves.extend(placed(scene, candidates_of(scene, wanted, len(left.scenes) - len(overruled))))
        left.scenes.update(dict.fromkeys(brokers, scene))
    return left


class DrainedBrokers:
    """The drained brokers in a run.

    Their bundles move first. The strategy moves no bundles from or to them.

    Args:
        snapshot: the snapshot of a run with drained brokers.

    Raises:
        SnapshotError: one of the run's files cannot be read.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._drains = snapshot.before.drains.brokers
        overruled = {broker: drain.overrule for broker, drain in self._drains.items()}
        self._leaving = leaving(snapshot, overruled, of_broker)

    def arriving(self) -> dict[str, Counter[Measure]]:
        """Return the traffic that moves to each broker because of drains, in msg/s and bytes/s."""
        traffic: dict[str, Counter[Measure]] = {}
        for move in self._capped([]):
            if move.taken and move.destination is not None:
                brought = {measure: getattr(move, measure) for measure in Measure}
                traffic.setdefault(move.destination, Counter()).update(brought)
        return traffic

    def serve(self, decisions: Sequence[Decision], moves: Iterable[CandidateMove]) -> Served:
        """Return the run's decision: the drained brokers' bundles first, then the strategy's moves.

        Args:
            decisions: the strategy's decisions.
            moves: the strategy's accepted moves. The caps are applied to them again, after the drains' moves.
        """
        capped, drains, scenes = self._capped(moves), self._drains, self._leaving.scenes
        of_drain = [move for move in capped if move.pair < 0]
        pairs = {move.source: move.pair for move in of_drain}
        of_drains = [_decision(scenes[broker], broker, pairs[broker], drains[broker]) for broker in sorted(pairs)]
        givers = {move.source for move in of_drain if move.taken}
        return Served(
            [*of_drains, *decisions],
            capped,
            {broker: scenes[broker].traffic[broker] for broker in givers},
            {broker: _progress(self._snapshot, broker, drains[broker], of_drain) for broker in sorted(drains)},
        )

    def _capped(self, moves: Iterable[CandidateMove]) -> list[CandidateMove]:
        # Only one bundle of each anti-affinity group moves at a time, whatever rules are lifted.
        groups, brokers = self._snapshot.policies.groups, self._leaving.scene.sample.brokers
        wanted, settings = [*self._leaving.moves, *moves], self._snapshot.settings
        return caps.apply(wanted, settings, groups, brokers, self._leaving.room())


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


def _progress(snapshot: Snapshot, broker: str, drain: Drain, moves: Iterable[CandidateMove]) -> DrainProgress:
    mine = [move for move in moves if move.source == broker]
    unreported = arrived_lately(snapshot, broker) - {move.bundle for move in mine}
    stay = Counter(move.reason for move in mine if not move.taken)
    if unreported:
        stay[Reason.RECENTLY_UNLOADED] += len(unreported)
    return DrainProgress(
        since=drain.at,
        by=drain.by,
        reason=drain.reason,
        overrule=drain.overrule,
        bundles=None if broker in snapshot.silent else len(mine) + len(unreported),
        moving=sum(move.taken for move in mine),
        stay=dict(sorted(stay.items())),
        named=tuple(sorted(move.bundle for move in mine if move.reason in NEVER)[:NAMED]),
    )
