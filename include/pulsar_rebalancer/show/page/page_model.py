"""The data for a cluster's page, as a typed JSON document for the browser.

The browser shows the data without further calculations. Scores are in percent, gaps and score ranges in percentage
points, times in UTC.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.strategies.sample import Line

VERSION = 1
"""Version of the document. A browser that shows an older version of the page reloads it."""


class View(BaseModel):
    """Part of the page's JSON document."""

    model_config = ConfigDict(frozen=True)


class Tone(StrEnum):
    """The urgency of a cluster's state."""

    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    IDLE = "idle"


class State(StrEnum):
    """A cluster's state in one word, and the tone that sets its colour on the page."""

    tone: Tone

    def __new__(cls, word: str, tone: Tone) -> Self:
        """Create a member from its word and tone."""
        member = str.__new__(cls, word)
        member._value_, member.tone = word, tone
        return member

    BALANCED = "balanced", Tone.GOOD
    WAITING = "waiting", Tone.BUSY
    MOVING = "moving", Tone.BUSY
    MOVED = "moved", Tone.GOOD
    WOULD_MOVE = "would move", Tone.BUSY
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


class Status(View):
    """The content of the strip at the top of the page.

    Attributes:
        pairing: True if the strategy pairs brokers.
        sentence: a sentence that says why the rebalancer does or does not move bundles.
        in_force: a sentence about people's orders in force; empty if there are none.
        collected_at: time of the latest sample; None if there is none.
        score_range, deviation: range and standard deviation of the compared scores, in points; None if no brokers are
            compared. After moves, the range is the predicted range (None if unknown) until scores are measured again.
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
    in_force: str = ""
    now: AwareDatetime
    collected_at: AwareDatetime | None = None
    interval_seconds: float
    next_run_at: AwareDatetime | None = None
    score_range: float | None = None
    deviation: float | None = None
    predicted: bool = False


class BrokerView(View):
    """One broker on the page.

    Attributes:
        label: a short unique part of the broker's name.
        score: score in percent; None without a load report.
        resources: weighted usage by resource, in percent; the largest is the score.
        deciding: the resource with the largest weighted usage; empty without a load report.
        lowest, highest: lowest and highest score within the last half hour.
        after: predicted score after the plan; None if the broker is neither source nor destination in the plan.
        left_out: why the broker can be neither source nor destination; empty if it can be both.
        band: the highest threshold that the gap of the broker's pair reaches: `low` or `high`, else `calm`.
        partner, gap: the colder broker of the pair, and the gap to it; set only for the hotter broker of a pair.
        drained: text about the drain: when it began, who ordered it and why; empty if the broker is not drained.
        average, average_throughput: the strategy's moving averages for the broker, in percent and bytes/s.
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
    partner: str = ""
    gap: float | None = None
    drained: str = ""
    average: float | None = None
    average_throughput: float | None = None
    msg_throughput: float = 0.0
    bundles: int = 0


class HitsView(View):
    """The current number of hits, and the number needed to fire."""

    have: int
    need: int


class PairView(View):
    """A pair in the run's decisions; with a strategy without pairs, a single broker.

    Attributes:
        band: the highest threshold that the gap reaches: `low` or `high`, else `calm`.
        hits: hits by threshold, `low` and `high`; empty if the strategy counts no hits.
        seconds_to_fire: seconds from the sample until the pair fires if the gap does not change; None if no hits are
            counted.
        meaning: description of the reason code.
    """

    number: int
    source: str
    destination: str = ""
    gap: float | None = None
    band: str = "calm"
    hits: dict[str, HitsView] = {}
    fired: bool = False
    seconds_to_fire: float | None = None
    reason: str
    meaning: str
    explanation: str = ""


class FindingView(View):
    """A validation finding in words."""

    reason: str
    effect: str
    count: int
    worst: tuple[str, ...]
    meaning: str
    action: str


class Links(View):
    """Links to other pages, as paths on the API server. An empty path means that there is no link.

    Attributes:
        requests: the runs that people have started, in Airflow.
    """

    dag: str = ""
    requests: str = ""
    run: str = ""
    log: str = ""
    validation: str = ""


