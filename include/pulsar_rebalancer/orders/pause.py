"""Pause, and skip or stop a run: orders by which nothing is moved."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from pulsar_rebalancer.orders.order import Control, FormAction, Hold, OrderKind, Situation, Wording, end_text, with_end
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import time_of


class PauseInForce(NamedTuple):
    until: datetime
    giver: str


def pause_in_force(situation: Situation) -> PauseInForce | None:
    """Return the pause, current or past, from the clusters file or a person: the one that ends later."""
    file, order = situation.settings.pause, situation.orders.get(Control).last_order("pause")
    pauses = [PauseInForce(file.until, f"clusters file: {file.reason}")] if file else []
    pauses += [PauseInForce(order.until, order.giver)] if order and order.until else []
    return max(pauses, default=None)


def _pause_hold(situation: Situation) -> Hold | None:
    pause = pause_in_force(situation)
    if pause is None or situation.now >= pause.until:
        return None
    return Hold(Reason.PAUSED, end_text(pause.until, pause.giver, situation.now))


def _skip_hold(situation: Situation) -> Hold | None:
    """Skip only the first run after the order.

    The previous plan shows whether a run has been recorded since. A reset drops it: one more run is skipped.
    """
    order, previous, sampled = (
        situation.control.last_order("skip"),
        time_of(situation.run.previous),
        situation.run.sampled_at,
    )
    if order is None or sampled is None or sampled <= order.at or (previous is not None and previous > order.at):
        return None
    return Hold(Reason.SKIPPED, order.by_text)


def without_used_skip_order(control: Control, recorded_at: datetime) -> Control:
    """Return the document without an order to skip that a run has used; after a reset, it would skip another."""
    order = control.last_order("skip")
    return control.without_orders("skip") if order is not None and recorded_at > order.at else control


def _stop_hold(situation: Situation, started_at: datetime | None) -> Hold | None:
    """Stop runs that were in progress when the order was given; later runs are not affected."""
    order = situation.control.last_order("stop")
    stops = order is not None and started_at is not None and order.at >= started_at
    return Hold(Reason.STOPPED, order.by_text) if order and stops else None


def _pause_texts(situation: Situation) -> Iterator[str]:
    if stopped := _stop_hold(situation, situation.orders.run_started_at):
        yield f"stopped {stopped.detail}"


STOP = OrderKind(
    actions=(
        FormAction(
            "stop",
            "Stop the current run",
            "The run moves no more bundles. To stop later runs too, use Pause.",
            stops_run=True,
            button="Stop",
        ),
    ),
    hold_of=lambda situation: _stop_hold(situation, situation.run.started_at),
    words={Reason.STOPPED: Wording("stopped")},
    order_texts=_pause_texts,
)

PAUSE = OrderKind(
    actions=(
        FormAction(
            "pause",
            "Pause all moves",
            "Stops the current run; later runs only decide and explain. Extends a pause that is in force.",
            until=True,
            apply=with_end,
            stops_run=True,
            works_after_loss=True,
            button="Pause",
        ),
        FormAction(
            "resume",
            "End the pause, and cancel a pending skip",
            apply=lambda orders, _: orders.get(Control).without_orders("pause", "skip"),
            button="Resume",
            is_shown=lambda situation: situation.control.last_order("pause") or _skip_hold(situation),
        ),
    ),
    setting_names=("pause",),
    hold_of=_pause_hold,
    words={Reason.PAUSED: Wording("paused", "the cluster was paused.", "Rebalancing is paused {}.")},
)

SKIP = OrderKind(
    actions=(
        FormAction(
            "skip",
            "The next run moves nothing",
            button="Skip next run",
            is_shown=lambda situation: not _skip_hold(situation),
        ),
    ),
    hold_of=_skip_hold,
    words={Reason.SKIPPED: Wording("one run is skipped", "a person skipped the run.", "The next run moves nothing.")},
)
