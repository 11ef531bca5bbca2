"""Drained brokers as a source: their bundles move before those that the strategy chose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.decide.planning import Proposal, RequestedMove, SourceReport, assign_destinations, to_candidates
from pulsar_rebalancer.decide.planning_sample import PlanningSample, SpareCapacity
from pulsar_rebalancer.decide.rolling import why_roll_waits
from pulsar_rebalancer.decide.sources.filling import recent_arrivals
from pulsar_rebalancer.orders.manual_plans import Drain
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import DrainProgress
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import Measure, java_sum
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision
from pulsar_rebalancer.texts import number_of

MAX_NAMED = 20
"""Maximum number of immovable bundles to name for each broker."""

NEVER_MOVE_REASONS = (Reason.SYSTEM_NAMESPACE, Reason.NO_TOPIC)


def drain_proposal_and_samples(
    snapshot: Snapshot,
    overruled: Mapping[str, Collection[Overrule]],
    moves_of_broker: Callable[[PlanningSample, str], list[RequestedMove]],
    *,
    planned_only: bool = False,
) -> tuple[Proposal, dict[str, PlanningSample]]:
    """Return the moves that take bundles off drained brokers, and the sample for each of these brokers.

    The pair numbers are negative, so that the caps accept these moves first. The check for room refuses
    moves, including the strategy's, that would overload a broker. `overruled` has the rules that a person
    lifted for each drained broker, at least one. If `planned_only`, a bundle may go only to its planned destination.
    """
    groups: dict[frozenset[Overrule], list[str]] = {}
    for broker in sorted(overruled):
        groups.setdefault(frozenset(overruled[broker]) - {Overrule.CAPS}, []).append(broker)
    moves: list[CandidateMove] = []
    samples: dict[str, PlanningSample] = {}
    for rules, brokers in groups.items():
        sample = PlanningSample.read(snapshot, rules)
        if snapshot.state.roll is not None:
            sample = sample.without_version_preference()
        wanted = [move for broker in brokers for move in moves_of_broker(sample, broker)]
        moves.extend(assign_destinations(sample, to_candidates(sample, wanted, len(samples) - len(overruled))))
        samples.update(dict.fromkeys(brokers, sample))

    def new_capacity() -> SpareCapacity:
        return SpareCapacity(samples, overruled, planned_only=planned_only)

    return Proposal(moves, lambda _: SourceReport([]), new_check=new_capacity), samples


def drain_proposal(snapshot: Snapshot) -> Proposal:
    """Return the moves that empty the drained brokers, of which there is at least one."""
    drained = snapshot.state.drains.brokers
    overruled = {broker: drain.overrule for broker, drain in drained.items()}
    wanted, samples = drain_proposal_and_samples(snapshot, overruled, moves_off_broker)
    roll = snapshot.state.roll
    if roll is not None and why_roll_waits(roll.listed, snapshot.start_times, snapshot.quarantined_brokers, ()):
        held = roll.roll_drains()
        paused = [move.put_off(Reason.ROLLING) if move.source in held else move for move in wanted.moves]
        wanted = replace(wanted, moves=paused)

    def report(moves: Sequence[CandidateMove]) -> SourceReport:
        pairs = {move.source: move.pair for move in moves}
        givers = {move.source for move in moves if move.is_taken}
        progress = {broker: _drain_progress(snapshot, broker, drained[broker], moves) for broker in sorted(drained)}
        leave = number_of(sum(drain.moving for drain in progress.values()), "bundle")
        return SourceReport(
            [_drain_decision(samples[broker], broker, pairs[broker], drained[broker]) for broker in sorted(pairs)],
            f"Drained brokers: {', '.join(progress)} ({leave} to move)",
            {broker: samples[broker].broker_traffic[broker] for broker in givers},
            drain_progress=progress,
        )

    return replace(wanted, make_report=report)


def moves_off_broker(sample: PlanningSample, broker: str) -> list[RequestedMove]:
    return [RequestedMove(bundle.bundle, source=broker) for bundle in sample.bundles.of_broker(broker)]


def _drain_decision(sample: PlanningSample, broker: str, pair: int, drain: Drain) -> Decision:
    return Decision(
        source=broker,
        reason=Reason.DRAIN,
        pair=pair,
        source_score=sample.broker_scores.get(broker),
        fired=True,
        explanation=f"{broker} is drained by {drain.by or 'unknown'}: {drain.reason}",
        measure=Measure.THROUGHPUT,
        target=java_sum(bundle.msg_throughput for bundle in sample.bundles.of_broker(broker)),
    )


def _drain_progress(snapshot: Snapshot, broker: str, drain: Drain, moves: Iterable[CandidateMove]) -> DrainProgress:
    mine = [move for move in moves if move.source == broker]
    hidden = recent_arrivals(snapshot, broker) - {move.bundle for move in mine}
    stay = Counter(move.reason for move in mine if not move.is_taken)
    if hidden:
        stay[Reason.RECENTLY_UNLOADED] += len(hidden)
    return DrainProgress(
        since=drain.at,
        by=drain.by,
        reason=drain.reason,
        overrule=drain.overrule,
        bundles=len(mine) + len(hidden) if broker in snapshot.start_times.keys() - snapshot.silent_brokers else None,
        moving=sum(move.is_taken for move in mine),
        stay=dict(sorted(stay.items())),
        named=tuple(sorted(move.bundle for move in mine if move.reason in NEVER_MOVE_REASONS)[:MAX_NAMED]),
    )
