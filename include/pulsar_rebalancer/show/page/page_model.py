"""The data for a cluster's page, as a typed JSON document for the browser.

The browser shows the data without further calculations. Scores are in percent, gaps and score ranges in percentage
points, times in UTC.
"""

from __future__ import annotations

from pydantic import AwareDatetime

from pulsar_rebalancer.show.page.plan_view import DrainView, PlanView
from pulsar_rebalancer.show.page.view import VERSION, State, Tone, View
from pulsar_rebalancer.strategies.shedders.profile import Line


class Status(View):
    """The content of the strip at the top of the page.

    Attributes:
        pairing: True if the strategy pairs brokers.
        sentence: a sentence that says why the rebalancer does or does not move bundles.
        in_force: a sentence about people's orders in force; empty if there are none.
        collected_at: time of the newest sample; None if there is none.
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
        done, total: number of brokers whose turn is over, and total number of brokers in the roll.
    """

    text: str
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
        marks_damaged: True if marks of drained brokers cannot be read; a release of any broker repairs them.
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
    marks_damaged: bool = False
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
        moved: the newest run that moved bundles; on the page of one run, that run if it moved bundles.
        changed_at: end of the newest run that moved or split bundles, also on the page of an earlier run.
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
