"""One word and one sentence: how a cluster is, and why the rebalancer acts or does not."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.control.in_force import closings
from pulsar_rebalancer.overview.brokers import short_names
from pulsar_rebalancer.overview.model import State
from pulsar_rebalancer.reasons import Effect, Reason, Trait
from pulsar_rebalancer.run.explanation import explain
from pulsar_rebalancer.run.plan import LONGEST_RUN
from pulsar_rebalancer.strategies.wording import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.overview.model import AirflowFacts, PairView
    from pulsar_rebalancer.overview.runs import Run
    from pulsar_rebalancer.run.plan import Summary


class Said(NamedTuple):
    """What the strip says."""

    state: State
    sentence: str


def now_of(
    entry: ClusterEntry,
    facts: AirflowFacts,
    begun: Run | None,
    ended: Run | None,
    pairs: Sequence[PairView],
    now: datetime,
) -> Said:
    """Return how a cluster is now.

    Args:
        entry: of the clusters file as it is now.
        facts: what Airflow knows.
        begun: the newest run.
        ended: the newest run that has ended.
        pairs: of that run, the largest gap first.
        now: the present.
    """
    if entry.error:
        return Said(State.BROKEN, entry.error)
    if begun is not None and begun.under_way and now - begun.request.collected_at < LONGEST_RUN:
        return _moving(begun)
    if entry.settings.mode is Mode.OFF:
        return Said(State.OFF, f"{Reason.MODE_OFF.meaning} Nothing is asked of the brokers.")
    known = ended or begun
    if known is None:
        hint = " The DAG is paused in Airflow: unpause it." if facts.paused else " The first run takes a minute."
        return Said(State.NO_DATA, f"No run has looked at the cluster yet.{hint}")
    if facts.paused:
        return Said(State.PAUSED, "The DAG is paused in Airflow: no run starts, and nothing is looked at.")
    newest = begun or known
    age = now - newest.request.collected_at
    if age > _longest_age(entry):
        return Said(State.STALE, f"No run has looked at the cluster for {in_words(age.total_seconds())}.")
    said = of_run(known, pairs, entry.settings.mode)
    held = [each for each in closings(entry.settings, facts.control, now) if each.reason is not Reason.OBSERVE]
    if held and said.state in (State.BALANCED, State.WAITING, State.MOVED):
        state = State.PAUSED if held[0].reason is Reason.PAUSED else State.CLOSED
        return Said(state, f"Nothing is moved. {said.sentence}")
    return said


def _longest_age(entry: ClusterEntry) -> timedelta:
    settings = entry.settings
    # A run may take minutes, whatever its interval is.
    return timedelta(seconds=max(settings.alert_after_intervals * settings.interval_seconds, 180))


def of_run(run: Run, pairs: Sequence[PairView], mode: Mode) -> Said:
    """Return what a run came to.

    Args:
        run: the run.
        pairs: that it looked at, the largest gap first.
        mode: of the cluster.
    """
    verdict = run.outcome.verdict if run.outcome else None
    if verdict is Reason.BLOCKED or (verdict is None and run.blocked):
        return Said(State.BLOCKED, _blocked(run))
    if run.under_way:
        return _moving(run)
    if run.summary is None or verdict is Reason.UNFINISHED:
        return Said(State.FAILED, f"{(verdict or Reason.UNFINISHED).meaning} {Reason.UNFINISHED.action}".strip())
    if run.summary.bundles_taken or run.summary.bundles_split:
        return _planned(run, run.summary, verdict, mode)
    return _nothing_moves(run, run.summary, pairs)


def _blocked(run: Run) -> str:
    if run.validation is None:
        return Reason.BLOCKED.meaning
    first = next(told for told in explain(run.validation).reasons if told.effect is Effect.BLOCK)
    worst = f" {first.worst[0]}." if first.worst else ""
    return f"Validation failed: {first.meaning}{worst}"


def _moving(run: Run) -> Said:
    done = sum(not outcome.reason.has(Trait.NOT_BEGUN) for outcome in run.waves.values())
    planned = run.summary.bundles_taken if run.summary else len(run.waves)
    return Said(State.MOVING, f"Moving {number_of(planned, 'bundle')}: {done} done so far.")


def _planned(run: Run, summary: Summary, verdict: Reason | None, mode: Mode) -> Said:
    planned = number_of(summary.bundles_taken, "bundle")
    if summary.bundles_split:
        planned = f"{planned}, and split {summary.bundles_split}" if summary.bundles_taken else "nothing, and split one"
    if verdict is None:
        return Said(State.MOVING, f"A plan to move {planned} is at the gate.")
    if verdict is Reason.OPEN:
        return _moved(run)
    if verdict is Reason.AWAITING_APPROVAL:
        return Said(State.WOULD_MOVE, f"A plan to move {planned} waits for a person's approval.")
    if verdict is Reason.OBSERVE:
        return Said(State.WOULD_MOVE, f"Would move {planned}, but mode {mode} moves nothing.")
    state = State.PAUSED if verdict is Reason.PAUSED else State.CLOSED
    return Said(state, f"A plan to move {planned} was not carried out: {_why_closed(run, verdict)}")


def _moved(run: Run) -> Said:
    refused = [split for split in run.outcome.splits if not split.ok] if run.outcome else []
    if refused:
        return Said(State.CLOSED, f"A bundle was not split as planned: {refused[0].reason.meaning}")
    moves = list(run.moves.values())
    if not moves:
        return Said(State.MOVED, "Split as planned, and read back.")
    failed = [move for move in moves if not move.ok]
    if not failed:
        return Said(State.MOVED, f"Moved {number_of(len(moves), 'bundle')}, each verified on its new broker.")
    first = failed[0].reason
    state = State.CLOSED if any(not move.reason.has(Trait.SETTLED) for move in failed) else State.MOVED
    return Said(state, f"Moved {len(moves) - len(failed)} of {number_of(len(moves), 'bundle')}: {first.meaning}")


def _why_closed(run: Run, verdict: Reason) -> str:
    holds = run.validation.reasons(Effect.HOLD) if run.validation and verdict is Reason.ON_HOLD else {}
    ordered = [f"{run.request.in_force}."] if run.request.in_force and verdict is Reason.PAUSED else []
    return " ".join([verdict.meaning, *(hold.meaning for hold in holds), *ordered])


def _nothing_moves(run: Run, summary: Summary, pairs: Sequence[PairView]) -> Said:
    soonest = min((pair for pair in pairs if pair.seconds_to_fire is not None), key=_until_it_fires, default=None)
    if soonest is not None:
        labels = short_names({name for pair in pairs for name in (pair.source, pair.destination)})
        return Said(State.WAITING, waiting(soonest, labels))
    reasons = summary.reasons.keys()
    if Reason.having(Trait.WAITING) & reasons:
        return Said(State.WAITING, f"{_capital(summary.sentence)}.")
    stuck = sorted(Reason.having(Trait.STUCK) & reasons)
    if stuck:
        return Said(State.STUCK, stuck[0].meaning)
    if summary.brokers < 2:
        return Said(State.BALANCED, "One broker takes part: there is nobody to share its load with.")
    spread = f"{summary.brokers} brokers are within {summary.score_range:.1f} points"
    return Said(State.BALANCED, f"{spread}: nothing to do.")


def _until_it_fires(pair: PairView) -> tuple[float, int]:
    return (math.inf if pair.seconds_to_fire is None else pair.seconds_to_fire, pair.number)


def waiting(pair: PairView, labels: Mapping[str, str]) -> str:
    """Return how far a pair that counts is from firing, by the hits that it will have first."""
    counting = pair.hits.values() if pair.band == "high" else [pair.hits["low"]]
    hits = min(counting, key=lambda each: each.need - each.have)
    soon = in_words(pair.seconds_to_fire or 0)
    apart = f"{labels[pair.source]} and {labels[pair.destination]} are {pair.gap:.0f} apart"
    return f"{apart}, hit {hits.have} of {hits.need}, fires in about {soon}."


def in_words(seconds: float) -> str:
    """Return a time span as people say it."""
    if seconds < 90:
        return number_of(max(1, round(seconds)), "second")
    if seconds < 5400:
        return number_of(round(seconds / 60), "minute")
    if seconds < 36 * 3600:
        return number_of(round(seconds / 3600), "hour")
    return number_of(round(seconds / 86400), "day")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
