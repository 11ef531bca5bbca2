"""The data for a cluster's page, as a typed JSON document for the browser.

The browser calculates nothing. Scores are in percent, gaps and ranges in percentage points, times in UTC.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.orders.order import OrderButton
from pulsar_rebalancer.orders.roll_document import ShownRestarts
from pulsar_rebalancer.run.findings import ExplainedReason, ReasonWithMeaning
from pulsar_rebalancer.run.plan import Move, Split
from pulsar_rebalancer.strategies.sample import Line

VERSION = 1
"""Version of the document. A browser that shows an older version reloads the page."""


class View(BaseModel):
    model_config = ConfigDict(frozen=True)


class Tone(StrEnum):
    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    IDLE = "idle"


class State(StrEnum):
    """A cluster's state in one word, and the tone that sets its colour on the page."""

    tone: Tone

    def __new__(cls, word: str, tone: Tone) -> Self:
        member = str.__new__(cls, word)
        member._value_, member.tone = word, tone
        return member

    BALANCED = "balanced", Tone.GOOD
    WAITING = "waiting", Tone.BUSY
    MOVING = "moving", Tone.BUSY
    MOVED = "moved", Tone.GOOD
    WOULD_MOVE = "would move", Tone.BUSY
    AWAITING = "awaiting approval", Tone.WARN
    STUCK = "unbalanced", Tone.WARN
    CLOSED = "held back", Tone.WARN
    PAUSED = "paused", Tone.WARN
    OFF = "off", Tone.IDLE
    NO_DATA = "no data", Tone.IDLE
    LOOKING = "looking", Tone.BUSY
    STALE = "stale", Tone.BAD
    BLOCKED = "blocked", Tone.BAD
    FAILED = "failed", Tone.BAD
    BROKEN = "broken", Tone.BAD
    UNREADABLE = "unreadable", Tone.BAD


class OutcomeView(ReasonWithMeaning):
    """How a move or split ended (`MoveOutcome`, `SplitOutcome`); `ok` is True if it went as planned."""

    model_config = ConfigDict(from_attributes=True)

    ok: bool
    seconds: float
    error: str


class BundleView(View):
    """A bundle of the plan: `topics` are unloaded, and `clients` (producers and consumers) must reconnect."""

    topics: int = 0
    clients: int = 0
    why: str
    ended: OutcomeView | None


class MoveView(BundleView):
    """`client_gap` is the cost of the move for clients; for a manual plan, of the bundle's last move."""

    planned: Move
    client_gap: str


class SplitView(BundleView):
    planned: Split


class BrokerChangeView(View):
    """A source or destination, with its score before the plan and its predicted score after it."""

    name: str
    before: float
    after: float


class StayCount(ReasonWithMeaning):
    count: int


class StayView(ReasonWithMeaning):
    """A bundle that was considered but stays on its broker."""

    bundle: str
    broker: str


class FoundBundle(View):
    """A bundle that was searched for; its traffic is in bytes/s.

    `why` says why the latest plan does or does not move it, `reason` is the reason code, empty if no rule keeps the
    bundle, and `moved` is its last known move.
    """

    bundle: str
    broker: str
    traffic: float
    topics: int
    reason: str = ""
    why: str = ""
    moved: str = ""


class FoundBundles(View):
    """The bundles that match a search: those with the most traffic, and the total number; the broker that it names."""

    bundles: tuple[FoundBundle, ...] = ()
    all: int = 0
    broker: str = ""
    sampled_at: AwareDatetime | None = None


class DrainView(View):
    """A drained broker after the run on the page.

    Attributes:
        bundles: number of bundles that the broker had; None before the drain or without a report.
        movable: number of these that can still move: those in system namespaces or without topics never
            do.
        moving, gone: bundles that the run still moves, and has moved; those not in the report move later.
        left, more: the first bundles still on the broker although considered, and the number of others.
    """

    broker: str
    drained: str
    bundles: int | None = None
    movable: int | None = None
    moving: int = 0
    gone: int = 0
    left: tuple[StayView, ...] = ()
    more: int = 0

    @property
    def is_empty(self) -> bool:
        """Return whether all bundles that can move have left."""
        return self.movable == 0


