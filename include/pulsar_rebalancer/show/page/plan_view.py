"""The data for a plan and its outcome, as part of the page's JSON document."""

from __future__ import annotations

from pydantic import AwareDatetime

from pulsar_rebalancer.show.page.view import View


class BundleView(View):
    """One bundle of the plan.

    Attributes:
        topics: number of topics that are unloaded.
        clients: number of producers and consumers that must reconnect.
        why: text that explains why the bundle moves or is split.
        outcome: reason code; empty while unknown.
        ok: True if the bundle was moved or split as planned; None while unknown.
    """

    bundle: str
    topics: int = 0
    clients: int = 0
    why: str = ""
    outcome: str = ""
    meaning: str = ""
    ok: bool | None = None
    seconds: float = 0.0
    error: str = ""


class MoveView(BundleView):
    """One bundle that the plan moves; its traffic is in the unit of `PlanView.measure`.

    Attributes:
        harm: text about the cost of the move for clients; for a manual plan, about the cost of the bundle's last move.
    """

    source: str
    destination: str
    traffic: float
    harm: str = ""


class SplitView(BundleView):
    """One bundle that the plan splits. A split cannot be undone. Without an unload, it disturbs no topics or clients.

    Attributes:
        positions: hashes at which the bundle is cut, as `0x…`.
        shares: share of the bundle's traffic (0 to 1) in each of its parts.
    """

    broker: str
    positions: tuple[str, ...]
    shares: tuple[float, ...]
    unload: bool


class EndView(View):
    """A source or destination of moves, with its score before the plan and its predicted score after the plan."""

    name: str
    before: float
    after: float


class Count(View):
    """The number of occurrences of a reason."""

    reason: str
    meaning: str
    count: int


class StayView(View):
    """A bundle that was considered but stays on its broker, with the reason code."""

    bundle: str
    broker: str
    reason: str
    meaning: str


class BundleFound(View):
    """A bundle that a person may pick; its traffic is in bytes/s."""

    bundle: str
    broker: str
    traffic: float
    topics: int


class BundlesFound(View):
    """The bundles whose names contain a given text: those with the most traffic, and the total number."""

    bundles: tuple[BundleFound, ...] = ()
    all: int = 0


class CostView(View):
    """The figures that a strategy has learned about a bundle.

    Attributes:
        now, hour: how much the bundle adds to the broker's score, in points: now, and on average over an hour.
        cost: cost of the bundle's messages, in multiples of an average message.
        doubt: standard deviation of the cost.
    """

    bundle: str
    now: float
    hour: float
    cost: float
    doubt: float


class DrainView(View):
    """A drained broker after the run on the page.

    Attributes:
        drained: text about the drain: when it began, who ordered it and why.
        bundles: number of bundles that the broker had; None if the drain began after the run's sample, or if the
            broker had no report.
        movable: number of these bundles that can still move: those in system namespaces or without topics never do.
        moving: number of bundles that the run still moves; a bundle that is not in the broker's report yet moves later.
        gone: number of bundles that the run has moved.
        left: the first bundles that are still on the broker, although the run has considered them.
        more: number of such bundles that are not listed.
    """

    broker: str
    drained: str
    bundles: int | None = None
    movable: int | None = None
    moving: int = 0
    gone: int = 0
    left: tuple[StayView, ...] = ()
    more: int = 0


class PlanView(View):
    """A plan and its outcome.

    Attributes:
        folder: name of the run's folder, which is the plan's id.
        run_id: id of the DAG run.
        until: time after which the gate no longer opens for the plan.
        under_way: True while the plan's bundles are being moved.
        has_effect: True if carrying the plan out has an effect; a drain has one even without moves.
        marks_drains: True if carrying the plan out marks brokers as drained; their bundles may leave later.
        by: text that names the person who ordered the plan and, if it was forced, says why; empty if no person ordered
            it.
        requested_by: users who requested the plan or moves in it.
        verdict: the gate's reason code; empty until the gate has decided.
        measure: `msg_rate` (msg/s) or `msg_throughput` (bytes/s).
        traffic: total traffic of all moves, in the unit of `measure`.
        range_before, predicted_range: score range before the plan and predicted range after it, in points.
        brokers: sources and destinations of moves.
        more: number of moves not listed.
        splits: bundles that are split.
        about_splits: sentences about bundles that are not split, and about splits that would help.
        unknown: names in a manual request that match no bundle.
        stay: number of considered bundles that are not moved, by reason.
        done: number of moves and splits with an outcome.
        failed: number of moves and splits that did not end as planned.
        harm: sentence about the cost of the moves for clients; for a manual plan, about the cost of its bundles' last
            moves.
    """

    folder: str
    run_id: str
    hash: str
    collected_at: AwareDatetime
    until: AwareDatetime
    ended_at: AwareDatetime | None = None
    under_way: bool = False
    has_effect: bool = False
    marks_drains: bool = False
    by: str = ""
    requested_by: tuple[str, ...] = ()
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
    moves: tuple[MoveView, ...] = ()
    more: int = 0
    splits: tuple[SplitView, ...] = ()
    about_splits: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    stay: tuple[Count, ...] = ()
    done: int = 0
    failed: int = 0
    harm: str = ""
