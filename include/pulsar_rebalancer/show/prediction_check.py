"""Compare the scores that plans predicted with the scores measured ten minutes after the moves.

A broker is compared only if nothing else is known to have changed its load: it had no later moves or splits, did not
restart, and had a usable report in every sample. A change that all brokers share, such as the morning rise in traffic,
is not due to the moves, so the median over all brokers is subtracted.
"""

from __future__ import annotations

from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.comparison import ComparedBroker, ComparedRun
from pulsar_rebalancer.run.plan import Summary, taken_candidates
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.show.scores import scores_of
from pulsar_rebalancer.state.counting import COUNTING
from pulsar_rebalancer.state.predictions import KEPT
from pulsar_rebalancer.strategies.sample import CandidateMove
from pulsar_rebalancer.strategies.scoring import scores_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulsar_rebalancer.run.outcome import Outcome
    from pulsar_rebalancer.state.state_documents import MovesState
    from pulsar_rebalancer.storage.layout import ClusterStorage

WAIT = timedelta(minutes=10)
"""Time between the moves and the sample whose scores are compared with the predicted scores."""

_LATE_INTERVALS = 2
"""A sample is too late after twice `WAIT`, or after `WAIT` plus this number of intervals, whichever is longer."""


def predicted_scores(
    run: Snapshot, scores: Mapping[str, float], owners: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Return the scores of a plan's sources and destinations after its moves, in percent.

    As in the plan's own prediction, a broker's score is assumed to be proportional to the broker's traffic.

    Args:
        scores: scores in the run's sample, by broker.
        owners: new owner of each moved bundle; None to assume that every planned move reaches its destination.

    Returns:
        Predicted scores by broker; empty if a source has no score, for example because it is drained.

    Raises:
        SnapshotError: one of the run's files cannot be read.
    """
    moves = [CandidateMove.of_row(row) for row in taken_candidates(run.folder)]
    if owners is not None:
        moves = [move._replace(destination=owners[move.bundle]) for move in moves if move.bundle in owners]
    measures = {move.source: move.measure for move in moves}
    if measures.keys() - scores.keys():
        return {}
    samples = (sample for sample in run.brokers_without({}) if sample.broker in measures)
    traffic = {sample.broker: sample.traffic(measures[sample.broker]) for sample in samples}
    ends = {end for move in moves for end in (move.source, move.destination)}
    return {name: figure for name, figure in scores_after(scores, moves, traffic).items() if name in ends}


def check_predictions(history: MovesState, outcome: Outcome, run: Snapshot, storage: ClusterStorage) -> MovesState:
    """Compare due predictions with a run's sample, and schedule a comparison for the run's own moves.

    Each comparison is stored in the file `comparison.json` of the run that moved the bundles. Its errors take effect
    once the returned history is stored. Until then, a retry repeats the comparison with the same result.

    Args:
        history: the unload history after the run.
        run: the run. If its validation or its plan is missing, nothing is compared.
    """
    summary = Summary.known(run.folder)
    try:
        scores = scores_of(run).by_broker
        own = _awaited(outcome, run, scores)
    except (SnapshotError, StateError, KeyError, ValueError):
        return history
    awaited, errors = [], list(history.predictions.errors)
    for plan_id in history.predictions.awaited:
        folder = storage.run(plan_id)
        comparison = ComparedRun.known(folder) if folder and plan_id != run.folder.name else None
        if folder is None or comparison is None:
            continue
        counts = summary is not None and summary.counting in COUNTING
        changed = _compared(_undisturbed(comparison, history, run, scores), Snapshot(folder), run, scores, counts)
        if changed != comparison:
            changed.write(folder)
        if changed.awaited:
            awaited.append(plan_id)
        else:
            errors += [broker.error for broker in changed.brokers.values() if broker.error is not None]
    if own is not None and own.awaited:
        own.write(run.folder)
        awaited.append(run.folder.name)
    predictions = history.predictions.model_copy(update={"awaited": tuple(awaited), "errors": tuple(errors[-KEPT:])})
    return history.model_copy(update={"predictions": predictions})


def _awaited(outcome: Outcome, run: Snapshot, scores: Mapping[str, float]) -> ComparedRun | None:
    """Return the pending comparison for a run's own moves; None if there is nothing to compare.

    If the run already has a comparison, return that one.
    """
    known = ComparedRun.known(run.folder)
    owners = {move.bundle: move.owner or move.destination for move in outcome.moves if move.reason.has(Trait.NEW_OWNER)}
    if known is not None or not owners or outcome.split:
        return known
    # Where these bundles are is unknown, or was decided by others.
    unclear = [move for move in outcome.moves if move.attempts and move.bundle not in owners]
    left_out = {end for move in unclear for end in (move.source, move.destination, move.owner)}
    predicted = predicted_scores(run, scores, owners)
    brokers = {
        name: ComparedBroker(before=scores[name], predicted=figure)
        for name, figure in sorted(predicted.items())
        if name in scores and name not in left_out
    }
    return ComparedRun(plan_id=run.folder.name, moved_at=outcome.ended_at, brokers=brokers) if brokers else None


def _undisturbed(
    comparison: ComparedRun, history: MovesState, run: Snapshot, scores: Mapping[str, float]
) -> ComparedRun:
    """Return the comparison without brokers whose load has changed for other reasons, or whose state is unknown."""
    since = comparison.moved_at
    later = [each for each in history.unloads.values() if each.plan_id != comparison.plan_id and each.at >= since]
    moved = {end for unload in later for end in (unload.source, unload.destination, unload.owner)}
    if any(split.at >= since for split in history.splits.values()):
        moved |= comparison.awaited  # the parts of a bundle may be on any broker
    comparison = _without(comparison, moved, Reason.MOVED_AGAIN)
    comparison = _without(comparison, comparison.awaited - scores.keys(), Reason.BROKER_QUARANTINED)
    interval = timedelta(seconds=run.settings.interval_seconds)
    late = not timedelta(0) <= run.request.collected_at - since <= WAIT + max(WAIT, _LATE_INTERVALS * interval)
    return _without(comparison, comparison.awaited if late else (), Reason.COMPARED_TOO_LATE)


def _compared(
    comparison: ComparedRun, before: Snapshot, now: Snapshot, scores: Mapping[str, float], counts: bool
) -> ComparedRun:
    """Return the comparison, with the measured scores added if it is due and the sample counts."""
    at = now.request.collected_at
    if not counts or not comparison.awaited or at - comparison.moved_at < WAIT:
        return comparison
    try:
        expected, started = scores_of(before).by_broker, before.started
    except (SnapshotError, StateError):
        return _without(comparison, comparison.awaited, Reason.FILE_MISSING)
    restarted = {name for name, time in now.started.items() if time and time != (started.get(name) or time)}
    comparison = _without(comparison, restarted, Reason.BROKER_RESTARTED)
    others = expected.keys() & scores.keys() - comparison.brokers.keys()
    apart = {name: scores[name] - expected[name] for name in others}
    apart |= {name: scores[name] - comparison.brokers[name].predicted for name in comparison.awaited}
    shared = median(apart.values() or [0.0])
    measured = {
        name: comparison.brokers[name].model_copy(update={"measured": scores[name], "error": apart[name] - shared})
        for name in comparison.awaited
    }
    return comparison.model_copy(update={"compared_at": at, "brokers": comparison.brokers | measured})


def _without(comparison: ComparedRun, brokers: Iterable[str], reason: Reason) -> ComparedRun:
    dropped = {
        name: comparison.brokers[name].model_copy(update={"dropped": reason})
        for name in comparison.awaited.intersection(brokers)
    }
    return comparison.model_copy(update={"brokers": comparison.brokers | dropped})
