"""A cluster's state in one word, and a sentence that says why bundles are or are not moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.orders.in_force import WORDING_BY_REASON
from pulsar_rebalancer.reasons import Effect, Reason, Trait
from pulsar_rebalancer.run.findings import explain_validation
from pulsar_rebalancer.run.plan import RUN_TIMEOUT, Summary
from pulsar_rebalancer.show import words
from pulsar_rebalancer.show.page.brokers import pair_views, short_name_by_broker
from pulsar_rebalancer.show.page.facts import AirflowContext, FailedRun, hold_text
from pulsar_rebalancer.show.page.page_model import PairView, State
from pulsar_rebalancer.show.page.recent_runs import Run
from pulsar_rebalancer.strategies.shedders.registry import safe_profile_of
from pulsar_rebalancer.texts import capitalized, number_of

FIRES, WOULD_FIRE = "moves start", "moves would start"
"""What a pair does once it has enough hits; `WOULD_FIRE` is used while moves are forbidden."""

_CALM_STATES = (State.BALANCED, State.WAITING, State.MOVED, State.STUCK)
"""States that suggest all is well. The page does not show them while moves are forbidden or a plan awaits approval."""

_VERDICT_TEXT = {reason: words.past for reason, words in WORDING_BY_REASON.items() if words.past}
"""Texts for verdicts whose causes may have ended since the run."""


class Headline(NamedTuple):
    """A cluster's state, and the sentence for the strip at the top of the page.

    `firing_text` is `FIRES` or `WOULD_FIRE`; empty if it is unknown when a pair will fire.
    """

    state: State
    sentence: str
    firing_text: str = ""


def current_headline(
    entry: ClusterEntry, facts: AirflowContext, begun_run: Run | None, ended_run: Run | None, now: datetime
) -> Headline:
    """Return a cluster's current state.

    Args:
        entry: the cluster's entry in the current clusters file.
        begun_run: the latest run that has started, whether or not it has ended; None if there is none.
        ended_run: the latest run that has ended; None if there is none.
    """
    if entry.error:
        return Headline(State.BROKEN, entry.error)
    if begun_run is not None and begun_run.is_under_way and now - begun_run.request.collected_at < RUN_TIMEOUT:
        return _moving_headline(begun_run)
    if entry.settings.mode is Mode.OFF:
        return Headline(State.OFF, f"{Reason.MODE_OFF.meaning} No broker is contacted.")
    known = ended_run or begun_run
    if known is None:
        return _headline_without_run(facts)
    latest = begun_run or known
    silent = _stale_headline(entry, facts, known, (now - latest.request.collected_at).total_seconds())
    if silent is not None:
        return silent
    age = (now - known.request.collected_at).total_seconds()
    if not facts.scheduled:
        said = headline_of_run(known, "", age)
        state: State = State.CLOSED if said.state in (*_CALM_STATES, State.PAUSED) else said.state
        return Headline(state, f"Airflow's scheduler is not running, so no run starts. {said.sentence}")
    held = facts.run_holds(entry.settings, now)
    firing = FIRES if entry.settings.mode.may_move and not held else WOULD_FIRE
    until = facts.answer_deadline(entry.settings, now)
    said = headline_after_answer(known, facts, is_pending=until is not None) or headline_of_run(known, firing, age)
    ordered = known.outcome is not None and known.outcome.verdict in _VERDICT_TEXT
    if held and (ordered or said.state in _CALM_STATES):
        state = State.PAUSED if held[0].reason is Reason.PAUSED else State.CLOSED
        return Headline(state, f"{hold_text(held[0])} {said.sentence}", firing)
    if ordered:
        return Headline(State.WOULD_MOVE, said.sentence, firing)
    if until is not None and said.state in _CALM_STATES:
        waits = f"The {facts.question.at:%H:%M} plan waits for a person's approval until {until:%H:%M %Z}."
        return Headline(State.AWAITING, f"{waits} {said.sentence}", firing)
    return said._replace(firing_text=firing)


def headline_after_answer(run: Run, facts: AirflowContext, *, is_pending: bool) -> Headline | None:
    """Return the state if a person was asked to approve the ended run's plan and no longer is; else None.

    `is_pending` is True if a plan is awaiting approval.
    """
    asked = run.outcome is not None and run.outcome.verdict is Reason.AWAITING_APPROVAL
    if not asked or run.summary is None:
        return None
    answer, plan = facts.answer_about(run), f"A plan to {run.summary.actions_text}"
    if answer is None:
        return None if is_pending and facts.question_concerns(run) else Headline(State.CLOSED, f"{plan} got no answer.")
    if not answer.carried_out_by:
        return Headline(State.CLOSED, f"{plan} was rejected {answer.by_text}.")
    approval, refused = f"{plan} was approved {answer.by_text}", facts.why_not_handed_over.get(answer.question.plan_id)
    if refused is None:
        return Headline(State.WOULD_MOVE, f"{approval}; no bundle has moved yet.")
    return Headline(State.CLOSED, f"{approval}, but was not carried out: {_VERDICT_TEXT.get(refused, refused.meaning)}")


def _headline_without_run(facts: AirflowContext) -> Headline:
    if facts.failed is not None:
        return Headline(State.FAILED, _failure_text(facts.failed))
    hint = "The first run takes a minute."
    if facts.paused:
        hint = "The DAG is paused in Airflow: unpause it."
    elif not facts.scheduled:
        hint = "Airflow's scheduler is not running, so no run starts."
    return Headline(State.NO_DATA, f"No run yet. {hint}")


def _stale_headline(entry: ClusterEntry, facts: AirflowContext, latest_run: Run, age_seconds: float) -> Headline | None:
    """Return the state if no runs are scheduled or the latest run failed; None otherwise.

    Args:
        entry: the cluster's entry in the current clusters file.
        latest_run: the latest run that has ended or, if there is none, the latest run that has started.
        age_seconds: age of the latest data in seconds.
    """
    if facts.paused:
        return Headline(State.PAUSED, "The DAG is paused in Airflow, so no run starts.")
    failure = "" if facts.failed is None or _explains_failure(latest_run, facts.failed) else _failure_text(facts.failed)
    if age_seconds > _seconds_until_stale(entry):
        cause = "" if facts.scheduled else "Airflow's scheduler is not running."
        why = " ".join(filter(None, [cause, failure]))
        return Headline(State.STALE, f"No new data for {words.duration_text(age_seconds)}. {why}".strip())
    return Headline(State.FAILED, failure) if failure else None


def _explains_failure(run: Run, failed_run: FailedRun) -> bool:
    return run.request.airflow_run_id == failed_run.run_id and (run.is_blocked or not _was_interrupted(run))


def _failure_text(failed_run: FailedRun) -> str:
    reason = Reason.get(failed_run.reason)
    where = f"The latest run failed in {failed_run.task}" if failed_run.task else "The latest run timed out"
    if reason is None:
        return f"{where}: see its log."
    return words.refusal_text(where, reason, failed_run.message)


def _seconds_until_stale(entry: ClusterEntry) -> float:
    settings = entry.settings
    # A run may take minutes even at a short interval.
    return max(settings.alert_after_intervals * settings.interval_seconds, 180.0)


def headline_of_run(run: Run, fire_text: str, age_seconds: float) -> Headline:
    """Return a cluster's state according to its latest run.

    Args:
        fire_text: as in `Headline.firing_text`.
        age_seconds: seconds since the run's sample.
    """
    verdict, mode = run.outcome.verdict if run.outcome else None, run.request.resolved.settings.mode
    if verdict is Reason.BLOCKED or (verdict is None and run.is_blocked):
        return Headline(State.BLOCKED, _blocked_text(run))
    young = age_seconds < RUN_TIMEOUT.total_seconds()
    if run.is_under_way and young:
        return _moving_headline(run)
    if run.outcome is None and run.summary is None and young:
        step = "validated" if run.validation else "collected"
        return Headline(State.LOOKING, f"A run is in progress: the data is {step}, but there is no plan yet.")
    if run.summary is None or _was_interrupted(run):
        return Headline(State.FAILED, f"{(verdict or Reason.UNFINISHED).meaning} {Reason.UNFINISHED.action}".strip())
    if run.outcome is None and not (young or run.request.dry_run):
        return Headline(State.FAILED, f"The run wrote no outcome. {Reason.UNFINISHED.action}")
    if run.summary.bundles_taken or run.summary.bundles_split:
        return _plan_headline(run, run.summary, verdict, mode)
    if run.request.dry_run:
        return Headline(State.WOULD_MOVE, f"{words.PLAN_READY} It moves no bundle.")
    said = _idle_headline(run.summary, pair_views(run), fire_text, age_seconds)
    if said.state is State.WAITING and not mode.may_move:
        return said._replace(sentence=f"{said.sentence} {words.not_moved_text(mode)}")
    return said


def _was_interrupted(run: Run) -> bool:
    return run.summary is None or (run.outcome is not None and run.outcome.verdict is Reason.UNFINISHED)


def _blocked_text(run: Run) -> str:
    if run.validation is None:
        return Reason.BLOCKED.meaning
    first = next(group for group in explain_validation(run.validation).reasons if group.effect is Effect.BLOCK)
    worst = f" {first.worst[0]}." if first.worst else ""
    return f"Validation failed: {first.meaning}{worst}"


def _moving_headline(run: Run) -> Headline:
    said = []
    if run.summary is not None and run.summary.bundles_split:
        split = sum(not outcome.reason.has(Trait.NOT_BEGUN) for outcome in run.ended_splits.values())
        said.append(f"Splitting {number_of(run.summary.bundles_split, 'bundle')}: {split} done so far.")
    planned = run.summary.bundles_taken if run.summary else len(run.wave_outcomes)
    if planned:
        begun = [outcome for outcome in run.wave_outcomes.values() if not outcome.reason.has(Trait.NOT_BEGUN)]
        failed = sum(not outcome.ok for outcome in begun)
        wrong = f", {failed} not as planned" if failed else ""
        done = "all done, verifying" if len(begun) == planned else f"{len(begun)} done so far"
        said.append(f"Moving {number_of(planned, 'bundle')}: {done}{wrong}.")
    return Headline(State.MOVING, " ".join(said))


def _plan_headline(run: Run, summary: Summary, verdict: Reason | None, mode: Mode) -> Headline:
    planned = summary.actions_text
    if run.request.dry_run:
        return Headline(State.WOULD_MOVE, f"{words.PLAN_READY} It would {planned}.")
    if verdict is None:
        return Headline(State.MOVING, f"About to {planned}.")
    if verdict is Reason.OPEN:
        return _moved_headline(run)
    if verdict is Reason.AWAITING_APPROVAL:
        return Headline(State.AWAITING, f"A plan to {planned} needs a person's approval.")
    if verdict is Reason.OBSERVE:
        return Headline(State.WOULD_MOVE, f"A plan would {planned}. {words.not_moved_text(mode)}")
    state = State.PAUSED if verdict is Reason.PAUSED else State.CLOSED
    holds = run.validation.reason_counts(Effect.HOLD) if run.validation and verdict is Reason.ON_HOLD else {}
    why = [_VERDICT_TEXT.get(verdict, verdict.meaning), *(hold.meaning for hold in holds)]
    if verdict is Reason.PLAN_TOO_OLD and run.outcome:
        took = (run.outcome.ended_at - run.request.collected_at).total_seconds()
        limit = summary.resolved.settings.max_plan_age_seconds
        why.append(f"The limit is {limit:g} s, and the run ended {took:.0f} s after its sample.")
    return Headline(state, f"A plan to {planned} was not carried out: {' '.join(why)}")


def _moved_headline(run: Run) -> Headline:
    refused = [split for split in run.split_outcomes.values() if not split.ok]
    if refused:
        return Headline(State.CLOSED, f"A bundle was not split as planned: {refused[0].reason.meaning}")
    cut = f"{number_of(len(run.split_outcomes), 'bundle')} permanently split, as planned." if run.split_outcomes else ""
    moves = list(run.move_outcomes.values())
    if not moves:
        return Headline(State.MOVED, cut)
    failed = [move for move in moves if not move.ok]
    state, moved = State.MOVED, f"Moved {number_of(len(moves), 'bundle')}, each verified on its new broker."
    if failed:
        state = State.CLOSED if any(not move.reason.has(Trait.SETTLED) for move in failed) else State.MOVED
        moved = f"Moved {len(moves) - len(failed)} of {number_of(len(moves), 'bundle')}: {failed[0].reason.meaning}"
    return Headline(state, f"{cut} {moved}".strip())


def _idle_headline(summary: Summary, pairs: Sequence[PairView], fire_text: str, age_seconds: float) -> Headline:
    capped = {reason: count for reason, count in summary.bundle_skip_reasons.items() if reason.has(Trait.CAP)}
    if Reason.FIRED in summary.reasons and capped:
        why = max(sorted(capped), key=lambda reason: capped[reason])
        state = State.CLOSED if why is Reason.ROLLING else State.STUCK
        return Headline(state, f"Bundles need to move but stay: {why.meaning}")
    soonest = min((pair for pair in pairs if pair.seconds_to_fire is not None), key=_time_to_fire_key, default=None)
    if soonest is not None:
        labels = short_name_by_broker({name for pair in pairs for name in (pair.source, pair.destination)})
        return Headline(State.WAITING, waiting_pair_text(soonest, labels, fire_text, age_seconds))
    reasons = summary.reasons.keys()
    if Reason.with_trait(Trait.WAITING) & reasons:
        return Headline(State.WAITING, f"{capitalized(summary.sentence)}.")
    stuck = sorted(Reason.with_trait(Trait.STUCK) & reasons)
    if stuck:
        return Headline(State.STUCK, stuck[0].meaning)
    if summary.brokers < 2:
        return Headline(State.BALANCED, "Fewer than two brokers can be compared, so there is nothing to balance.")
    sentence = safe_profile_of(summary.resolved.settings).sentence(summary)
    return Headline(State.BALANCED, f"{capitalized(sentence)}: nothing to do.")


def _time_to_fire_key(pair: PairView) -> tuple[float, int]:
    return (math.inf if pair.seconds_to_fire is None else pair.seconds_to_fire, pair.number)


def waiting_pair_text(pair: PairView, labels: Mapping[str, str], fire_text: str, age_seconds: float) -> str:
    """Return a sentence with a pair's gap, and its hits at the threshold that it is nearest to reaching.

    `age_seconds` is the seconds since the sample.
    """
    counting = pair.hits.values() if pair.band == "high" else [pair.hits["low"]]
    hits = min(counting, key=lambda hit: hit.need - hit.have)
    left = (pair.seconds_to_fire or 0) - age_seconds
    soon = f"in about {words.duration_text(left)}" if left >= 1 else pair.overdue
    starts = f"{fire_text} {soon}" if fire_text else ""
    return words.pair_text(
        (labels[pair.source], labels[pair.destination]), pair.gap or 0.0, (hits.have, hits.need), starts
    )