class PlanView(View):
    """A plan and its outcome.

    Attributes:
        folder: name of the run's folder, which is the plan's id.
        until: time after which the gate no longer opens for the plan.
        has_effect: True if carrying the plan out has an effect; a drain has one even without moves.
        marks_drains: True if carrying it out marks brokers as drained; their bundles may leave later.
        by: who ordered the plan and, if it was forced, why; empty if no operator ordered it.
        verdict: the gate's; None until it has decided.
        measure: `msg_rate` (msg/s) or `msg_throughput` (bytes/s), the unit of `traffic`, the moves'
            total.
        range_before, predicted_range: score range before and after the plan, in points.
        more: number of moves not listed.
        about_splits: sentences about bundles that are not split, and about splits that would help.
        unknown: names in a manual request that match no bundle.
        stay: number of considered bundles that are not moved, by reason.
        done, failed: moves and splits with an outcome, and those that did not end as planned.
        client_gap: cost of the moves for clients; for a manual plan, of its bundles' last moves.
    """

    folder: str
    run_id: str
    hash: str
    collected_at: AwareDatetime
    until: AwareDatetime
    ended_at: AwareDatetime | None = None
    has_effect: bool = False
    marks_drains: bool = False
    by: str = ""
    requested_by: tuple[str, ...] = ()
    verdict: ReasonWithMeaning | None = None
    measure: str = "msg_throughput"
    bundles: int = 0
    traffic: float = 0.0
    topics: int = 0
    clients: int = 0
    range_before: float | None = None
    predicted_range: float | None = None
    brokers: tuple[BrokerChangeView, ...] = ()
    moves: tuple[MoveView, ...] = ()
    more: int = 0
    splits: tuple[SplitView, ...] = ()
    about_splits: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    stay: tuple[StayCount, ...] = ()
    done: int = 0
    failed: int = 0
    client_gap: str = ""


class Attention(View):
    """What waits for a person, since when (None if unknown), and the names of the buttons that help."""

    text: str
    since: AwareDatetime | None = None
    acts: tuple[str, ...] = ()


class Status(View):
    """The content of the strip at the top of the page.

    Attributes:
        tone: `idle` instead of `good` once the data is too old for it, after `fresh_until`.
        sentence: why the rebalancer does or does not move bundles.
        attention: what waits for a person, whatever the state.
        in_force: operators' orders in force; empty if there are none.
        collected_at: time of the latest sample; None if there is none.
        running_since: when the run in progress began; None if there is none.
        next_run_at: when the next run is due, if none is in progress.
        score_range: of the compared scores, in points; None if none are compared. After moves, it is
            predicted (None if unknown) until scores are measured again.
        predicted: True if the range is the plan's prediction.
    """

    cluster: str
    dag_id: str = ""
    mode: str
    strategy: str
    pairing: bool = False
    state: State
    tone: Tone
    sentence: str
    attention: tuple[Attention, ...] = ()
    in_force: str = ""
    now: AwareDatetime
    collected_at: AwareDatetime | None = None
    fresh_until: AwareDatetime | None = None
    running_since: AwareDatetime | None = None
    interval_seconds: float
    next_run_at: AwareDatetime | None = None
    score_range: float | None = None
    predicted: bool = False


class BrokerView(View):
    """One broker on the page.

    Attributes:
        label: a short unique part of the broker's name.
        score: in percent; None without a load report.
        resources: weighted usage by resource, in percent; the largest is the score.
        deciding: the resource with the largest weighted usage; empty without a load report.
        lowest, highest: lowest and highest score within the last half hour.
        after: predicted score; None if the broker is neither source nor destination in the plan.
        left_out: why the broker can be neither source nor destination; empty if it can be both.
        band: the highest threshold that the gap of the broker's pair reaches: `low`, `high`, else `calm`.
        average, average_throughput: the strategy's moving averages, in percent and bytes/s.
    """

    name: str
    label: str
    score: float | None
    resources: dict[str, float] = {}
    deciding: str = ""
    lowest: float | None = None
    highest: float | None = None
    after: float | None = None
    left_out: str = ""
    band: str = "calm"
    drained: str = ""
    average: float | None = None
    average_throughput: float | None = None
    msg_throughput: float = 0.0
    bundles: int = 0


class HitsView(View):
    have: int
    need: int


class PairView(View):
    """A pair in the run's decisions; with a strategy without pairs, a single broker.

    Attributes:
        band: the highest threshold that the gap reaches: `low` or `high`, else `calm`.
        hits: hits by threshold, `low` and `high`; empty if the strategy counts no hits.
        seconds_to_fire: seconds from the sample until the pair's bundles move if the gap does not change,
            else None.
        overdue: when they move, in words, once those seconds have passed.
    """

    number: int
    source: str
    destination: str = ""
    gap: float | None = None
    band: str = "calm"
    hits: dict[str, HitsView] = {}
    fired: bool = False
    seconds_to_fire: float | None = None
    overdue: str = ""
    reason: str
    meaning: str
    explanation: str = ""


