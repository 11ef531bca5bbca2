"""Pause, and skip or stop a run: orders by which nothing is moved."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from pulsar_rebalancer.orders.order import Closed, Control, FormAction, OrderKind, Situation, Wording, ends, given_until
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import time_of


class PauseInForce(NamedTuple):
    until: datetime
    who: str


def pause_of(at: Situation) -> PauseInForce | None:
    """Return the pause, current or past, from the clusters file or a person: the one that ends later."""
    file, order = at.settings.pause, at.orders.get(Control).last("pause")
    pauses = [PauseInForce(file.until, f"clusters file: {file.reason}")] if file else []
    pauses += [PauseInForce(order.until, order.who)] if order and order.until else []
    return max(pauses, default=None)


def _paused(at: Situation) -> Closed | None:
    pause = pause_of(at)
    if pause is None or at.now >= pause.until:
        return None
    return Closed(Reason.PAUSED, ends(pause.until, pause.who, at.now))


def _skipped(at: Situation) -> Closed | None:
    """Skip only the first run after the order.

    The previous plan shows whether a run has been recorded since. A reset drops it: one more run is skipped.
    """
    order, previous = at.control.last("skip"), time_of(at.run.previous)
    if order is None or at.run.at is None or at.run.at <= order.at or (previous is not None and previous > order.at):
        return None
    return Closed(Reason.SKIPPED, order.because)


def without_used_skip(control: Control, recorded_at: datetime) -> Control:
    """Return the document without an order to skip that a run has used; after a reset, it would skip another."""
    order = control.last("skip")
    return control.without("skip") if order is not None and recorded_at > order.at else control


def _stopped(at: Situation, started: datetime | None) -> Closed | None:
    """Stop runs that were in progress when the order was given; later runs are not affected."""
    order = at.control.last("stop")
    stops = order is not None and started is not None and order.at >= started
    return Closed(Reason.STOPPED, order.because) if order and stops else None


def _texts_in_force(at: Situation) -> Iterator[str]:
    if stopped := _stopped(at, at.orders.started):
        yield f"stopped {stopped.detail}"


STOP = OrderKind(
    actions=(
        FormAction(
            "stop",
            "Stop the current run",
            "The run moves no more bundles. To stop later runs too, use Pause.",
            stops=True,
            button="Stop",
        ),
    ),
    closes=lambda at: _stopped(at, at.run.started),
    words={Reason.STOPPED: Wording("stopped")},
    says=_texts_in_force,
)

PAUSE = OrderKind(
    actions=(
        FormAction(
            "pause",
            "Pause all moves",
            "Runs still decide and explain; the current run is stopped. A pause in force is extended.",
            until=True,
            gives=given_until,
            stops=True,
            after_loss=True,
            button="Pause",
        ),
        FormAction(
            "resume",
            "End the pause, and cancel a pending skip",
            gives=lambda orders, _: orders.get(Control).without("pause", "skip"),
            button="Resume",
            offered=lambda at: at.control.last("pause") or _skipped(at),
        ),
    ),
    settings=("pause",),
    closes=_paused,
    words={Reason.PAUSED: Wording("paused", "the cluster was paused.", "Rebalancing is paused {}.")},
)

SKIP = OrderKind(
    actions=(
        FormAction(
            "skip",
            "The next run moves nothing",
            button="Skip next run",
            offered=lambda at: not _skipped(at),
        ),
    ),
    closes=_skipped,
    words={Reason.SKIPPED: Wording("one run is skipped", "a person skipped the run.", "The next run moves nothing.")},
)
