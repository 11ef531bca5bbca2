"""The document that the page of a cluster shows: one typed model, read by a browser.

Nothing in it is computed in the browser. Scores are percent, gaps and ranges points of score, times UTC.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.control.documents import Control

VERSION = 1
"""Of the document; a browser that kept an older page loads it anew."""


class View(BaseModel):
    """A part of the document."""

    model_config = ConfigDict(frozen=True)


class State(StrEnum):
    """How a cluster is, in one word."""

    BALANCED = "balanced"
    WAITING = "waiting"
    MOVING = "moving"
    MOVED = "moved"
    WOULD_MOVE = "would move"
    STUCK = "unbalanced"
    CLOSED = "held back"
    PAUSED = "paused"
    OFF = "off"
    NO_DATA = "no data"
    STALE = "stale"
    BLOCKED = "blocked"
    FAILED = "failed"
    BROKEN = "broken"

    @property
    def tone(self) -> Tone:
        """Return how it is coloured."""
        return _TONES[self]


class Tone(StrEnum):
    """Whether somebody has to look."""

    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    IDLE = "idle"


_TONES = {
    State.BALANCED: Tone.GOOD,
    State.WAITING: Tone.BUSY,
    State.MOVING: Tone.BUSY,
    State.MOVED: Tone.GOOD,
    State.WOULD_MOVE: Tone.BUSY,
    State.STUCK: Tone.WARN,
    State.CLOSED: Tone.WARN,
    State.PAUSED: Tone.WARN,
    State.OFF: Tone.IDLE,
    State.NO_DATA: Tone.IDLE,
    State.STALE: Tone.BAD,
    State.BLOCKED: Tone.BAD,
    State.FAILED: Tone.BAD,
    State.BROKEN: Tone.BAD,
}


class AirflowFacts(View):
    """What Airflow knows of a cluster.

    Attributes:
        paused: no run of its DAG starts by itself.
        next_run_at: when the next one does.
        control: what people ordered, and the circuit breaker.
    """

    paused: bool = False
    next_run_at: AwareDatetime | None = None
    control: Control = Control()


class Status(View):
    """The strip at the top.

    Attributes:
        sentence: why the rebalancer acts or does not.
        in_force: what people have asked for that holds now, a sentence; empty when nothing.
        collected_at: when the newest data was taken; None: never.
        score_range, deviation: of the brokers that were judged; None: none was.
    """

    cluster: str
    dag_id: str = ""
    mode: str
    strategy: str
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
    score_min: float | None = None
    score_max: float | None = None


class BrokerView(View):
    """One broker.

    Attributes:
        label: the shortest part of its name that tells it from the others.
        score: None without a report.
        resources: weighted usage by resource; the largest is the score.
        deciding: the resource that makes the score; empty without a report.
        lowest, highest: score within the last half hour.
        after: predicted score after the plan; None where the plan does not touch it.
        left_out: why it is neither source nor destination; empty when it takes part.
        band: that of its pair: `calm`, `low` or `high`.
        partner: the colder broker of its pair, of the hotter one alone; `gap` between them.
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
    msg_rate: float = 0.0
    msg_throughput: float = 0.0
    topics: int = 0
    bundles: int = 0


class Line(View):
    """A level that is drawn across the brokers, from one score to another (the same for a line)."""

    name: str
    lower: float
    upper: float


class HitsView(View):
    """Hits collected, and how many are needed."""

    have: int
    need: int


