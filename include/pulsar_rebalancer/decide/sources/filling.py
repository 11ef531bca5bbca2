"""Sources of moves onto a broker: new brokers are filled, and a restarted one gets its bundles back."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from functools import cache
from statistics import fmean

from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.decide.planning_sample import PlanningSample, SpareCapacity
from pulsar_rebalancer.decide.sources.wanted import RequestedMove, SourceReport, Wanted, candidates_of, giving, placed
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.names import HashRange, namespace_of
from pulsar_rebalancer.reasons import Reason, counted
from pulsar_rebalancer.run.outcome import TRIES
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.state import Unload
from pulsar_rebalancer.strategies.caps import in_order
from pulsar_rebalancer.strategies.sample import CandidateMove

_NEW = timedelta(minutes=30)
"""A broker counts as new until its process reaches this age."""

_REPORTED = timedelta(minutes=4)
"""Time after which a broker's report includes the bundles that moved to it."""

_BELOW = 5.0
"""A broker counts as filled if its score is at most this number of points below the mean."""


def fill_new(snapshot: Snapshot) -> Wanted | None:
    """Return the moves that fill new brokers, like the manual action `fill`; None if there are none."""
    now = snapshot.request.collected_at
    new = {name for name, at in snapshot.started.items() if at and abs(now - at) <= _NEW}
    # A broker that has just received bundles is left out: its report may lack them.
    getting = {end for unload in moved_lately(snapshot).values() for end in (unload.destination, unload.owner)}
    brokers = sorted(new - getting)
    if not brokers:
        return None
    sample = PlanningSample.read(snapshot)
    healthy = [name for name in brokers if name not in sample.left_out]
    if not healthy:
        return None
    mean = fmean(value for name, value in sample.scores.items() if name not in sample.left_out)
    empty = [name for name in healthy if sample.scores[name] < mean - _BELOW]
    requested = fill(sample, empty) if empty else []
    moves = placed(sample, candidates_of(sample, requested, -len(requested)))
    return Wanted(
        moves, lambda moves: giving(sample, moves, Reason.FILL, "gives bundles to new brokers:", "New: {}, filled")
    )


def fill(sample: PlanningSample, brokers: Sequence[str]) -> list[RequestedMove]:
    """Fill brokers up to the mean score, the coldest first, with the hottest brokers' largest bundles.

    After a bundle's move, the filled broker's score is at most the mean and at most the source's. Raises
    PlanError: `unknown_name`, or why one of the brokers is left out.
    """
    for broker in brokers:
        check_broker(sample, broker)
    scores, policies = dict(sample.scores), sample.policy_filter()
    mean = fmean(value for name, value in scores.items() if name not in sample.left_out)
    pools = {
        source: sorted(
            (
                (sample.share_of_score(bundle), bundle.bundle)
                for bundle in sample.bundles.of(source)
                if sample.stays(bundle) is None
            ),
            reverse=True,
        )
        for source in scores.keys() - set(brokers)
    }
    forbids = cache(policies.forbids)
    run, onto = sample.settings.max_bundles_per_run, sample.settings.max_bundles_per_broker or math.inf
    requested: list[RequestedMove] = []
    taken = Counter[str]()
    while run is None or len(requested) < run:
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
        requested.append(RequestedMove(bundle, broker))
    return requested


def unreported(sample: PlanningSample) -> dict[str, float]:
    """Return, by owner, the score points of recently moved bundles that its report might not include yet.

    Scores are assumed to be proportional to traffic, with the same factor for all brokers.
    """
    points: dict[str, float] = {}
    traffic = math.fsum(sample.traffic[name] for name in sample.scores)
    for bundle in moved_lately(sample.snapshot) if traffic else ():
        if (owner := sample.owners.get(bundle)) in sample.scores:
            share = sample.bundles.find(owner, bundle).msg_throughput / traffic
            points[owner] = points.get(owner, 0.0) + share * math.fsum(sample.scores.values())
    return points


def moved_lately(snapshot: Snapshot) -> dict[str, Unload]:
    """Return recent unloads, by bundle, that the new owner's report might not include yet."""
    now = snapshot.request.collected_at
    return {
        bundle: unload for bundle, unload in snapshot.before.moves.unloads.items() if abs(now - unload.at) < _REPORTED
    }