class ShownQuestion(View):
    """The question in Airflow about a plan that is awaiting approval.

    Attributes:
        dag, run, task: ids of the DAG, the DAG run and the task that asks the question.
        hash: the plan's hash.
        until: deadline for the answer.
    """

    dag: str
    run: str
    task: str
    hash: str
    until: AwareDatetime


class RollView(View):
    """A rolling restart in progress, or one that has ended recently.

    Attributes:
        text: the roll's phase and what the roll is waiting for, or how it ended, and whose bundles are elsewhere.
        broker: the broker whose turn it is; empty if the roll is over.
        done, total: number of brokers whose turn is over, and total number of brokers in the roll.
    """

    text: str
    broker: str
    done: int
    total: int


class MovedRun(View):
    """A run that moved bundles and can be undone.

    Attributes:
        folder: name of the run's folder.
    """

    folder: str
    collected_at: AwareDatetime


class Acts(View):
    """The actions that the user may take. A DAG's id is empty if the user may not start that DAG.

    If a DAG is paused in Airflow, a new run acts only after a person unpauses the DAG.

    Attributes:
        control: the DAG that pauses, resumes or stops a cluster, skips a run, or closes the circuit breaker.
        rebalance: the DAG that balances the cluster.
        carries_out: the same DAG, also if the user may not start it: its runs carry out approved and manual plans.
        by_hand: the DAG for manual plans.
        question: the open question; None if there is none, or the user may not answer it.
        paused: True if a person has paused the cluster.
        skips: True if a person has ordered that the next run be skipped.
        breaker: True if the circuit breaker is open.
        rolls: True if a rolling restart is active.
        closed: why the gate would be closed for any plan now; empty if it would open.
        stays_closed: the same, if the gate opens only after a person has changed something.
        paused_dags: DAGs that are paused in Airflow, among those that the user may start, those that their runs start,
            and that of an active rolling restart.
        barred: the user's id and login name if the cluster requires two people; the user may then not approve their own
            plans or, in mode `auto`, carry them out.
    """

    control: str = ""
    rebalance: str = ""
    carries_out: str = ""
    by_hand: str = ""
    question: ShownQuestion | None = None
    paused: bool = False
    skips: bool = False
    breaker: bool = False
    rolls: bool = False
    closed: str = ""
    stays_closed: str = ""
    paused_dags: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()


class Overview(View):
    """One cluster's page.

    Attributes:
        run_id: id of the DAG run on the page; empty if there is none yet.
        folder: name of the run's folder.
        sampled_at: time of the run's sample.
        of_one_run: True if the page shows the state at the time of this run, False if it shows the current state.
        middle: mean score; None if no brokers were compared.
        lines: lines to draw across the broker bars.
        pairs: pairs with a gap that reaches a threshold, and pairs that have fired or are waiting; the largest gap
            first.
        close_pairs: number of pairs not listed.
        firing: verb for text that says when a pair fires: `fires` or `would fire`; empty if the time is unknown.
        hits: the whole cluster's hits; None if the strategy does not count such hits.
        plan: the plan of the run on the page, if bundles move or were considered; else None.
        awaiting: the plan awaiting approval, if it is from another run; else None.
        last: the last plan that moved or split bundles; None if `plan` has already begun.
        moved: the latest run that moved bundles; on the page of one run, that run if it moved bundles.
        changed_at: end of the latest run that moved or split bundles, also on the page of an earlier run.
        roll: the active rolling restart; None if there is none.
        validated: True if the run has been validated.
        learns: True if the strategy learns the cost of bundles' messages.
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
    moved: MovedRun | None = None
    changed_at: AwareDatetime | None = None
    drains: tuple[DrainView, ...] = ()
    roll: RollView | None = None
    findings: tuple[FindingView, ...] = ()
    validated: bool = False
    learns: bool = False
    links: Links = Links()
    acts: Acts = Acts()


class RunAnswer(View):
    """The outcome of a run that the page started.

    Attributes:
        state: `waiting` (in the queue), `running`, `awaiting approval`, `done`, `refused` (for a reason), `failed` or
            `cancelled`.
        text: text to show after the state; may be empty.
        plan: hash of the plan that the run shows; empty if it shows no plan, or if the plan would have no effect.
    """

    state: str = "done"
    text: str
    plan: str = ""
