"""Detect alert conditions from the tasks and files of a run that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from pulsar_rebalancer.config.clusters_file import Origin
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Effect, Reason, Trait
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import number_of

BEFORE_UNLOAD = ("collect", "validate", "decide", "record", "gate")
"""Tasks that must succeed before anything can be moved."""

UNTRIED_PERIOD, UNTRIED_INTERVALS = timedelta(days=1), 100
"""If nothing is unloaded, the condition `unload_failed` ends after a day or 100 intervals, whichever is longer."""

UNATTENDED_PERIOD, UNATTENDED_INTERVALS = timedelta(minutes=10), 5
"""A rolling restart counts as abandoned if its last step is older than both this time and this number of intervals."""


class Condition(StrEnum):
    """An alert condition. Its value is the code in messages and in the stored document, and never changes.

    The texts are its name in a message, what it means for the cluster, and what to do about it.
    """

    label: str
    meaning: str
    action: str

    def __new__(cls, code: str, label: str, meaning: str, action: str) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.label, member.meaning, member.action = label, meaning, action
        return member

    BLOCKED = (
        "validation_failed",
        "validation failed",
        "The collected data is invalid, so runs fail and decide nothing.",
        "Fix the causes under Reasons; the next run validates again.",
    )
    UNSAFE = (
        "acting_unsafe",
        "acting is unsafe",
        "Runs decide but move nothing, because the gate is closed.",
        "Fix the causes under Reasons; the gate then opens by itself.",
    )
    UNLOAD = (
        "unload_failed",
        "unloading failed",
        "Some bundles were not moved, were not split, or are on a broker other than planned.",
        "See the moves and splits in the log of the run's `report` task.",
    )
    UNFINISHED = (
        "run_failed",
        "a run failed",
        "The gate or an earlier task of the run failed, so nothing is moved.",
        "See the log of the failed task.",
    )
    SLOW = (
        "run_too_long",
        "runs take too long",
        "A run took longer than the interval, so the next run starts late or is skipped.",
        "Find the slow task and give it more resources, or raise interval_seconds.",
    )
    ROLL_ASKS = (
        "roll_asks",
        "restart a broker now",
        "A rolling restart has drained a broker and waits for a person to restart it.",
        "Restart the broker; nothing else is needed, because the roll detects the new start time.",
    )
    ROLL_STOPPED = (
        "roll_stopped",
        "a rolling restart stopped",
        "The rolling restart ended early, so some brokers were not restarted.",
        "Do what the reasons recommend, and release the drained broker once it is up.",
    )
    ROLL_ELSEWHERE = (
        "roll_elsewhere",
        "bundles stay elsewhere",
        "The rolling restart has ended, but some bundles are still on other brokers.",
        "The rebalancer keeps the cluster balanced. If the bundles must return, move them with a manual plan.",
    )
    ROLL_LEFT = (
        "roll_left",
        "a rolling restart has stalled",
        "No run of pulsar_roll__<cluster> continues the rolling restart. Until the roll ends, only its moves are made.",
        "Unpause pulsar_roll__<cluster>. If the roll's run is over or deleted, start a run with the roll's id as plan.",
    )
    NO_RUN = (
        "no_run",
        "no run",
        "No run has ended for several intervals, so no bundles are moved.",
        "Check whether the DAG is paused, a run hangs, or the workers are busy with other tasks.",
    )


@dataclass(frozen=True)
class Observation:
    """The result of a check; `detail` contains no secrets, `why_unwatched` says why it is no longer checked."""

    is_present: bool
    reasons: Mapping[Reason, int] = field(default_factory=dict)
    detail: str = ""
    why_unwatched: Reason | None = None


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended. An attribute is None if the run did not get that far or the file is unreadable.

    Tasks are keyed by id; `failures` has reported reason codes, `closed` temporary reasons that keep the
    gate closed for every plan. The roll may be over.
    """

    states: Mapping[str, str]
    failures: Mapping[str, str] = field(default_factory=dict)
    duration_s: float | None = None
    is_manual: bool = False
    closed: Mapping[Reason, str] = field(default_factory=dict)
    roll: Roll = field(default_factory=Roll)
    request: RunRequest | None = None
    validation: Validation | None = None
    summary: Summary | None = None
    outcome: Outcome | None = None

    def with_documents(self, run: StoragePath) -> Self:
        return replace(
            self,
            request=RunRequest.read_or_none(run),
            validation=Validation.read_or_none(run),
            summary=Summary.read_or_none(run),
            outcome=Outcome.read_or_none(run),
        )

    @property
    def has_lowered_mode(self) -> bool:
        """Return whether the run's parameters set a mode that moves nothing; it says nothing about other runs."""
        return not self.acts and self.request is not None and self.request.resolved.origins.get("mode") is Origin.PARAMS

    @property
    def acts(self) -> bool:
        return self.request is not None and self.request.resolved.settings.mode.may_move


