"""The returns of a rolling restart as a source: bundles go back to the broker that had them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.decide.planning import Proposal, RequestedMove, SourceReport, assign_destinations, to_candidates
from pulsar_rebalancer.decide.planning_sample import PlanningSample, SpareCapacity
from pulsar_rebalancer.decide.sources.filling import unreported_gains
from pulsar_rebalancer.names import HashRange, namespace_of
from pulsar_rebalancer.reasons import Reason, reasons_text
from pulsar_rebalancer.run.outcome import MAX_RETURN_TRIES
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.strategies.caps import sort_by_pair_rank
from pulsar_rebalancer.strategies.sample import CandidateMove


def return_proposal(snapshot: Snapshot, bundles: Collection[str], home_broker: str, since_run: str) -> Proposal | None:
    """Return the moves that bring bundles back to their home, most traffic first; None if all are there.

    Policies, exclusions and caps apply, and the home must not exceed `overloaded_threshold`. So does the
    grace period, except to a bundle that left only because its home was drained or down, or that missed its
    home in fewer than `MAX_RETURN_TRIES` runs. Parts into which Pulsar has split a bundle return as well; bundles that
    no broker reports are ignored. If all bundles stay, the plan has only the reasons.
    """
    sample = PlanningSample.read(snapshot, (Overrule.GRACE_PERIOD,))
    requested = _requested_moves(sample, parent_by_bundle(sample.owners, bundles), home_broker, since_run)
    hottest_first = sorted(to_candidates(sample, requested), key=lambda move: (-move.traffic, move.bundle))
    if not hottest_first:
        return None
    # While caps apply, each move is a pair of its own: the order of pairs decides which moves are within the caps.
    moves = assign_destinations(sample, (move._replace(pair=pair) for pair, move in enumerate(hottest_first)))
    sources = sorted({move.source for move in moves})
    pairs = {source: pair for pair, source in enumerate(sources, -len(sources))}

    def new_capacity() -> SpareCapacity:
        return SpareCapacity(dict.fromkeys(sources, sample), planned_only=True, gained_points=unreported_gains(sample))

    def renumbered(capped_moves: Sequence[CandidateMove]) -> list[CandidateMove]:
        return sort_by_pair_rank(move._replace(pair=pairs[move.source], rank=move.pair) for move in capped_moves)

    return Proposal(moves, lambda moves: _give_back_report(sample, moves), new_check=new_capacity, renumber=renumbered)


def _give_back_report(sample: PlanningSample, moves: Sequence[CandidateMove]) -> SourceReport:
    if any(move.is_taken for move in moves):
        return SourceReport.of_givers(sample, moves, Reason.GIVE_BACK, "gives bundles back to", "Bundles return to {}")
    reasons = Counter(move.reason for move in moves)
    return SourceReport([], f"No bundle returns: {reasons_text(reasons)}")


def parent_by_bundle(bundles: Iterable[str], known_bundles: Collection[str]) -> dict[str, str]:
    names, ranges = frozenset(known_bundles), dict[str, list[tuple[HashRange, str]]]()
    for name in sorted(names):
        ranges.setdefault(namespace_of(name), []).append((HashRange.of_bundle(name), name))
    wholes = {}
    for bundle in bundles:
        if bundle in names:
            wholes[bundle] = bundle
        elif found := ranges.get(namespace_of(bundle)):
            part = HashRange.of_bundle(bundle)
            whole, name = found[max(bisect_right(found, part.lower, key=lambda entry: entry[0].lower) - 1, 0)]
            if whole.contains_range(part):
                wholes[bundle] = name
    return wholes


def _requested_moves(sample: PlanningSample, bundles: Iterable[str], home: str, since_run: str) -> list[RequestedMove]:
    now, moves = sample.snapshot.request.collected_at, sample.snapshot.state.moves
    recent = moves.recent_unloads(now, sample.settings.grace_period_minutes)

    def stay_reason(bundle: str) -> Reason | None:
        unload = moves.unloads.get(bundle)
        if home not in sample.listed_brokers:
            return Reason.DESTINATION_GONE
        if unload is None or unload.source == home or unload.plan_id <= since_run:
            return None
        if unload.missed(home):
            return Reason.ASTRAY if unload.tries >= MAX_RETURN_TRIES else None
        return Reason.RECENTLY_UNLOADED if bundle in recent else None

    return [RequestedMove(bundle, home, stay_reason(bundle)) for bundle in bundles if sample.owners[bundle] != home]