def arrived_lately(snapshot: Snapshot, broker: str) -> set[str]:
    """Return the bundles that a broker received recently, which its report might not include yet.

    If an unload has no known end, its bundle may be on either broker, until another one reports it.
    """
    lately = moved_lately(snapshot)
    open_ended = {
        bundle: {broker, unload.source}
        for bundle, unload in lately.items()
        if not unload.owner and broker in (unload.source, unload.destination) and not unload.untouched
    }
    owners = snapshot.owners(open_ended)
    maybe = {bundle for bundle, ends in open_ended.items() if owners.get(bundle, ends) <= ends}
    return maybe | {bundle for bundle, unload in lately.items() if unload.owner == broker}


def check_broker(sample: PlanningSample, broker: str) -> None:
    """Raise a PlanError if a broker cannot receive bundles: `unknown_name`, or why it is excluded."""
    if broker not in sample.listed:
        raise PlanError(Reason.UNKNOWN_NAME, f"{broker} is not one of the {len(sample.listed)} active brokers")
    if broker in sample.left_out:
        reason = sample.left_out[broker]
        raise PlanError(reason, f"{broker} cannot take bundles: {reason.meaning}")


def bring_back(snapshot: Snapshot, bundles: Collection[str], home: str, since: str) -> Wanted | None:
    """Return the moves that bring bundles back to their home, most traffic first; None if all are there.

    Policies, exclusions and caps apply, and the home must not exceed `overloaded_threshold`. So does the
    grace period, except to a bundle that left only because its home was drained or down, or that missed its
    home in fewer than `TRIES` runs. Parts into which Pulsar has split a bundle return as well; bundles that
    no broker reports are ignored. If all bundles stay, the plan has only the reasons.
    """
    sample = PlanningSample.read(snapshot, (Overrule.GRACE_PERIOD,))
    requested = _requested(sample, wholes_of(sample.owners, bundles), home, since)
    hottest_first = sorted(candidates_of(sample, requested), key=lambda move: (-move.traffic, move.bundle))
    if not hottest_first:
        return None
    # While caps apply, each move is a pair of its own: the order of pairs decides which moves are within the caps.
    moves = placed(sample, (move._replace(pair=pair) for pair, move in enumerate(hottest_first)))
    sources = sorted({move.source for move in moves})
    pairs = {source: pair for pair, source in enumerate(sources, -len(sources))}

    def room() -> SpareCapacity:
        return SpareCapacity(dict.fromkeys(sources, sample), fixed=True, gained=unreported(sample))

    def regrouped(capped: Sequence[CandidateMove]) -> list[CandidateMove]:
        return in_order(move._replace(pair=pairs[move.source], rank=move.pair) for move in capped)

    return Wanted(moves, lambda capped: _report(sample, capped), room=room, regrouped=regrouped)


def _report(sample: PlanningSample, moves: Sequence[CandidateMove]) -> SourceReport:
    if any(move.taken for move in moves):
        return giving(sample, moves, Reason.GIVE_BACK, "gives bundles back to", "Brought back: bundles of {}")
    reasons = Counter(move.reason for move in moves)
    return SourceReport([], f"Not brought back: {counted(reasons)}")


def wholes_of(bundles: Iterable[str], known: Collection[str]) -> dict[str, str]:
    names, ranges = frozenset(known), dict[str, list[tuple[HashRange, str]]]()
    for name in sorted(names):
        ranges.setdefault(namespace_of(name), []).append((HashRange.of(name), name))
    wholes = {}
    for bundle in bundles:
        if bundle in names:
            wholes[bundle] = bundle
        elif found := ranges.get(namespace_of(bundle)):
            part = HashRange.of(bundle)
            whole, name = found[max(bisect_right(found, part.lower, key=lambda each: each[0].lower) - 1, 0)]
            if whole.contains(part):
                wholes[bundle] = name
    return wholes


def _requested(sample: PlanningSample, bundles: Iterable[str], home: str, since: str) -> list[RequestedMove]:
    now, moves = sample.snapshot.request.collected_at, sample.snapshot.before.moves
    recent = moves.recent(now, sample.settings.grace_period_minutes)

    def why_not(bundle: str) -> Reason | None:
        unload = moves.unloads.get(bundle)
        if home not in sample.listed:
            return Reason.DESTINATION_GONE
        if unload is None or unload.source == home or unload.plan_id <= since:
            return None
        if unload.missed(home):
            return Reason.ASTRAY if unload.tries >= TRIES else None
        return Reason.RECENTLY_UNLOADED if bundle in recent else None

    return [RequestedMove(bundle, home, why_not(bundle)) for bundle in bundles if sample.owners[bundle] != home]
