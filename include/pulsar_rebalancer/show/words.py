"""Sentences for operators about what they asked for, with those that counts and reasons share with other packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pulsar_rebalancer.orders.roll_document import Phase
from pulsar_rebalancer.reasons import Reason, reasons_text
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.texts import number_of

PLAN_READY = "The plan is ready, but not carried out."
REJECTED = "The plan was rejected; nothing moves."
RELEASED = "Released."
DRAINED = "The broker is marked as drained; the next runs move its bundles."
NO_FILES = "The run wrote no files."
TIMED_OUT = "because it timed out."
NOT_BEGUN = "before it began."
NOTHING_RESTARTED = "No broker has been restarted yet."

STOPPED_IN = {
    Phase.WAITING: "{} keeps its bundles, because its turn has not begun.",
    Phase.DRAINING: "{} is released. Bundles that have left this broker stay where they are.",
    Phase.RESTARTING: "{} is released if it is up again; otherwise it stays drained. Bundles stay where they are.",
    Phase.RETURNING: "{} is up. Bundles that have not returned to this broker stay where they are.",
}
"""What happens to the current broker if the rolling restart is stopped, by phase; {} is the broker."""


def no_effect_text(reason: str) -> str:
    return f"The plan would have no effect: {reason}"


def changes_text(outcome: Outcome, summary: Summary | None) -> str:
    """Return what a run changed, such as "moved 7, range 87 → 24"; empty if nothing."""
    counts = ((outcome.moved_count, "moved"), (outcome.split_count, "split"))
    parts = [f"{verb} {count}" for count, verb in counts if count]
    if outcome.moved_count and summary and summary.predicted_range is not None:
        parts.append(f"range {summary.score_range:.0f} → {summary.predicted_range:.0f}")
    return ", ".join(parts)


def roll_ended_text(brokers: int) -> str:
    return f"The rolling restart has ended: {number_of(brokers, 'broker')} restarted."


def duration_text(seconds: float) -> str:
    """Return a duration in its largest unit, such as "4 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    if seconds < 36 * 3600:
        return f"{round(seconds / 3600)} h"
    return number_of(round(seconds / 86400), "day")


def pair_text(brokers: tuple[str, str], gap: float, hits: tuple[int, int], start_text: str) -> str:
    """Return a sentence about a pair with hits; `start_text` says when its moves start, and is empty if unknown."""
    hit = f"hit {hits[0]} of {hits[1]}"
    return f"{brokers[0]} and {brokers[1]} differ by {gap:.0f} points ({hit}){f'; {start_text}' if start_text else ''}."


def not_moved_text(mode: str) -> str:
    return f"Nothing is moved, because the mode is {mode}."


def refusal_text(stopped_part: str, reason: Reason, message: str) -> str:
    """Return what stopped a task or a run, and what to do. Messages of requests to brokers may say that themselves."""
    detail = f"{message.removesuffix('.')}." if message else ""
    action = reason.action if reason.action not in message else ""
    return " ".join(filter(None, [f"{stopped_part} ({reason}): {reason.meaning}", detail, action]))


def order_result_text(result: Mapping[str, object]) -> str:
    """Return what an order changed, given the result of the task *control*."""
    in_force, stopped = str(result.get("in_force") or ""), result.get("stopped")
    words = [f"{in_force.removesuffix('.')}."] if in_force else []
    if isinstance(stopped, dict):
        finished = Counter(Reason(reason) for reason in dict(stopped.get("finished") or {}).values())
        words.append(f"Finished: {reasons_text(finished) or 'none'}.")
        unfinished = [str(bundle) for bundle in stopped.get("unfinished") or ()]
        words += [f"Still in progress: {', '.join(unfinished)}."] if unfinished else []
        words.append(f"Not started: {number_of(int(stopped.get('not_begun') or 0), 'bundle')}.")
    elif stopped:
        words.append(f"The moves in progress are not known: {stopped}.")
    if result.get("undecided"):
        words.append(f"Also, {result['undecided']}.")
    return " ".join(words)
