"""The returns of a rolling restart as a source: bundles go back to their homes, the brokers that had them before."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.decide.sources.filling import unreported
from pulsar_rebalancer.decide.sources.wanted import RequestedMove, SourceReport, Wanted, candidates_of, giving, placed
from pulsar_rebalancer.decide.spare_capacity import SpareCapacity
from pulsar_rebalancer.names import HashRange, namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.attempts import TRIES
from pulsar_rebalancer.strategies.caps import in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pulsar_rebalancer.run.snapshot import Snapshot
    from pulsar_rebalancer.state.state_documents import Unload
    from pulsar_rebalancer.strategies.sample import CandidateMove


def bring_back(snapshot: Snapshot, home: Mapping[str, str]) -> Wanted | None:
    """Return the moves that bring bundles back to their homes, most traffic first; None if all are there.

    Policies, exclusions and caps apply, and no home may exceed `overloaded_threshold`; a bundle that does not fit
    stays. The grace period applies too, except to a bundle that left only because its home was drained or down, and to
    a bundle that missed its home in fewer than `TRIES` runs. If all bundles stay, the plan has no decisions, only the
    reasons.

    Args:
        home: brokerId of each bundle's home, which is also that of the parts into which Pulsar has split the bundle.
            Bundles that no broker reports are ignored.

    Raises:
        SnapshotError: one of the run's files cannot be read.
    """
    sample = PlanningSample.read(snapshot, (Overrule.GRACE_PERIOD,))
    requested = _requested(sample, homes_in(home, sample.owners))
    hottest_first = sorted(candidates_of(sample, requested), key=lambda move: (-move.traffic, move.bundle))
    if not hottest_first:
        return None
    # While caps apply, each move is a pair of its own: the order of pairs decides which moves are within the caps.
    moves = placed(sample, (move._replace(pair=pair) for pair, move in enumerate(hottest_first)))
    sources = sorted({move.source for move in moves})
    pairs = {source: pair for pair, source in enumerate(sources, -len(sources))}

    def room() -> SpareCapacity:
        of_sources: dict[str, PlanningSample] = dict.fromkeys(sources, sample)
        return SpareCapacity(of_sources, dict.fromkeys(sources, ()), fixed=True, gained=unreported(sample))

    def regrouped(capped: Sequence[CandidateMove]) -> list[CandidateMove]:
        return in_order(move._replace(pair=pairs[move.source], rank=move.pair) for move in capped)

    return Wanted(moves, lambda capped: _report(sample, capped), room=room, regrouped=regrouped)


def _report(sample: PlanningSample, moves: Sequence[CandidateMove]) -> SourceReport:
    if any(move.taken for move in moves):
        return giving(sample, moves, Reason.GIVE_BACK, "gives bundles back to", "Brought back: bundles of {}")
    reasons = Counter(move.reason for move in moves)
    why = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    return SourceReport([], f"Not brought back: {why}")


def homes_in(known: Mapping[str, str], bundles: Iterable[str]) -> dict[str, str]:
    """Return each bundle's entry in `known`, or the entry of the bundle from which it was split.

    Bundles without an entry are left out.
    """

    @cache
    def ranges() -> dict[str, list[tuple[HashRange, str]]]:
        found: dict[str, list[tuple[HashRange, str]]] = {}
        for name, home in sorted(known.items()):
            found.setdefault(namespace_of(name), []).append((HashRange.of(name), home))
        return found

    def homes() -> Iterator[tuple[str, str]]:
        for bundle in bundles:
            if home := known.get(bundle):
                yield bundle, home
                continue
            whole = ranges().get(namespace_of(bundle))
            if whole is None:
                continue
            part = HashRange.of(bundle)
            at = bisect_right(whole, part.lower, key=lambda each: each[0].lower) - 1
            if at >= 0 and whole[at][0].contains(part):
                yield bundle, whole[at][1]

    return dict(homes())


def _requested(sample: PlanningSample, home: Mapping[str, str]) -> Iterator[RequestedMove]:
    snapshot, unloads = sample.snapshot, sample.snapshot.before.moves.unloads
    recent = snapshot.before.moves.recent(snapshot.request.collected_at, sample.settings.grace_period_minutes)
    started = snapshot.started
    for bundle, owner in sample.owners.items():
        broker, unload = home.get(bundle, owner), unloads.get(bundle)
        if broker == owner:
            continue
        if unload and not unload.missed(broker):
            unload = recent.get(bundle)
        reason = None
        if broker not in sample.listed:
            reason = Reason.DESTINATION_GONE
        elif unload:
            start = started[broker]
            left_before = start is not None and start > unload.at
            drained = snapshot.before.roll is not None and unload.source == broker
            reason = None if left_before or drained else _moved_again(unload, broker)
        yield RequestedMove(bundle, broker, reason)


def _moved_again(unload: Unload, home: str) -> Reason | None:
    if not unload.missed(home):
        return Reason.RECENTLY_UNLOADED
    return None if unload.tries < TRIES else Reason.ASTRAY
