"""Spare capacity on the brokers that receive bundles from drained brokers."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from pulsar_rebalancer.decide.planning_sample import PlanningSample
    from pulsar_rebalancer.strategies.sample import CandidateMove


class SpareCapacity:
    """Refuses moves that would raise a broker's score above `overloaded_threshold`, in runs that drain brokers.

    The strategy's moves are checked too. If placement's choice lacks capacity for a drained broker's bundle, the bundle
    moves to the coldest broker that has enough and that policies and the topic ceiling allow. If there is none, the
    bundle is not moved.

    Args:
        samples: by drained broker, the input for its moves, without the rules that a person lifted for this broker.
        overruled: rules that a person lifted, by drained broker.
        fixed: True if a bundle may go only to its planned destination.
        gained: score points that brokers have gained but not yet reported.
    """

    def __init__(
        self,
        samples: Mapping[str, PlanningSample],
        overruled: Mapping[str, Container[Overrule]] = MappingProxyType({}),
        *,
        fixed: bool = False,
        gained: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._sample = next(iter(samples.values()))
        self._samples = samples
        self._overruled = overruled
        self._fixed = fixed
        self._policies = {id(sample): sample.policy_filter() for sample in samples.values()}
        self._filled: set[str] = set()
        self._gained = dict(gained)

    def fitted(self, unit: list[CandidateMove]) -> list[CandidateMove]:
        """Return a unit's moves, each with a destination that has enough capacity or with the reason it is not made.

        A unit consists of moves that must be made together.
        """
        if unit[0].source in self._samples:
            return [self._leaving(unit[0])]
        gains = self._gains(unit)
        if any(gain > 0 and name in self._filled and not self._fits(name, gain) for name, gain in gains.items()):
            return [move._replace(reason=Reason.WOULD_OVERLOAD, wave=None) for move in unit]
        return unit

    def take(self, unit: list[CandidateMove]) -> None:
        """Update the predicted scores with the effect of a unit of accepted moves."""
        for name, gain in self._gains(unit).items():
            self._gained[name] = self._gained.get(name, 0.0) + gain
        first = unit[0]
        sample = self._samples.get(first.source)
        if sample is not None and first.destination is not None:
            self._filled.add(first.destination)
            self._policies[id(sample)].placed(sample.bundles.find(first.source, first.bundle), first.destination)

    def _leaving(self, move: CandidateMove) -> CandidateMove:
        sample, gain = self._samples[move.source], self._gains([move])[str(move.destination)]
        free = gain <= 0 or Overrule.OVERLOAD in self._overruled.get(move.source, ())
        if free or self._fits(str(move.destination), gain, sample):
            return move
        others = () if self._fixed else self._policies[id(sample)].candidates(move.bundle)
        having_room = [name for name in others if self._fits(name, gain, sample)]
        if not having_room:
            return move._replace(reason=Reason.WOULD_OVERLOAD)
        return move._replace(destination=min(having_room, key=lambda name: self._score(name, sample)))

    def _fits(self, broker: str, gain: float, sample: PlanningSample | None = None) -> bool:
        return self._score(broker, sample or self._sample) + gain <= self._sample.settings.overloaded_threshold

    def _score(self, broker: str, sample: PlanningSample) -> float:
        """Return a broker's predicted score after the moves accepted so far, in percent."""
        return sample.scores[broker] + self._gained.get(broker, 0.0)

    def _gains(self, unit: list[CandidateMove]) -> dict[str, float]:
        """Return the points by which a unit of moves raises each destination's score."""
        gains: dict[str, float] = {}
        for move in unit:
            sample = self._samples.get(move.source, self._sample)
            share = sample.share_of_score(sample.bundles.find(move.source, move.bundle))
            if move.destination is not None:
                gains[move.destination] = gains.get(move.destination, 0.0) + share
                gains[move.source] = gains.get(move.source, 0.0) - share
        return gains
