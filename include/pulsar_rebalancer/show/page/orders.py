"""What keeps the next run from moving bundles, who ordered it, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.orders.in_force import JudgedRun, closings
from pulsar_rebalancer.state.orders.sentence import OrdersInForce, beside_the_mode, sentence

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.show.page.facts import AirflowFacts
    from pulsar_rebalancer.show.page.recent_runs import Run
    from pulsar_rebalancer.state.orders.in_force import Closed


def held_by(entry: ClusterEntry, facts: AirflowFacts, now: datetime) -> list[Closed]:
    """Return what other than the mode keeps the next run from moving bundles."""
    closed = closings(entry.settings, facts.control, now, JudgedRun(now, facts.last_plan))
    return [closing for closing in closed if closing.reason is not Reason.OBSERVE]


def in_force(entry: ClusterEntry, facts: AirflowFacts, run: Run | None, now: datetime) -> str:
    """Return which orders are in force in addition to the mode, and who gave them; empty when none is.

    Args:
        entry: from the current clusters file.
        run: the run shown, which somebody may have stopped.
    """
    if facts.unreadable:
        return f"Which brokers are drained cannot be read: {facts.unreadable}."
    sentences = [*_stopped(facts, run), *_waiting(entry, facts, now)]
    closed = closings(entry.settings, facts.control, now, JudgedRun(now, facts.last_plan))
    orders = OrdersInForce(control=facts.control, drains=facts.drains, answers=facts.answers)
    if beside_the_mode(entry.settings, closed, orders, now):
        sentences.insert(0, sentence(entry.settings, closed, orders, now))
    return " ".join(f"{text}." for text in sentences)


def waits_until(entry: ClusterEntry, facts: AirflowFacts, now: datetime) -> datetime | None:
    """Return how long a plan waits for a person's approval; None when none waits or it was answered."""
    if entry.settings.mode is not Mode.APPROVE or facts.question.plan_id in facts.answers.plans:
        return None
    until = facts.question.until(entry.settings.max_awaiting_minutes)
    return until if until is not None and now < until else None


def _waiting(entry: ClusterEntry, facts: AirflowFacts, now: datetime) -> list[str]:
    until = waits_until(entry, facts, now)
    return [f"Plan {facts.question.hash[:12]} waits for approval until {until:%Y-%m-%d %H:%M %Z}"] if until else []


def _stopped(facts: AirflowFacts, run: Run | None) -> list[str]:
    stop = facts.control.stop
    if stop is None or run is None or not run.request.collected_at <= stop.at:
        return []
    if not run.under_way and not any(move.reason is Reason.STOPPED for move in run.moves.values()):
        return []
    return [f"Run stopped at {stop.at:%Y-%m-%d %H:%M %Z} {stop.because}"]