class Links(View):
    """Links to other pages, as paths on the API server; empty without a link.

    `requests` are the runs that operators have started, in Airflow.
    """

    dag: str = ""
    requests: str = ""
    run: str = ""
    log: str = ""
    validation: str = ""


class QuestionView(View):
    """The question in Airflow about a plan awaiting approval: ids, the plan's hash and the deadline."""

    dag: str
    run: str
    task: str
    hash: str
    until: AwareDatetime


class TurnView(View):
    """One broker of a rolling restart: `waiting`, `draining`, `restart now`, `restarting`, `returning`, `done`."""

    broker: str
    state: str
    detail: str = ""


class RollView(View):
    """A rolling restart in progress or ended recently; `stop` says what stopping it does to the broker at hand."""

    text: str
    turns: tuple[TurnView, ...] = ()
    stop: str = ""


class UndoView(View):
    """A run that moved bundles and can be undone; `folder` is the name of its folder."""

    folder: str
    collected_at: AwareDatetime


class UserActions(View):
    """The actions that the user may take. A DAG's id is empty if the user may not start that DAG.

    If a DAG is paused in Airflow, a new run acts only after an operator unpauses the DAG.

    Attributes:
        control: the DAG that takes orders.
        orders: buttons of the orders that have an effect now.
        rebalance: the DAG that balances the cluster.
        carries_out: the same, even if the user may not start it: it carries out approved and manual
            plans.
        roll: the DAG that restarts brokers.
        question: the open question; None if there is none, or the user may not answer it.
        closed: why the gate would be closed for any plan now; empty if it would open.
        stays_closed: the same, if the gate opens only after an operator has changed something.
        paused_dags: paused DAGs that the user may start or their runs start, and an active roll's.
        barred: the user's id and login name if the cluster requires two operators; they may then not
            approve their own plans or, in mode `auto`, carry them out.
    """

    control: str = ""
    orders: tuple[OrderButton, ...] = ()
    rebalance: str = ""
    carries_out: str = ""
    by_hand: str = ""
    roll: str = ""
    question: QuestionView | None = None
    grace_minutes: float = 0.0
    rolls: bool = False
    closed: str = ""
    stays_closed: str = ""
    paused_dags: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()


class Overview(View):
    """One cluster's page.

    Attributes:
        run_id, folder: id and folder name of the run on the page; empty if there is none yet.
        of_one_run: True if the page shows the state at the time of this run, False if the current state.
        middle: mean score; None if no brokers were compared.
        lines: lines to draw across the broker bars.
        pairs: pairs that reach a threshold, have fired or are waiting, the largest gap first.
        close_pairs: number of pairs not listed.
        firing: `fires` or `would fire`, for the time at which a pair fires; empty if it is unknown.
        hits: the whole cluster's hits; None if the strategy does not count such hits.
        plan: the plan of the run on the page, if bundles move or were considered; else None.
        awaiting: the plan awaiting approval, if it is from another run; else None.
        last: the last plan that moved or split bundles; None if `plan` has already begun.
        moved: the latest run that moved bundles; on the page of one run, that run if it did.
        changed_at: end of the latest run that moved or split bundles, even on an earlier run's page.
    """

    version: int = VERSION
    run_id: str = ""
    folder: str = ""
    sampled_at: AwareDatetime | None = None
    of_one_run: bool = False
    status: Status
    middle: float | None = None
    lines: tuple[Line, ...] = ()
    brokers: tuple[BrokerView, ...] = ()
    pairs: tuple[PairView, ...] = ()
    close_pairs: int = 0
    firing: str = ""
    hits: HitsView | None = None
    plan: PlanView | None = None
    awaiting: PlanView | None = None
    last: PlanView | None = None
    moved: UndoView | None = None
    changed_at: AwareDatetime | None = None
    drains: tuple[DrainView, ...] = ()
    roll: RollView | None = None
    findings: tuple[ExplainedReason, ...] = ()
    validated: bool = False
    links: Links = Links()
    acts: UserActions = UserActions()


class RunAnswer(View):
    """The outcome of a run that the page started; `plan` is a manual plan's hash, empty without effect.

    `state` is `waiting` (in the queue), `running`, `awaiting approval`, `done`, `refused`, `failed` or
    `cancelled`.
    """

    state: str = "done"
    text: str
    plan: str = ""
    restarts: ShownRestarts | None = None
