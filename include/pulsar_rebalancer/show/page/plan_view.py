"""The part of the page's document about a plan and its outcome."""

from __future__ import annotations

from pydantic import AwareDatetime

from pulsar_rebalancer.show.page.view import View


class MoveView(View):
    """One bundle of the plan.

    Attributes:
        traffic: in the unit of `PlanView.measure`.
        clients: number of producers and consumers that must reconnect.
        why: why the bundle moves.
        outcome: reason code; empty while unknown.
        ok: True if the bundle is where the plan wants it; None while unknown.
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
    """A broker that gives or receives bundles, with its score before the plan and its predicted score after."""

    name: str
    before: float
    after: float


class Count(View):
    """The number of occurrences of a reason."""

    reason: str
    meaning: str
    count: int


class Measured(View):
    """The score range some minutes after a run ended; None while unknown."""

    minutes: int
    score_range: float | None


class PlanView(View):
    """A plan and its outcome.

    Attributes:
        folder: name of the run's folder, which is the plan's id.
        run_id: id of the DAG run.
        until: time after which the gate no longer opens for the plan.
        under_way: True if its bundles are being moved.
        by: who ordered the plan, and why if it was forced; empty if no person did.
        verdict: the gate's reason code; empty until the gate has judged the plan.
        measure: `msg_rate` (msg/s) or `msg_throughput` (bytes/s).
        traffic: sum over all moves.
        range_before, predicted_range: score range before the plan and predicted range after it, points.
        brokers: brokers that give or receive bundles.
        measured: score ranges after the run.
        more: number of moves not listed.
        stay: number of bundles that stay, by reason.
        done: number of moves with an outcome.
        failed: number of moves whose bundle is not where the plan wants it.
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
