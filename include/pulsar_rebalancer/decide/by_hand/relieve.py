"""Relieve hot brokers: choose bundles to move so that no broker's score exceeds the limit that a person set."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.config.settings import CAPS
from pulsar_rebalancer.decide.by_hand.fewest_moves import FittingMove, HotBroker, fewest_moves
from pulsar_rebalancer.decide.by_hand.makers import Wish, share_of_score
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.sample import CandidateMove

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_rebalancer.decide.by_hand.scene import Scene

_ROUNDING = 1e-9
"""Points by which scores must stay below the bound, so that rounding does not push them above it."""


class Relief(NamedTuple):
    """The bundles to move, and a note for the plan."""

    wishes: list[Wish]
    note: str


def relieve(scene: Scene, above: float, *, overload: bool) -> Relief:
    """Choose the fewest bundles to move so that no broker's score exceeds a given score.

    A broker that cannot be brought down to the score keeps its bundles; its largest bundle is returned with the reason
    `out_of_reach`. Drained brokers are ignored, because they are being emptied.

    Args:
        above: the score, in percent.
        overload: True if brokers may exceed `overloaded_threshold`.

    Raises:
        PlanError: `none_above`; `out_of_reach` if none of the brokers can be brought down to the score.
    """
    scores = {name: score for name, score in scene.scores.items() if scene.left_out.get(name) is not Reason.DRAINING}
    hot = [_hot(scene, name, score - above) for name, score in scores.items() if score > above]
    if not hot:
        hottest = max(scores, key=lambda name: (scores[name], name), default="")
        highest = f"the hottest, {hottest}, is at {scores[hottest]:.1f}" if hottest else "none takes part in the run"
        raise PlanError(Reason.NONE_ABOVE, f"no broker is above {above:g} percent: {highest}")
    limit = above if overload else min(above, scene.settings.overloaded_threshold)
    rooms = {name: limit - score - _ROUNDING for name, score in scores.items() if score <= above}
    rooms = {name: room for name, room in rooms.items() if room > 0 and name not in scene.left_out}
    forbids = cache(scene.policy_filter().forbids)
    found = fewest_moves(hot, rooms, lambda *move: forbids(*move) is None, _within_caps(scene))
    moving = {move.source for move in found.moves}
    stuck = [each for each in hot if each.broker not in moving]
    told = [f"{each.broker} stays {_why(each, above, rooms)}" for each in stuck[:10]]
    if not moving:
        raise PlanError(Reason.OUT_OF_REACH, "; ".join(told))
    told += [] if found.proven else ["fewer moves might do: not all plans were searched"]
    wishes = [Wish(move.bundle, move.destination, source=move.source) for move in found.moves]
    return Relief(wishes + [wish for each in stuck for wish in _kept(scene, each.broker)], "; ".join(told))


def _hot(scene: Scene, broker: str, excess: float) -> HotBroker:
    may_move = (bundle for bundle in scene.sample.bundles.of(broker) if scene.stays(bundle) is None)
    shares = ((share_of_score(scene, bundle), bundle.bundle) for bundle in may_move)
    return HotBroker(broker, excess, sorted((share for share in shares if share[0] > 0), reverse=True))


def _within_caps(scene: Scene) -> Callable[[Sequence[FittingMove]], bool]:
    if not scene.policies.groups and all(getattr(scene.settings, cap) is None for cap in CAPS):
        return lambda _: True

    @cache
    def candidate(move: FittingMove) -> CandidateMove:
        bundle = scene.sample.bundles.find(move.source, move.bundle)
        return CandidateMove.of(
            bundle, pair=0, rank=0, measure=Measure.THROUGHPUT, reason=Reason.TAKEN, destination=move.destination
        )

    def fits(moves: Sequence[FittingMove]) -> bool:
        # Waves depend on the other moves of a hash range, not on the caps.
        applied = caps.apply(map(candidate, moves), scene.settings, scene.policies.groups, brokers=())
        return all(move.taken for move in applied)

    return fits


def _why(each: HotBroker, above: float, rooms: dict[str, float]) -> str:
    movable, room = sum(points for points, _ in each.bundles), sum(rooms.values())
    return (
        f"{each.excess:.1f} points above {above:g}: bundles of {movable:.1f} points may leave it, "
        f"the others have room for {room:.1f}, and policies, caps and the sizes of bundles must allow it"
    )


def _kept(scene: Scene, broker: str) -> list[Wish]:
    bundles = sorted(scene.sample.bundles.of(broker), key=lambda bundle: (-bundle.msg_throughput, bundle.bundle))
    return [Wish(bundle.bundle, reason=Reason.OUT_OF_REACH, source=broker) for bundle in bundles[:1]]
