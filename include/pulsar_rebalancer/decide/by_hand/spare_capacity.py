"""How much the brokers that take the bundles of a drain may still take."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.decide.by_hand import makers
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.scoring import scores_after

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from pulsar_rebalancer.decide.by_hand.scene import Scene
    from pulsar_rebalancer.strategies.sample import CandidateMove


class SpareCapacity:
    """No broker is brought above `overloaded_threshold` by a drain, or by the moves of the strategy next to a drain.

    A bundle of a drain for which placement's broker has no room goes to the coldest that policies and the topic ceiling
    leave and that has room, or stays.

    Args:
        scene: the snapshot.
        scenes: by drained broker, without what is overruled for it; what leaves these brokers comes first.
        overruled: what does not hold for the bundles of a drained broker.
        fixed: whether a bundle goes where it is to go or nowhere, as one whose move a person approved.
    """

    def __init__(
        self,
        scene: Scene,
        scenes: Mapping[str, Scene],
        overruled: Mapping[str, Container[Overrule]],
        *,
        fixed: bool = False,
    ) -> None:
        self._scene = scene
        self._scenes = scenes
        self._overruled = overruled
        self._fixed = fixed
        self._policies = {id(each): each.policy_filter() for each in scenes.values()}
        self._drained: list[CandidateMove] = []
        self._taken: dict[str, float] = {}
        self._after: dict[str, float] | None = None

    def fitted(self, unit: list[CandidateMove]) -> list[CandidateMove]:
        """Return a unit as it may go."""
        return self._leaving(unit[0]) if unit[0].source in self._scenes else self._beside(unit)

    def take(self, unit: list[CandidateMove]) -> None:
        """Note that a unit goes."""
        if unit[0].source not in self._scenes:
            if self._after is not None:
                for name, points in self._change(unit).items():
                    self._after[name] = self._after.get(name, 0.0) + points
            return
        (move,) = unit
        if move.destination is None:
            return
        scene = self._scenes[move.source]
        bundle = scene.sample.bundles.find(move.source, move.bundle)
        self._taken[move.destination] = self._predicted(move.destination, makers.share_of_score(scene, bundle), scene)
        self._policies[id(scene)].placed(bundle, move.destination)
        self._drained.append(move)

    def _predicted(self, broker: str, share: float, scene: Scene) -> float:
        return self._taken.get(broker, scene.scores.get(broker, 0.0)) + share

    def _leaving(self, move: CandidateMove) -> list[CandidateMove]:
        scene, limit = self._scenes[move.source], self._scene.settings.overloaded_threshold
        share = makers.share_of_score(scene, scene.sample.bundles.find(move.source, move.bundle))
        free = share <= 0 or Overrule.OVERLOAD in self._overruled[move.source] or move.destination is None
        if free or self._predicted(str(move.destination), share, scene) <= limit:
            return [move]
        others = {
            name: self._predicted(name, share, scene)
            for name in self._policies[id(scene)].candidates(move.bundle)
            if name != move.source and not self._fixed
        }
        to = min((name for name in others if others[name] <= limit), key=lambda name: others[name], default=None)
        return [move._replace(reason=Reason.WOULD_OVERLOAD) if to is None else move._replace(destination=to)]

    def _beside(self, unit: list[CandidateMove]) -> list[CandidateMove]:
        if self._after is None:
            self._after = scores_after(self._scene.scores, self._drained, self._scene.traffic)
        after, change = self._after, self._change(unit)
        grown = (name for name, points in change.items() if points > 0 and name in self._taken)
        if any(after.get(name, 0.0) + change[name] > self._scene.settings.overloaded_threshold for name in grown):
            return [move._replace(reason=Reason.WOULD_OVERLOAD, wave=None) for move in unit]
        return unit

    def _change(self, unit: Iterable[CandidateMove]) -> Counter[str]:
        """Return by how many points the score of each broker grows."""
        change: Counter[str] = Counter()
        for move in unit:
            if move.destination is not None:
                bundle = self._scene.sample.bundles.find(move.source, move.bundle)
                share = makers.share_of_score(self._scene, bundle)
                change.update({move.destination: share, move.source: -share})
        return change
