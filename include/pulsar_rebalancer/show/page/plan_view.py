"""The part of the page's document that is about a plan, and what became of it."""

from __future__ import annotations

from pydantic import AwareDatetime

from pulsar_rebalancer.show.page.view import View


class MoveView(View):
    """One bundle of the plan.

    Attributes:
        traffic: in the unit that `Plan.measure` names.
        clients: producers and consumers that look for the new owner.
        why: it moves.
        outcome: reason code; empty while nothing is known.
        ok: whether it is where the plan wants it; None while nothing is known.
    """

    bundle: str
    source: str
    destination: str
    traffic: float
    topics: int = 0
    clients: int = 0
    why: str = ""
    outcome: str = ""
    meaning: str = ""
    ok: bool | None = None
    seconds: float = 0.0
    error: str = ""


class EndView(View):
    """A broker that a plan gives or takes bundles, with its score before and, as predicted, after."""

    name: str
    before: float
    after: float


class Count(View):
    """How often a reason was met."""

    reason: str
    meaning: str
    count: int


class Measured(View):
    """The range of scores some minutes after a run ended; None while it is not known."""

    minutes: int
    score_range: float | None


class PlanView(View):
    """A plan, and what became of it.

    Attributes:
        folder: name of the run's folder, the plan's id.
        run_id: of the DAG run.
        until: when the gate no longer opens for it.
        under_way: whether its bundles are being moved.
        by: which person wanted it, and why; empty when none did.
        verdict: reason code of the gate; empty while it was not asked.
        measure: `msg_rate` (msg/s) or `msg_throughput` (bytes/s).
        traffic: sum over the moves.
        range_before, predicted_range: points of score; `brokers`: likewise of each that gives or takes bundles.
        measured: the range after the run.
        more: moves that are not listed.
        stay: bundles that stay, by reason.
        done, failed: moves with an outcome; those that are not where the plan wants them.
    """

    folder: str
    run_id: str
    hash: str
    collected_at: AwareDatetime
    until: AwareDatetime
    ended_at: AwareDatetime | None = None
    under_way: bool = False
    by: str = ""
    verdict: str = ""
    verdict_meaning: str = ""
    measure: str = "msg_throughput"
    bundles: int = 0
    traffic: float = 0.0
    topics: int = 0
    clients: int = 0
    range_before: float | None = None
    predicted_range: float | None = None
    brokers: tuple[EndView, ...] = ()
    measured: tuple[Measured, ...] = ()
    moves: tuple[MoveView, ...] = ()
    more: int = 0
    stay: tuple[Count, ...] = ()
    done: int = 0
    failed: int = 0