def judge_run(
    run: EndedRun, settings: Settings, last_seen: Mapping[Condition, datetime], now: datetime
) -> dict[Condition, Observation]:
    """Return what this run shows about each condition; `last_seen` says when an open one was last present."""
    if settings.mode is Mode.OFF:
        return dict.fromkeys(last_seen, Observation(False, why_unwatched=Reason.MODE_OFF))
    safety, unloads, progress = _observe_safety(run), _observe_unloads(run), _observe_progress(run)
    judged = {Condition.UNSAFE: safety, Condition.UNLOAD: unloads, Condition.UNFINISHED: progress}
    if run.validation is not None:
        judged[Condition.BLOCKED] = _observation(run.validation.reason_counts(Effect.BLOCK))
    if run.duration_s is not None:
        slow = {Reason.RUN_TOO_LONG: 1} if run.duration_s > settings.interval_seconds else {}
        judged[Condition.SLOW] = _observation(slow, f"{run.duration_s:.0f} s, interval {settings.interval_seconds:g} s")
    judged[Condition.ROLL_LEFT] = _roll_observation(run.roll, settings, now)
    untold = roll_end_condition(run.roll) if run.roll.untold else None
    for condition in (Condition.ROLL_STOPPED, Condition.ROLL_ELSEWHERE):
        reasons = {run.roll.ended: 1} if condition is untold and run.roll.ended else {}
        judged[condition] = _observation(reasons, run.roll.progress)
    if judged[Condition.UNLOAD] is None and Condition.UNLOAD in last_seen:
        longest = max(UNTRIED_PERIOD, UNTRIED_INTERVALS * timedelta(seconds=settings.interval_seconds))
        if not timedelta(0) <= now - last_seen[Condition.UNLOAD] <= longest:
            judged[Condition.UNLOAD] = Observation(False, why_unwatched=Reason.UNLOAD_NOT_TRIED)
    return {condition: observation for condition, observation in judged.items() if observation is not None}


def _observation(reasons: Mapping[Reason, int], detail: str = "") -> Observation:
    return Observation(True, reasons, detail) if reasons else Observation(False)


def _roll_observation(roll: Roll, settings: Settings, now: datetime) -> Observation:
    stepped = roll.looked_at or roll.at
    longest = max(UNATTENDED_PERIOD, UNATTENDED_INTERVALS * timedelta(seconds=settings.interval_seconds))
    if not roll.is_active or stepped is None or now - stepped <= longest:
        return Observation(False)
    return Observation(True, {Reason.ROLLING: 1}, f"last step at {stepped:%Y-%m-%d %H:%M %Z}, plan {roll.id}")


def roll_end_condition(roll: Roll) -> Condition | None:
    """Return the condition that reports the end of a rolling restart; None if there is nothing to report."""
    if roll.ended not in (None, Reason.ROLLED):
        return Condition.ROLL_STOPPED
    return Condition.ROLL_ELSEWHERE if roll.ended and roll.elsewhere else None


def _observe_safety(run: EndedRun) -> Observation | None:
    if run.validation is None or run.request is None or run.has_lowered_mode:
        return None
    if not run.acts:
        return Observation(False, why_unwatched=Reason.OBSERVE)
    reasons = run.validation.reason_counts(Effect.HOLD)
    if run.outcome is not None and run.outcome.verdict is Reason.PLAN_CHANGED:
        reasons = reasons | {Reason.PLAN_CHANGED: 1}
    return _observation(reasons | dict.fromkeys(run.closed, 1), "; ".join(run.closed.values()))


def _observe_unloads(run: EndedRun) -> Observation | None:
    if run.outcome is None or run.request is None or run.has_lowered_mode:
        return None
    if not run.acts:
        return Observation(False, why_unwatched=Reason.OBSERVE)
    kept = {Reason.DESTINATION_KEPT: len(run.outcome.destinations_kept)} if run.outcome.destinations_kept else {}
    if run.outcome.verdict != Reason.OPEN:
        return _observation(kept) if kept else None
    ended = Counter(run.outcome.move_counts) + Counter(run.outcome.split_counts)
    reasons = {code: count for code, count in ended.items() if not code.has(Trait.SETTLED | Trait.ORDERED)} | kept
    # A mapped task is listed once per wave, with the wave's number after its name.
    failed = any(
        task.partition("_")[0] in ("split", "unload") and state == "failed" for task, state in run.states.items()
    )
    if failed and not reasons:
        reasons = {Reason.TASK_FAILED: 1}
    # Bundles that were not touched say nothing about unloading.
    if not reasons and not ended.keys() & {Reason.MOVED, Reason.SPLIT}:
        return None
    verified = sum(move.ok for move in run.outcome.moves)
    return _observation(reasons, f"{verified} of {number_of(len(run.outcome.moves), 'move')} verified")


def _observe_progress(run: EndedRun) -> Observation | None:
    blocked = run.validation is not None and bool(run.validation.reason_counts(Effect.BLOCK))
    failed = [
        task for task in BEFORE_UNLOAD if run.states.get(task) == "failed" and not (task == "validate" and blocked)
    ]
    if not failed:
        return Observation(False) if run.states.get("gate") == "success" else None
    reasons = Counter(Reason.get(run.failures.get(task, "")) or Reason.TASK_FAILED for task in failed)
    if run.is_manual and reasons.keys() <= Reason.with_trait(Trait.TYPED):
        return None  # the person who typed the parameters sees the error; the cluster itself is fine
    return Observation(True, reasons, f"task {', '.join(failed)}")
