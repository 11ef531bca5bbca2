"""Fill new brokers automatically, in runs that move nothing else (`fill_new_brokers`)."""

from __future__ import annotations

import math
from datetime import timedelta
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.decide.by_hand import makers
from pulsar_rebalancer.decide.by_hand.preview import candidates_of, placed
from pulsar_rebalancer.decide.by_hand.scene import Scene
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.sample import Decision
from pulsar_rebalancer.texts import one_line

if TYPE_CHECKING:
    from pulsar_rebalancer.run.snapshot import Snapshot
    from pulsar_rebalancer.state.state_documents import Unload
    from pulsar_rebalancer.strategies.sample import CandidateMove

NEW = timedelta(minutes=30)
"""A broker counts as new until its process reaches this age."""

_REPORTED = timedelta(minutes=4)
"""Time after which a broker's report includes the bundles that moved to it."""

_BELOW = 5.0
"""A broker counts as filled if its score is at most this number of points below the mean."""


_NAMES = 500
"""Maximum length of a broker list in a sentence, in characters."""


class Filling(NamedTuple):
    """The moves that fill new brokers, or bring bundles back.

    Attributes:
        decisions: one for each broker that gives up bundles; empty if all bundles stay.
        moves: candidates after the caps, with negative pair numbers.
        traffic: current traffic of the brokers that give up bundles, in bytes/s.
    """

    decisions: list[Decision]
    moves: list[CandidateMove]
    traffic: dict[str, float]
    sentence: str


def fill_new(snapshot: Snapshot) -> Filling | None:
    """Return the moves that fill new brokers, like the manual action `fill`; None if there is nothing to move.

    Raises:
        SnapshotError: one of the run's files cannot be read.
    """
    # A broker that has just received bundles is left out: its report may lack them.
    getting = {end for unload in moved_lately(snapshot).values() for end in (unload.destination, unload.owner)}
    brokers = sorted(new_brokers(snapshot) - getting)
    if not brokers:
        return None
    scene = Scene.read(snapshot)
    healthy = [name for name in brokers if name not in scene.left_out]
    if not healthy:
        return None
    mean = fmean(figure for name, figure in scene.scores.items() if name not in scene.left_out)
    empty = [name for name in healthy if scene.scores[name] < mean - _BELOW]
    wishes = makers.fill(scene, empty) if empty else []
    wanted = placed(scene, candidates_of(scene, wishes, -len(wishes)))
    moves = caps.apply(wanted, scene.settings, scene.policies.groups, scene.sample.brokers)
    return of_moves(scene, moves, Reason.FILL, "gives bundles to new brokers:", "New: {}, filled")


def of_moves(
    scene: Scene, moves: list[CandidateMove], reason: Reason, explanation: str, sentence: str
) -> Filling | None:
    """Return the plan of these moves, with a decision for each broker that gives up bundles; None if nothing moves.

    Args:
        moves: candidates after the caps, with one negative pair number for each source.
        explanation: text that says what each source does; the names of the receiving brokers are appended.
        sentence: text that says what the plan does; `{}` is replaced with the names of the receiving brokers.
    """
    taken = [move for move in moves if move.taken]
    if not taken:
        return None
    named = one_line(", ".join(sorted({str(move.destination) for move in taken})), _NAMES)
    pairs = {move.source: move.pair for move in moves}
    decisions = [
        Decision(
            source=source,
            reason=reason,
            pair=pair,
            source_score=scene.scores.get(source),
            fired=True,
            explanation=f"{source} {explanation} {named}",
            measure=Measure.THROUGHPUT,
            target=math.fsum(move.traffic for move in moves if move.source == source),
        )
        for source, pair in pairs.items()
    ]
    return Filling(decisions, moves, {source: scene.traffic[source] for source in pairs}, sentence.format(named))


def unreported(scene: Scene) -> dict[str, float]:
    """Return, for each owner, the score points of recently moved bundles that its report might not include yet.

    This assumes that scores are proportional to traffic, with the same factor for all brokers.
    """
    points: dict[str, float] = {}
    traffic = math.fsum(scene.traffic[name] for name in scene.scores)
    for bundle in moved_lately(scene.snapshot) if traffic else ():
        if (owner := scene.owners.get(bundle)) in scene.scores:
            share = scene.sample.bundles.find(owner, bundle).msg_throughput / traffic
            points[owner] = points.get(owner, 0.0) + share * math.fsum(scene.scores.values())
    return points


def moved_lately(snapshot: Snapshot) -> dict[str, Unload]:
    """Return recent unloads, by bundle: the new owner's report might not include the bundle yet."""
    now = snapshot.request.collected_at
    return {
        bundle: unload for bundle, unload in snapshot.before.moves.unloads.items() if abs(now - unload.at) < _REPORTED
    }


def arrived_lately(snapshot: Snapshot, broker: str) -> set[str]:
    """Return the bundles that a broker received recently, which its report might not include yet."""
    return {bundle for bundle, unload in moved_lately(snapshot).items() if unload.owner == broker}


def new_brokers(snapshot: Snapshot) -> frozenset[str]:
    """Return the brokers whose processes started recently."""
    now = snapshot.request.collected_at
    return frozenset(name for name, at in snapshot.started.items() if at and abs(now - at) <= NEW)