class PairView(View):
    """A pair, or with another strategy a broker, that was looked at.

    Attributes:
        band: `calm`, `low` or `high`: how its gap stands to the thresholds.
        hits: by `low` and `high`; empty for strategies that count none.
        seconds_to_fire: from now, if the gap stays; None when it does not count.
        reason: reason code; `meaning` in words.
        value, bound: what another strategy compared.
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
    value: float | None = None
    bound: float | None = None


class MoveView(View):
    """One bundle of the plan.

    Attributes:
        traffic: in the unit that `Plan.measure` names.
        clients: producers and consumers that look for the new owner.
        outcome: reason code; empty while nothing is known.
        ok: whether it is where the plan wants it; None while nothing is known.
    """

    bundle: str
    source: str
    destination: str
    traffic: float
    topics: int = 0
    clients: int = 0
    outcome: str = ""
    meaning: str = ""
    ok: bool | None = None
    seconds: float = 0.0
    owner: str = ""
    error: str = ""


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
        verdict: reason code of the gate; empty while it was not asked.
        measure: `msg_rate` (msg/s) or `msg_throughput` (bytes/s).
        traffic: sum over the moves.
        range_before, predicted_range: points of score.
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
    verdict: str = ""
    verdict_meaning: str = ""
    sentence: str = ""
    measure: str = "msg_throughput"
    bundles: int = 0
    traffic: float = 0.0
    topics: int = 0
    clients: int = 0
    range_before: float | None = None
    predicted_range: float | None = None
    measured: tuple[Measured, ...] = ()
    moves: tuple[MoveView, ...] = ()
    more: int = 0
    stay: tuple[Count, ...] = ()
    done: int = 0
    failed: int = 0


class FindingView(View):
    """What validation found, in plain words."""

    reason: str
    effect: str
    count: int
    worst: tuple[str, ...]
    meaning: str
    action: str


class Links(View):
    """Where more is to be read; paths on the web server, empty where there is nothing."""

    dag: str = ""
    run: str = ""
    log: str = ""
    validation: str = ""


class Acts(View):
    """What the user may do: DAGs of which a run may be started, empty where that is not allowed.

    Attributes:
        control: the DAG that pauses, resumes, skips and stops.
        rebalance: the DAG that balances.
        apply: the DAG in which a plan is approved, in mode `approve`.
        paused: whether a person has paused the cluster.
    """

    control: str = ""
    apply: str = ""
    rebalance: str = ""
    paused: bool = False


class Overview(View):
    """The page of one cluster.

    Attributes:
        run_id: the DAG run whose files these are; empty when there is none yet.
        folder: name of their folder.
        of_one_run: the cluster as that run saw it, and not as it is now.
        middle: mean score; None when no broker was judged.
        lines: thresholds.
        pairs: those that were looked at, the largest gap first.
        close_pairs: how many more pairs are close enough.
        plan: the newest plan that moves something, if it is of the newest run.
        last: the last run that moved something, if the newest one does not.
        validated: whether validation was reached.
    """

    version: int = VERSION
    run_id: str = ""
    folder: str = ""
    of_one_run: bool = False
    status: Status
    middle: float | None = None
    lines: tuple[Line, ...] = ()
    brokers: tuple[BrokerView, ...] = ()
    pairs: tuple[PairView, ...] = ()
    close_pairs: int = 0
    plan: PlanView | None = None
    last: PlanView | None = None
    findings: tuple[FindingView, ...] = ()
    validated: bool = False
    links: Links = Links()
    acts: Acts = Acts()


class Bucket(View):
    """A stretch of time.

    Attributes:
        lowest, highest: of the range of scores; None without a run that judged brokers.
        moved, failed: bundles.
        blocked: runs that validation stopped; likewise `broken` ones, which failed, and `paused` ones.
    """

    at: AwareDatetime
    lowest: float | None = None
    highest: float | None = None
    moved: int = 0
    failed: int = 0
    runs: int = 0
    blocked: int = 0
    broken: int = 0
    paused: int = 0


class Timeline(View):
    """What happened over an hour, a day or a month.

    Attributes:
        seconds: length of a bucket; those without a run are left out.
        unread: runs that were not read yet: asking again reads on.
    """

    version: int = VERSION
    span: str
    begin: AwareDatetime
    end: AwareDatetime
    seconds: float
    low_threshold: float | None
    high_threshold: float | None
    buckets: tuple[Bucket, ...]
    unread: int = 0
