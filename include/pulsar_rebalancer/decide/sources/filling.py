"""Brokers to fill as a source: new ones, in runs that move nothing else (`fill_new_brokers`), or by a request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from statistics import fmean

from pulsar_rebalancer.decide.planning import Proposal, RequestedMove, SourceReport, assign_destinations, to_candidates
from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.state import Unload

_NEW_BROKER_AGE = timedelta(minutes=30)
"""A broker counts as new until its process reaches this age."""

_REPORT_LAG = timedelta(minutes=4)
"""Time after which a broker's report includes the bundles that moved to it."""

_FILLED_MARGIN = 5.0
"""A broker counts as filled if its score is at most this number of points below the mean."""


def new_broker_proposal(snapshot: Snapshot) -> Proposal | None:
    """Return the moves that fill new brokers, like the manual action `fill`; None if there are none."""
    now = snapshot.request.collected_at
    new = {name for name, at in snapshot.start_times.items() if at and abs(now - at) <= _NEW_BROKER_AGE}
    # A broker that has just received bundles is left out: its report may lack them.
    getting = {end for unload in recent_unloads(snapshot).values() for end in (unload.destination, unload.owner)}
    brokers = sorted(new - getting)
    if not brokers:
        return None
    sample = PlanningSample.read(snapshot)
    healthy = [name for name in brokers if name not in sample.left_out_reasons]
    if not healthy:
        return None
    mean = fmean(value for name, value in sample.broker_scores.items() if name not in sample.left_out_reasons)
    empty = [name for name in healthy if sample.broker_scores[name] < mean - _FILLED_MARGIN]
    requested = fill_moves(sample, empty) if empty else []
    moves = assign_destinations(sample, to_candidates(sample, requested, -len(requested)))
    texts = "gives bundles to new brokers:", "New brokers get bundles: {}"
    return Proposal(moves, lambda moves: SourceReport.of_givers(sample, moves, Reason.FILL, *texts))


def fill_moves(sample: PlanningSample, brokers: Sequence[str]) -> list[RequestedMove]:
    """Fill brokers up to the mean score, the coldest first, with the hottest brokers' largest bundles.

    After a bundle's move, the filled broker's score is at most the mean and at most the source's. Raises
    PlanError: `unknown_name`, or why one of the brokers is left out.
    """
    for broker in brokers:
        check_receiver(sample, broker)
    scores, policies = dict(sample.broker_scores), sample.policy_filter()
    mean = fmean(value for name, value in scores.items() if name not in sample.left_out_reasons)
    pools = {
        source: sorted(
            (
                (sample.bundle_score(bundle), bundle.bundle)
                for bundle in sample.bundles.of_broker(source)
                if sample.stay_reason(bundle) is None
            ),
            reverse=True,
        )
        for source in scores.keys() - set(brokers)
    }
    forbids = cache(policies.refusal_reason)
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


def unreported_gains(sample: PlanningSample) -> dict[str, float]:
    """Return, by owner, the score points of recently moved bundles that its report might not include yet.

    Scores are assumed to be proportional to traffic, with the same factor for all brokers.
    """
    points: dict[str, float] = {}
    traffic = math.fsum(sample.broker_traffic[name] for name in sample.broker_scores)
    for bundle in recent_unloads(sample.snapshot) if traffic else ():
        if (owner := sample.owners.get(bundle)) in sample.broker_scores:
            share = sample.bundles.find(owner, bundle).msg_throughput / traffic
            points[owner] = points.get(owner, 0.0) + share * math.fsum(sample.broker_scores.values())
    return points


def recent_unloads(snapshot: Snapshot) -> dict[str, Unload]:
    """Return recent unloads, by bundle, that the new owner's report might not include yet."""
    now = snapshot.request.collected_at
    return {name: unload for name, unload in snapshot.state.moves.unloads.items() if abs(now - unload.at) < _REPORT_LAG}


def recent_arrivals(snapshot: Snapshot, broker: str) -> set[str]:
    """Return the bundles that a broker received recently, which its report might not include yet.

    If an unload has no known end, its bundle may be on either broker, until another one reports it.
    """
    recent = recent_unloads(snapshot)
    open_ended = {
        bundle: {broker, unload.source}
        for bundle, unload in recent.items()
        if not unload.owner and broker in (unload.source, unload.destination) and not unload.never_began
    }
    owners = snapshot.owners(open_ended)
    maybe = {bundle for bundle, ends in open_ended.items() if owners.get(bundle, ends) <= ends}
    return maybe | {bundle for bundle, unload in recent.items() if unload.owner == broker}


def check_receiver(sample: PlanningSample, broker: str) -> None:
    """Raise a PlanError if a broker cannot receive bundles: `unknown_name`, or why it is excluded."""
    if broker not in sample.listed_brokers:
        raise PlanError(Reason.UNKNOWN_NAME, f"{broker} is not one of the {len(sample.listed_brokers)} active brokers")
    if broker in sample.left_out_reasons:
        reason = sample.left_out_reasons[broker]
        raise PlanError(reason, f"{broker} cannot take bundles: {reason.meaning}")
